"""This process's accelerators, from any vendor: CUDA, ROCm, Ascend, XPU.

No other module checks for CUDA. Vendor plug-ins, such as `torch_npu`, add their devices to
`torch.accelerator` when torch is imported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

RAY_RESOURCES = ("GPU", "NPU", "TPU", "HPU")
"""Ray's resource names for accelerators; NVIDIA, AMD and Intel devices are `GPU`."""
_ASK_S = 300.0
"""Deadline in seconds for a process that imports torch, generous for a busy machine."""
_ASK_DRIVER_S = 10.0
_HIDES = ("_VISIBLE_DEVICES", "_VISIBLE_MODULES", "_VISIBLE_CHIPS", "_DEVICE_SELECTOR")
"""Suffixes of environment variables that restrict a process to some of the accelerators."""
_KERNEL_MODULES = {"NVIDIA": "nvidia", "AMD": "amdgpu"}


def count() -> int:
    """Return the number of accelerators visible to this process; 0 without torch."""
    if find_spec("torch") is None:
        return 0
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def device(number: int = 0) -> torch.device:
    """Return an accelerator, or the CPU if there is none.

    Args:
        number: accelerator number; wraps around if too large.
    """
    import torch

    if not (found := count()):
        return torch.device("cpu")
    kind = torch.accelerator.current_accelerator()
    assert kind is not None, "there is an accelerator"
    return torch.device(kind.type, number % found)


def is_cuda() -> bool:
    """Return whether torch calls the accelerators `cuda`, as it does for NVIDIA and AMD."""
    return device().type == "cuda"


def free_share() -> float:
    """Return the smallest fraction of free memory of any accelerator, between 0 and 1.

    Measured in a separate process, because the query allocates some memory on the accelerator.
    """
    asks = "import torch; a = torch.accelerator; "
    asks += "print(min(f / t for f, t in map(a.get_memory_info, range(a.device_count()))))"
    done = subprocess.run(
        [sys.executable, "-c", asks], capture_output=True, text=True, timeout=_ASK_S, check=True
    )
    return float(done.stdout)


def name(number: int = 0) -> str:
    """Return the product name, or else the device name, such as `npu:0`."""
    import torch

    found = device(number)
    properties = torch.get_device_module(found).get_device_properties(found.index or 0)
    return str(getattr(properties, "name", found))


def memory(number: int = 0) -> int | None:
    """Return an accelerator's memory in bytes; None if unknown."""
    import torch

    found = device(number)
    properties = torch.get_device_module(found).get_device_properties(found.index or 0)
    return getattr(properties, "total_memory", None)


def release_cached_memory() -> None:
    """Release memory that torch caches for later tensors, so that other processes can use it."""
    if count():
        import torch

        torch.accelerator.empty_cache()


def reset_peak_memory() -> None:
    """Restart the measurement of `peak_memory`."""
    if count():
        import torch

        torch.accelerator.reset_peak_memory_stats()


def peak_memory() -> int | None:
    """Return the peak memory of this process's tensors in bytes; None on the CPU."""
    import torch

    return torch.accelerator.max_memory_allocated() if count() else None


def toolkit() -> str | None:
    """Return torch's compute platform, such as `CUDA 13.0`; None on the CPU or without torch."""
    if find_spec("torch") is None:
        return None
    import torch

    versions = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip, "XPU": torch.version.xpu}
    return next((f"{name} {version}" for name, version in versions.items() if version), None)


def driver() -> str | None:
    """Return the kernel's accelerator driver, such as `NVIDIA 580.95.05`; None if not found."""
    for make, module in _KERNEL_MODULES.items():
        version = Path("/sys/module", module, "version")
        if version.is_file():
            return f"{make} {version.read_text().strip()}"
    if (program := shutil.which("nvidia-smi")) is None:
        return None
    asks = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(asks, capture_output=True, text=True, timeout=_ASK_DRIVER_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return f"NVIDIA {done.stdout.split()[0]}" if done.returncode == 0 and done.stdout else None


@dataclass(slots=True, kw_only=True, frozen=True)
class MachineAccelerators:
    """The accelerators of a machine, whether or not this process may use them."""

    cards: tuple[tuple[str, int | None], ...] = ()
    """Name and memory in bytes of each accelerator that torch can use."""
    toolkit: str | None = None
    driver: str | None = None


def of_machine(deadline_s: float = _ASK_S) -> MachineAccelerators:
    """List this machine's accelerators, including any that Ray hides from its workers.

    Uses a separate process, because this process can no longer make hidden accelerators visible.

    Args:
        deadline_s: deadline of that process, which imports torch.

    Raises:
        RuntimeError: the process failed or took too long.
    """
    asks = "import json; from agentrl import accelerators as a; "
    asks += "cards = [(a.name(k), a.memory(k)) for k in range(a.count())]; "
    asks += "print(json.dumps([cards, a.toolkit()]))"
    environment = {k: v for k, v in os.environ.items() if not k.endswith(_HIDES)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", asks]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=deadline_s, env=environment
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"torch did not list its devices within {deadline_s:g} s") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeError(f"torch cannot list its devices: {reason}")
    cards, built_for = json.loads(done.stdout.splitlines()[-1])
    return MachineAccelerators(
        cards=tuple((name, memory) for name, memory in cards), toolkit=built_for, driver=driver()
    )
