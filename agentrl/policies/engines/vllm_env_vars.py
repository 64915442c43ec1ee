"""Environment variables for vLLM and its processes, set before vLLM is imported."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrl import accelerators

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts as `max_lora_rank`."""
_PROCESSES = Path(__file__).resolve().parent / "vllm_processes"
ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""Executor that keeps scheduler and model in one process. On CPUs, vLLM puts them in two processes
that busy-wait for each other, which halves the speed on two cores. vLLM replaces the short name
"uni" with "mp", but not this path."""


@contextmanager
def vllm_environment(start_deadline_s: float) -> Iterator[None]:
    """Set environment variables for vLLM and its processes, except those set by the user."""
    folders = [str(_PROCESSES), *filter(None, [os.environ.get("PYTHONPATH")])]
    always = {
        "AGENTRL_VLLM_PROCESS": "1",
        "PYTHONPATH": os.pathsep.join(folders),
    }
    settings = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(int(start_deadline_s)),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    if not accelerators.count():
        settings |= {"VLLM_CPU_KVCACHE_SPACE": "1", "KMP_BLOCKTIME": "1"}
        # Even in eager mode, vLLM compiles two small functions of its sampler, which takes seconds
        # for the first reply and each new batch size, and needs a C++ compiler.
        settings |= {"TORCH_COMPILE_DISABLE": "1"}
        # vLLM recommends this OpenMP, whose threads wait without taking CPU time from the learner.
        openmp = Path(sys.prefix) / "lib" / "libiomp5.so"
        settings |= {"LD_PRELOAD": str(openmp)} if openmp.is_file() else {}
    added = {n: value for n, value in settings.items() if n not in os.environ} | always
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def main_guard_hint() -> str:
    """Return a hint about a common mistake in scripts, whose top level vLLM's processes rerun."""
    script = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    # default_worker.py is the script of Ray's actors.
    if script.suffix != ".py" or script.name == "default_worker.py":
        return ""
    return f" (does {script.name} call agentrl only below `if __name__ == '__main__':`?)"
