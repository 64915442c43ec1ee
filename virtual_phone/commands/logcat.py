"""Commands for the log: logcat, log."""

import calendar
import contextlib
import re
import struct
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from virtual_phone.commands.command_options import number_of, split_options
from virtual_phone.commands.command_table import command
from virtual_phone.commands.toybox.grep import compile_pattern
from virtual_phone.shell.command_context import CommandContext, UsageError
from virtual_phone.system.device_log import BUFFERS, LEVELS, Level, LogEntry
from virtual_phone.system.file_system import EPOCH_S

_FORMATS: dict[str, Callable[[LogEntry, str], str]] = {
    "brief": lambda e, when: f"{e.level}/{e.tag:<8}({e.pid:5d}): {e.text}",
    "long": lambda e, when: f"[ {when} {e.pid:5d}:{e.pid:5d} {e.level}/{e.tag:<8} ]\n{e.text}\n",
    "process": lambda e, when: f"{e.level}({e.pid:5d}) {e.text}  ({e.tag})",
    "raw": lambda e, when: e.text,
    "tag": lambda e, when: f"{e.level}/{e.tag:<8}: {e.text}",
    "thread": lambda e, when: f"{e.level}({e.pid:5d}:{e.pid:5d}) {e.text}",
    "threadtime": lambda e, when: f"{when} {e.pid:5d} {e.pid:5d} {e.level} {e.tag:<8}: {e.text}",
    "time": lambda e, when: f"{when} {e.level}/{e.tag:<8}({e.pid:5d}): {e.text}",
}
_MODIFIERS = frozenset(("color", "epoch", "usec", "UTC", "year", "zone"))
_COLORS = {"V": 231, "D": 75, "I": 40, "W": 166, "E": 196, "F": 196}
_DEFAULT_BUFFERS = ("main", "system", "crash")
_SHORT = "BDLT:b:cde:gm:st:v:"
_LONG_NAMES = {
    "binary": "B", "buffer=": "b", "buffer-size": "g", "clear": "c", "dividers": "D", "dump": "d",
    "format=": "v", "max-count=": "m", "pid=": "pid", "regex=": "e", "tail=": "t",
}  # fmt: skip
_TIMES = ("%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S")
_ENTRY = struct.Struct("<HHiIIIII")
"""liblog's `struct logger_entry`: payload length, header size, process, thread, time, buffer,
user."""
_SHELL_USER = 2000


@dataclass(slots=True, kw_only=True)
class _LogFilter:
    """Selects the log entries to show."""

    buffers: Collection[str]
    levels: dict[str, str]
    """Lowest level to show, by tag; `*` stands for all other tags."""
    pid: int | None
    since_s: float
    pattern: re.Pattern[str] | None

    def shows(self, entry: LogEntry) -> bool:
        """Return whether to show an entry."""
        lowest = self.levels.get(entry.tag, self.levels.get("*", "V"))
        return (
            entry.buffer in self.buffers
            and entry.level in LEVELS[_rank(lowest) :]
            and self.pid in (None, entry.pid)
            and entry.time_s >= self.since_s
            and (self.pattern is None or self.pattern.search(entry.text) is not None)
        )


def _rank(level: str) -> int:
    """Return the index of a level; `S` (silent) is above all levels."""
    return "".join(LEVELS).find(level) % (len(LEVELS) + 1)


@command("logcat")
async def logcat(ctx: CommandContext) -> int:
    """`logcat [-d] [-c] [-g] [-b BUFFERS] [-B] [-v FORMATS] [-t N] [-s] [-e PATTERN] [TAG:LEVEL]`.

    Without -d, -t or -m it prints new entries until the client disconnects.
    """
    options, filters = split_options(ctx, _SHORT, _LONG_NAMES, joined="bv")
    log, buffers = ctx.phone.log, _buffers(options.get("b", "default"))
    form, modifiers = _format(options.get("v", "threadtime"))
    if "c" in options:
        log.clear(buffers)
        return 0
    if "g" in options:
        return _print_sizes(ctx, buffers)
    tail = options.get("t", options.get("T"))
    last = number_of(tail)
    try:
        pattern = compile_pattern(options["e"], "E") if "e" in options else None
    except ValueError as error:
        raise UsageError(str(error)) from error
    chosen = _LogFilter(
        buffers=buffers,
        levels=_levels(ctx, filters, is_silent="s" in options),
        pid=number_of(options.get("pid")),
        since_s=0.0 if tail is None or last is not None else _since_s(tail),
        pattern=pattern,
    )
    # -T prints the last entries and continues; -t stops after them.
    follows = options.keys().isdisjoint("dLt")
    # Count before listing the entries, so that entries written in the meantime are not lost.
    seen, left, begun = log.num_written, number_of(options.get("m")), set[str]()
    shown = [entry for entry in list(log.entries) if chosen.shows(entry)]
    shown = shown if last is None else shown[max(0, len(shown) - last) :]
    while True:
        output = bytearray()
        for entry in shown if left is None else shown[:left]:
            if "B" in options:
                output += _packed(entry)
                continue
            if entry.buffer not in begun:
                output += f"--------- beginning of {entry.buffer}\n".encode()
            begun.add(entry.buffer)
            line = _FORMATS[form](entry, _when(entry.time_s, modifiers))
            if "color" in modifiers:
                line = f"\x1b[38;5;{_COLORS[entry.level]}m{line}\x1b[0m"
            output += f"{line}\n".encode("utf-8", "surrogateescape")
        ctx.out(bytes(output))
        left = None if left is None else left - len(shown)
        if not follows or (left is not None and left <= 0):
            return 0
        await ctx.io.drain()
        await log.wait(seen)
        shown = [entry for entry in log.since(seen) if chosen.shows(entry)]
        seen = log.num_written


