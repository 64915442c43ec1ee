"""Commands for the log: logcat, log."""

import calendar
import contextlib
import getopt
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from virtual_phone.commands.command_table import command
from virtual_phone.commands.toybox.grep import compile_pattern
from virtual_phone.shell.interpreter import CommandContext
from virtual_phone.system.device_clock import DeviceClock
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
_MODIFIERS = frozenset((
    "color", "descriptive", "epoch", "monotonic", "nsec", "printable", "uid", "usec",
    "UTC", "year", "zone",
))  # fmt: skip
_COLORS = {"V": 231, "D": 75, "I": 40, "W": 166, "E": 196, "F": 196}
_DEFAULT_BUFFERS = ("main", "system", "crash")
_SHORT = "b:cde:f:gm:n:pr:st:v:BDLST:"
_LONG = [
    "binary", "buffer=", "buffer-size", "clear", "dividers", "dump", "file=", "format=",
    "max-count=", "pid=", "regex=", "statistics", "tail=", "wrap",
]  # fmt: skip
_TIMES = ("%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S")
_ENTRY = struct.Struct("<HHiIIIII")
"""`struct logger_entry` of liblog: length, size of this header, process, thread, time, buffer,
user."""
_SHELL_USER = 2000


@dataclass(slots=True, kw_only=True)
class _LogcatOptions:
    """Parsed options of `logcat`."""

    form: str = "threadtime"
    modifiers: set[str] = field(default_factory=set)
    buffers: set[str] = field(default_factory=set)
    is_binary: bool = False
    follows: bool = True
    clears: bool = False
    sizes: bool = False
    last: int | None = None
    since_s: float = 0.0
    most: int | None = None
    pid: int | None = None
    pattern: re.Pattern[str] | None = None
    file: str | None = None
    levels: dict[str, str] = field(default_factory=dict)
    """Lowest level shown, by tag; `*` for all other tags."""

    def shows(self, entry: LogEntry) -> bool:
        """Whether an entry is shown."""
        lowest = self.levels.get(entry.tag, self.levels.get("*", "V"))
        return (
            entry.buffer in self.buffers
            and entry.level in LEVELS[_rank(lowest) :]
            and self.pid in (None, entry.pid)
            and entry.time_s >= self.since_s
            and (self.pattern is None or self.pattern.search(entry.text) is not None)
        )


def _rank(level: str) -> int:
    """Index of a level; beyond the highest for `S`, which is silent."""
    return "".join(LEVELS).find(level) % (len(LEVELS) + 1)


@command("logcat")
async def logcat(ctx: CommandContext) -> int:
    """`logcat [-d] [-c] [-b BUFFERS] [-B] [-v FORMATS] [-t N] [-s] [-e PATTERN] [TAG:LEVEL]...`.

    Without -d, -t or -m it prints new entries until the client disconnects.
    """
    log = ctx.phone.log
    try:
        options = _read(ctx)
    except ValueError as error:
        return ctx.fail(f"logcat: {error}")
    if options.clears:
        log.clear(options.buffers)
        return 0
    if options.sizes:
        return _print_sizes(ctx, options)
    seen, left, begun = log.num_written, options.most, set[str]()
    shown = [entry for entry in list(log.entries) if options.shows(entry)]
    shown = shown if options.last is None else shown[max(0, len(shown) - options.last) :]
    while True:
        output = bytearray()
        for entry in shown if left is None else shown[:left]:
            if entry.buffer not in begun and not options.is_binary:
                output += f"--------- beginning of {entry.buffer}\n".encode()
            begun.add(entry.buffer)
            output += _packed(entry) if options.is_binary else _line(options, entry, ctx)
        if options.file is not None:
            files = ctx.phone.files
            old = b"" if files.find(options.file) is None else files.read(options.file)
            files.write(options.file, old + output)
        elif output:
            ctx.out(bytes(output))
        left = None if left is None else left - len(shown)
        if not options.follows or (left is not None and left <= 0):
            return 0
        await ctx.io.drain()
        await log.wait(seen)
        shown = [entry for entry in log.since(seen) if options.shows(entry)]
        seen = log.num_written


def _line(options: _LogcatOptions, entry: LogEntry, ctx: CommandContext) -> bytes:
    """An entry as text, with the end of its line."""
    given = options.modifiers
    line = _FORMATS[options.form](entry, _when(entry.time_s, given, ctx.phone.clock))
    if "printable" in given:
        line = "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02X}" for c in line)
    if "color" in given:
        line = f"\x1b[38;5;{_COLORS[entry.level]}m{line}\x1b[0m"
    return f"{line}\n".encode("utf-8", "surrogateescape")


def _when(time_s: float, given: set[str], clock: DeviceClock) -> str:
    """The time of an entry; the phone's time zone is GMT."""
    if "monotonic" in given:
        time_s -= clock.now_s() - clock.uptime_s()
    seconds, rest_s = divmod(time_s, 1)
    digits = 9 if "nsec" in given else 6 if "usec" in given else 3
    if "epoch" in given or "monotonic" in given:
        shown = f"{int(seconds):{6 if 'monotonic' in given else 19}d}"
    else:
        shown = time.strftime(_TIMES["year" in given], time.gmtime(seconds))
    shown += f".{int(rest_s * 10**digits):0{digits}d}"
    return f"{shown} +0000" if "zone" in given else shown


