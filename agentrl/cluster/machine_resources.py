"""CPU cores and memory of this machine, within the limits of its container."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import xxhash

_GIB = 1 << 30


@dataclass(slots=True, kw_only=True, frozen=True)
class Space:
    """Size of a file system or of memory, in bytes."""

    total: int
    free: int

    def __str__(self) -> str:
        return f"{self.free / _GIB:.1f} of {self.total / _GIB:.1f} GiB free"


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
