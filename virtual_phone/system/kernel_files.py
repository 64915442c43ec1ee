"""Files in `/dev`, `/proc` and `/sys`, whose content is generated on reading."""

import random
import uuid
from collections.abc import Callable, Mapping

from virtual_phone.system.device_clock import DeviceClock
from virtual_phone.system.input_devices import BUTTONS, TOUCHSCREEN

_NUM_CPUS = 2
_CPUS = "/sys/devices/system/cpu"
_MEMORY_KB = 4_000_000
_TICKS_PER_S = 100
"""The kernel's `USER_HZ`."""

Make = Callable[[int], bytes]
"""Makes a file's content; for an endless file, as many bytes as requested."""


def kernel_files(clock: DeviceClock, source: random.Random) -> Mapping[str, Make]:
    """Return the kernel files by path."""
    boot_id = _uuid(source)
    texts: dict[str, Callable[[], str]] = {
        "/proc/cpuinfo": _cpuinfo,
        "/proc/loadavg": lambda: "0.10 0.12 0.09 1/400 4200",
        "/proc/meminfo": _meminfo,
        "/proc/mounts": _mounts,
        "/proc/stat": lambda: _stat(clock),
        "/proc/sys/kernel/random/boot_id": lambda: boot_id,
        "/proc/sys/kernel/random/uuid": lambda: _uuid(source),
        "/proc/uptime": lambda: f"{clock.uptime_s():.2f} {clock.uptime_s() * _NUM_CPUS * 0.9:.2f}",
        "/proc/version": lambda: "Linux version 6.1.0-virtual (agentrl) #1 SMP PREEMPT",
        f"{_CPUS}/online": lambda: f"0-{_NUM_CPUS - 1}",
        **{f"{_CPUS}/cpu{n}/online": lambda: "1" for n in range(_NUM_CPUS)},
        **{f"{_CPUS}/cpu{n}/cpufreq/cpuinfo_max_freq": lambda: "2000000" for n in range(_NUM_CPUS)},
    }
    return {
        **dict.fromkeys(("/dev/null", BUTTONS, TOUCHSCREEN), lambda size: b""),
        "/dev/zero": bytes,
        "/dev/random": source.randbytes,
        "/dev/urandom": source.randbytes,
        **{path: _lines(text) for path, text in texts.items()},
    }


def _lines(text: Callable[[], str]) -> Make:
    return lambda size: f"{text()}\n".encode()


def _uuid(source: random.Random) -> str:
    return str(uuid.UUID(int=source.getrandbits(128), version=4))


def _stat(clock: DeviceClock) -> str:
    """Return the processor times since boot, nine tenths of them idle."""
    ticks = int(clock.uptime_s() * _TICKS_PER_S)
    times = (ticks * 6 // 100, 0, ticks * 4 // 100, ticks * 90 // 100, 0, 0, 0, 0, 0, 0)
    cores = [f"cpu{n} {' '.join(map(str, times))}" for n in range(_NUM_CPUS)]
    both = " ".join(str(_NUM_CPUS * ticks) for ticks in times)
    booted_s = int(clock.now_s() - clock.uptime_s())
    rest = f"intr 0\nctxt {ticks * 20}\nbtime {booted_s}\nprocesses 4200\nprocs_running 1"
    return "\n".join([f"cpu  {both}", *cores, rest, "procs_blocked 0"])


def _meminfo() -> str:
    sizes = {
        "MemTotal": _MEMORY_KB, "MemFree": _MEMORY_KB // 4, "MemAvailable": _MEMORY_KB // 2,
        "Buffers": 4000, "Cached": _MEMORY_KB // 4, "SwapTotal": 0, "SwapFree": 0,
    }  # fmt: skip
    return "\n".join(f"{name + ':':<16}{kb:>8} kB" for name, kb in sizes.items())


def _cpuinfo() -> str:
    one = "vendor_id\t: agentrl\nmodel name\t: virtual\ncpu MHz\t\t: 2000.000\n"
    cores = "".join(f"processor\t: {number}\n{one}\n" for number in range(_NUM_CPUS))
    return f"{cores}Hardware\t: virtual"


def _mounts() -> str:
    return (
        "/dev/block/dm-0 / ext4 ro,seclabel,relatime 0 0\n"
        "tmpfs /dev tmpfs rw,seclabel,nosuid,relatime 0 0\n"
        "/dev/block/dm-5 /data ext4 rw,seclabel,nosuid,nodev,noatime 0 0\n"
        "/dev/fuse /storage/emulated fuse rw,lazytime,nosuid,nodev,noexec,noatime 0 0"
    )