def _packed(entry: LogEntry) -> bytes:
    """An entry as `logcat -B` prints it."""
    text = f"{entry.tag}\0{entry.text}\0".encode("utf-8", "surrogateescape")
    payload = bytes([2 + _rank(entry.level)]) + text
    seconds, rest_s = divmod(entry.time_s, 1)
    header = (len(payload), _ENTRY.size, entry.pid, entry.pid, int(seconds), int(rest_s * 1e9))
    return _ENTRY.pack(*header, BUFFERS.index(entry.buffer), _SHELL_USER) + payload


def _print_sizes(ctx: CommandContext, options: _LogcatOptions) -> int:
    for buffer in sorted(options.buffers, key=BUFFERS.index):
        used = sum(len(_packed(e)) for e in ctx.phone.log.entries if e.buffer == buffer)
        kib = -(-used // 1024)
        ctx.print(
            f"{buffer}: ring buffer is 256 KiB ({kib} KiB consumed, {kib} KiB readable), "
            "max entry is 5120 B, max payload is 4068 B"
        )
    return 0


def _read(ctx: CommandContext) -> _LogcatOptions:
    """Parse the arguments."""
    options = _LogcatOptions()
    try:
        given, filters = getopt.gnu_getopt(ctx.arguments, _SHORT, _LONG)
    except getopt.GetoptError as error:
        raise ValueError(error.msg) from error
    tags = ctx.environment.get("ANDROID_LOG_TAGS", "").strip("'\"").split()
    for option, value in given:
        _read_option(ctx, options, option, value)
    options.buffers = options.buffers or set(_DEFAULT_BUFFERS)
    for spec in (*tags, *filters):
        tag, _, level = spec.partition(":")
        options.levels[tag] = (level or "V").upper()[:1]
    return options


def _read_option(ctx: CommandContext, options: _LogcatOptions, option: str, value: str) -> None:
    number = int(value[-9:]) if value.isascii() and value.isdecimal() else None
    match option:
        case "-d" | "--dump" | "-L":
            options.follows = False
        case "-c" | "--clear":
            options.clears = True
        case "-g" | "--buffer-size" | "-S" | "--statistics" | "-p":
            options.sizes = True
        case "-B" | "--binary":
            options.is_binary = True
        case "-s":
            options.levels["*"] = "S"
        case "-b" | "--buffer":
            options.buffers |= _buffers(value)
        case "-v" | "--format":
            for word in value.split(","):
                if word not in _FORMATS and word not in _MODIFIERS:
                    raise ValueError(f"Invalid parameter {word!r} to -v")
                options.form = word if word in _FORMATS else options.form
                options.modifiers |= {word} & _MODIFIERS
        case "-e" | "--regex":
            options.pattern = compile_pattern(value, "E")
        case "-f" | "--file":
            options.file = ctx.path(value)
        case "-m" | "--max-count":
            options.most = number
        case "--pid":
            options.pid = number
        case "-t" | "--tail" | "-T":
            options.last = number
            options.since_s = _since_s(value) if number is None else 0.0
            options.follows = options.follows and option == "-T"


def _buffers(names: str) -> set[str]:
    """The buffers of a list such as `main,crash`."""
    wanted: set[str] = set()
    for name in names.split(","):
        if name not in (*BUFFERS, "all", "default"):
            raise ValueError(f"Unknown -b buffer {name!r}.")
        several = {"all": BUFFERS, "default": _DEFAULT_BUFFERS}
        wanted.update(several.get(name, (name,)))
    return wanted


def _since_s(text: str) -> float:
    """A time of the phone such as `11-14 22:13:20.000`, or seconds, since 1970."""
    whole, _, rest = text.partition(".")
    fraction = float(f"0.{rest[:9]}") if rest.isascii() and rest.isdecimal() else 0.0
    if whole.isascii() and whole.isdecimal():
        return int(whole[:12]) + fraction
    for dated in (whole, f"{time.gmtime(EPOCH_S).tm_year}-{whole}"):
        with contextlib.suppress(ValueError):
            return calendar.timegm(time.strptime(dated, _TIMES[1])) + fraction
    raise ValueError(f"-t {text!r} not in time format")


@command("log")
def log_(ctx: CommandContext) -> int:
    """`log [-p LEVEL] [-t TAG] message`: write a log entry."""
    words, tag, priority = list(ctx.arguments), "log", "I"
    while len(words) > 1 and words[0] in ("-p", "-t"):
        option, value, *words = words
        tag, priority = (value, priority) if option == "-t" else (tag, value.upper()[:1])
    level: Level = next((known for known in LEVELS if known == priority), "I")
    ctx.phone.log.add(tag, " ".join(words), level)
    return 0
