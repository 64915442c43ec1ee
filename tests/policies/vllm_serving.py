"""`vllm serve` in a separate process, which is stopped with its children."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentrl.child_process import free_port
from agentrl.policies.engines.vllm_env_vars import ONE_PROCESS, vllm_environment

_START_S = 150.0


@contextmanager
def vllm_serving(model: Path, log: Path, *arguments: str) -> Iterator[str]:
    """Serve a model on a free port.

    Args:
        model: its folder.
        log: file for the server's output.
        arguments: further ones of `vllm serve`.

    Yields:
        The URL, once it answers.
    """
    port = free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
        "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager",
        "--distributed-executor-backend", ONE_PROCESS, "--skip-mm-profiling",
        "--limit-mm-per-prompt", '{"video": 0}', *arguments,
    ]  # fmt: skip
    with vllm_environment(_START_S), log.open("w") as output:  # also lets the CPU build start
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        assert process.poll() is None, f"vLLM ended: {log.read_text()[-3000:]}"
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(url, timeout=2)
            return
        time.sleep(0.2)
    raise AssertionError(f"vLLM does not answer: {log.read_text()[-3000:]}")
