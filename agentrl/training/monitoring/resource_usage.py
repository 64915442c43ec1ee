"""Resource usage of the driver's machine: CPU, memory, and NVIDIA GPUs."""

import shutil
import subprocess
from collections.abc import Sequence
from statistics import fmean

import psutil

from agentrl.cluster.machine_resources import host_memory

_ASK_S = 5.0
_QUERY = ("--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits")
_GIB_OF_MIB = 1 / 1024


class ResourceUsage:
    """Measures the usage of this machine by all its processes.

    Args:
        gpu_command: command that prints a line `PERCENT, MIB` for each GPU; None for `nvidia-smi`,
            if available.
    """

    def __init__(self, gpu_command: Sequence[str] | None = None) -> None:
        if gpu_command is None and (program := shutil.which("nvidia-smi")) is not None:
            gpu_command = (program, *_QUERY)
        self._gpu_command = gpu_command
        # Each call returns the mean since the previous call, so start measuring now.
        psutil.cpu_percent()

    def measure(self) -> dict[str, float]:
        """Measure CPU usage since the last call, and current memory and GPU usage.

        Returns:
            `resources/cpu` and `resources/gpu`: fractions of all cores and GPUs;
            `resources/memory_gb` and `resources/gpu_memory_gb` (of all GPUs): GiB.
        """
        memory = host_memory()
        return {
            "resources/cpu": psutil.cpu_percent() / 100,
            "resources/memory_gb": (memory.total - memory.free) / (1 << 30),
            **self._gpus(),
        }

    def _gpus(self) -> dict[str, float]:
        if self._gpu_command is None:
            return {}
        try:
            asked = subprocess.run(
                self._gpu_command, capture_output=True, text=True, timeout=_ASK_S, check=True
            )
            rows = [[float(cell) for cell in line.split(",")] for line in asked.stdout.splitlines()]
            busy, used = zip(*rows, strict=True)
        except (OSError, subprocess.SubprocessError, ValueError):
            # Do not retry, because the command would fail at each step, perhaps only at its
            # deadline.
            self._gpu_command = None
            return {}
        return {
            "resources/gpu": fmean(busy) / 100,
            "resources/gpu_memory_gb": sum(used) * _GIB_OF_MIB,
        }
