"""Commands for the log: logcat, log."""

import getopt
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.grep import compile_pattern
from agentrl.virtual_phone.shell.interpreter import CommandContext
from agentrl.virtual_phone.system.device_log import LEVELS, Level, LogEntry

_DIVIDER = "--------- beginning of main"


def _time(entry: LogEntry) -> str:
    return f"{_when(entry)} {entry.level}/{entry.tag}({entry.pid:5d}): {entry.text}"


def _threadtime(entry: LogEntry) -> str:
    pid = f"{entry.pid:5d} {entry.pid:5d}"
    return f"{_when(entry)} {pid} {entry.level} {entry.tag}: {entry.text}"


def _when(entry: LogEntry) -> str:
    return time.strftime("%m-%d %H:%M:%S.000", time.gmtime(entry.time_s))


_FORMATS: dict[str, Callable[[LogEntry], str]] = {
    "brief": lambda entry: f"{entry.level}/{entry.tag}({entry.pid:5d}): {entry.text}",
    "raw": lambda entry: entry.text,
    "tag": lambda entry: f"{entry.level}/{entry.tag}: {entry.text}",
    "threadtime": _threadtime,
    "time": _time,
}
_MODIFIERS = frozenset(
    ["color", "descriptive", "monotonic", "nsec", "printable", "uid", "usec", "UTC", "year", "zone"]
)
_SHORT = "b:cde:f:gm:n:pr:st:v:BDLST:"
_LONG = ["buffer=", "clear", "dump", "file=", "format=", "max-count=", "pid=", "regex=", "tail="]


@dataclass(slots=True, kw_only=True)
class _LogcatOptions:
    """Parsed options of `logcat`."""

    form: Callable[[LogEntry], str] = _threadtime
    follows: bool = True
    clears: bool = False
    last: int | None = None
    most: int | None = None
    pid: int | None = None
    pattern: re.Pattern[str] | None = None
    levels: dict[str, str] = field(default_factory=dict)
    """Lowest level shown, by tag; `*` for all other tags."""

    def shows(self, entry: LogEntry) -> bool:
        """Whether an entry is shown."""
        lowest = self.levels.get(entry.tag, self.levels.get("*", "V"))
        return (
            entry.level in LEVELS[_rank(lowest) :]
            and self.pid in (None, entry.pid)
            and (self.pattern is None or self.pattern.search(entry.text) is not None)
        )


def _rank(level: str) -> int:
    """Index of a level; beyond the highest for `S`, which is silent."""
    return "".join(LEVELS).find(level) % (len(LEVELS) + 1)


@command("logcat")
async def logcat(ctx: CommandContext) -> int:
    """`logcat [-d] [-c] [-v FORMAT] [-t N] [-s] [-e PATTERN] [TAG:LEVEL]...`.

    Without -d, -t or -m it prints new entries until the client disconnects.
    """
    try:
        options = _read(ctx)
    except ValueError as error:
        return ctx.fail(f"logcat: {error}")
    log = ctx.phone.log
    if options.clears:
        log.entries.clear()
        return 0
    ctx.print(_DIVIDER)
    entries = list(log.entries)
    seen, left = log.num_written, options.most
    shown = [entry for entry in entries if options.shows(entry)]
    shown = shown if options.last is None else shown[max(0, len(shown) - options.last) :]
    while True:
        for entry in shown if left is None else shown[:left]:
            ctx.print(options.form(entry))
        left = None if left is None else left - len(shown)
        if not options.follows or (left is not None and left <= 0):
            return 0
        await ctx.io.drain()
        await log.wait(seen)
        shown = [entry for entry in log.since(seen) if options.shows(entry)]
        seen = log.num_written


def _read(ctx: CommandContext) -> _LogcatOptions:
    """Parse the arguments.

    Raises:
        ValueError: an option is invalid.
    """
    options = _LogcatOptions()
    try:
        given, filters = getopt.gnu_getopt(ctx.arguments, _SHORT, _LONG)
    except getopt.GetoptError as error:
        raise ValueError(error.msg) from error
    tags = ctx.environment.get("ANDROID_LOG_TAGS", "").strip("'\"").split()
    for option, value in given:
        number = int(value[-9:]) if value.isascii() and value.isdecimal() else None
        match option:
            case "-d" | "--dump" | "-g" | "-S" | "-D" | "-L" | "-B" | "-p":
                options.follows = False
            case "-c" | "--clear":
                options.clears = True
            case "-s":
                options.levels["*"] = "S"
            case "-v" | "--format":
                if value not in _FORMATS and value not in _MODIFIERS:
                    raise ValueError(f"Invalid parameter {value} to -v")
                options.form = _FORMATS.get(value, options.form)
            case "-e" | "--regex":
                options.pattern = compile_pattern(value, "E")
            case "-m" | "--max-count":
                options.most = number
            case "--pid":
                options.pid = number
            case "-t" | "--tail" | "-T":
                options.last = number
                options.follows = options.follows and option == "-T"
    for spec in (*tags, *filters):
        tag, _, level = spec.partition(":")
        options.levels[tag] = (level or "V").upper()[:1]
    return options


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