def _when(time_s: float, modifiers: Collection[str]) -> str:
    """Format the time of an entry; the phone's time zone is GMT."""
    seconds, rest_s = divmod(time_s, 1)
    digits = 6 if "usec" in modifiers else 3
    if "epoch" in modifiers:
        shown = f"{int(seconds):19d}"
    else:
        shown = time.strftime(_TIMES["year" in modifiers], time.gmtime(seconds))
    shown += f".{int(rest_s * 10**digits):0{digits}d}"
    return f"{shown} +0000" if "zone" in modifiers else shown


def _packed(entry: LogEntry) -> bytes:
    """Encode an entry as `logcat -B` prints it."""
    text = f"{entry.tag}\0{entry.text}\0".encode("utf-8", "surrogateescape")
    payload = bytes([2 + _rank(entry.level)]) + text
    seconds, rest_s = divmod(entry.time_s, 1)
    header = (len(payload), _ENTRY.size, entry.pid, entry.pid, int(seconds), int(rest_s * 1e9))
    return _ENTRY.pack(*header, BUFFERS.index(entry.buffer), _SHELL_USER) + payload


def _print_sizes(ctx: CommandContext, buffers: Collection[str]) -> int:
    for buffer in sorted(buffers, key=BUFFERS.index):
        used = sum(len(_packed(e)) for e in ctx.phone.log.entries if e.buffer == buffer)
        kib = -(-used // 1024)
        ctx.print(
            f"{buffer}: ring buffer is 256 KiB ({kib} KiB consumed, {kib} KiB readable), "
            "max entry is 5120 B, max payload is 4068 B"
        )
    return 0


def _format(text: str) -> tuple[str, set[str]]:
    """Parse the values of `-v` into a format and its modifiers."""
    form, modifiers = "threadtime", set[str]()
    for word in re.split("[,\n]", text):
        if word in _FORMATS:
            form = word
        elif word in _MODIFIERS:
            modifiers.add(word)
        else:
            raise UsageError(f"Invalid parameter {word!r} to -v")
    return form, modifiers


def _levels(ctx: CommandContext, filters: Sequence[str], *, is_silent: bool) -> dict[str, str]:
    """Parse `TAG:LEVEL` filters into levels by tag; with `-s`, hide all other tags."""
    levels = {"*": "S"} if is_silent else {}
    tags = ctx.environment.get("ANDROID_LOG_TAGS", "").strip("'\"").split()
    for spec in (*tags, *filters):
        tag, _, level = spec.partition(":")
        levels[tag] = (level or "V").upper()[:1]
    return levels


def _buffers(names: str) -> set[str]:
    """Parse lists of buffers such as `main,crash`."""
    wanted: set[str] = set()
    several = {"all": BUFFERS, "default": _DEFAULT_BUFFERS}
    for name in re.split("[,\n]", names):
        if name not in (*BUFFERS, *several):
            raise UsageError(f"Unknown -b buffer {name!r}.")
        wanted.update(several.get(name, (name,)))
    return wanted


def _since_s(text: str) -> float:
    """Parse seconds since 1970, or a phone time such as `11-14 22:13:20.000`, into seconds."""
    whole, _, rest = text.partition(".")
    fraction = float(f"0.{rest[:9]}") if rest.isascii() and rest.isdecimal() else 0.0
    if whole.isascii() and whole.isdecimal():
        return int(whole[:12]) + fraction
    for dated in (whole, f"{time.gmtime(EPOCH_S).tm_year}-{whole}"):
        with contextlib.suppress(ValueError):
            return calendar.timegm(time.strptime(dated, _TIMES[1])) + fraction
    raise UsageError(f"-t {text!r} not in time format")


@command("log")
def log_(ctx: CommandContext) -> int:
    """`log [-p LEVEL] [-t TAG] message`: write a log entry."""
    options, words = split_options(ctx, "p:t:", is_mixed=False)
    wanted = options.get("p", "I").upper()[:1]
    level: Level = next((known for known in LEVELS if known == wanted), "I")
    ctx.phone.log.add(options.get("t", "log"), " ".join(words), level)
    return 0
