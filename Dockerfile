# agentrl for NVIDIA GPUs; for any machine without one, Dockerfile.cpu. See docs/scaling.md.
#   docker build -t agentrl .
#   docker run --gpus all --shm-size 32g -v "$PWD/runs:/home/agentrl/runs" agentrl train CONFIG
ARG PYTHON=3.11
FROM python:${PYTHON}-slim-bookworm

# A compiler: Triton, torch.compile and vLLM build small programs while they run. CUDA's own
# libraries come as wheels, the driver's from the host (nvidia-container-toolkit).
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ libnuma1 \
    && rm -rf /var/lib/apt/lists/*
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PATH=/opt/venv/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
RUN useradd --create-home --uid 1000 agentrl \
    && install -d -o agentrl /opt/venv /home/agentrl/runs
USER 1000

# Several gigabytes that change only with the pins; the package itself is a layer of its own. adb is
# part of adbutils.
COPY requirements/gpu.txt /tmp/requirements/
RUN python -m venv /opt/venv \
    && pip install -r /tmp/requirements/gpu.txt
COPY --chown=agentrl . /tmp/agentrl
RUN pip install --no-deps /tmp/agentrl

WORKDIR /home/agentrl
ENTRYPOINT ["agentrl"]
CMD ["doctor"]
