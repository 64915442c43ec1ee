"""Commands about the log: logcat, log."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.grep_patterns import compile_pattern
from agentrl.virtual_phone.shell.command_context import Call
from agentrl.virtual_phone.system.device_log import LEVELS, Entry, Level

_DIVIDER = "--------- beginning of main"


def _brief(entry: Entry) -> str:
    return f"{entry.level}/{entry.tag}({entry.pid:5d}): {entry.text}"


def _time(entry: Entry) -> str:
    return f"{_when(entry)} {entry.level}/{entry.tag}({entry.pid:5d}): {entry.text}"


def _threadtime(entry: Entry) -> str:
    pid = f"{entry.pid:5d} {entry.pid:5d}"
    return f"{_when(entry)} {pid} {entry.level} {entry.tag}: {entry.text}"


def _long(entry: Entry) -> str:
    head = f"[ {_when(entry)} {entry.pid:5d}:{entry.pid:5d} {entry.level}/{entry.tag} ]"
    return f"{head}\n{entry.text}\n"


def _when(entry: Entry) -> str:
    return time.strftime("%m-%d %H:%M:%S.000", time.gmtime(entry.time_s))


_FORMATS: dict[str, Callable[[Entry], str]] = {
    "brief": _brief,
    "epoch": lambda entry: f"{entry.time_s}.000 {_threadtime(entry)[19:]}",
    "long": _long,
    "process": lambda entry: f"{entry.level}({entry.pid:5d}) {entry.text}  ({entry.tag})",
    "raw": lambda entry: entry.text,
    "tag": lambda entry: f"{entry.level}/{entry.tag}: {entry.text}",
    "thread": lambda entry: f"{entry.level}({entry.pid:5d}:{entry.pid:5d}) {entry.text}",
    "threadtime": _threadtime,
    "time": _time,
}
_MODIFIERS = frozenset(
    ["color", "descriptive", "monotonic", "nsec", "printable", "uid", "usec", "UTC", "year", "zone"]
)
_WITH_VALUE = {
    "--format": "-v", "--buffer": "-b", "--tail": "-t", "--regex": "-e", "--file": "-f",
    "--max-count": "-m", "--pid": "--pid",
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class _Wish:
    """What `logcat` is asked for."""

    form: Callable[[Entry], str] = _threadtime
    follows: bool = True
    clears: bool = False
    last: int | None = None
    most: int | None = None
    pid: int | None = None
    pattern: re.Pattern[str] | None = None
    levels: dict[str, str] = field(default_factory=dict)
    """The lowest level that is shown, by tag; `*` for every other."""

    def wants(self, entry: Entry) -> bool:
        """Whether a line is shown."""
        lowest = self.levels.get(entry.tag, self.levels.get("*", "V"))
        return (
            entry.level in LEVELS[_rank(lowest) :]
            and self.pid in (None, entry.pid)
            and (self.pattern is None or self.pattern.search(entry.text) is not None)
        )


def _rank(level: str) -> int:
    """Where a level stands; beyond the highest for `S`, which is silence."""
    return "".join(LEVELS).find(level) % (len(LEVELS) + 1)


@command("logcat")
async def logcat(call: Call) -> int:
    """`logcat [-d] [-c] [-v FORMAT] [-t N] [-s] [-e PATTERN] [TAG:LEVEL]...`.

    Without -d, -t or -m it goes on, line after line, until the client leaves.
    """
    try:
        wish = _read(call)
    except ValueError as error:
        return call.fail(f"logcat: {error}")
    log = call.phone.log
    if wish.clears:
        log.entries.clear()
        return 0
    call.say(_DIVIDER)
    entries = list(log.entries)
    seen, left = log.num_written, wish.most
    wanted = [entry for entry in entries if wish.wants(entry)]
    wanted = wanted if wish.last is None else wanted[max(0, len(wanted) - wish.last) :]
    while True:
        for entry in wanted if left is None else wanted[:left]:
            call.say(wish.form(entry))
        left = None if left is None else left - len(wanted)
        if not wish.follows or (left is not None and left <= 0):
            return 0
        await call.io.drained()
        await log.wait(seen)
        wanted = [entry for entry in log.since(seen) if wish.wants(entry)]
        seen = log.num_written


def _read(call: Call) -> _Wish:
    """What the arguments ask for.

    Raises:
        ValueError: an option that cannot be understood.
    """
    wish, words = _Wish(), _spelled_out(call.arguments)
    while words:
        word = words.pop(0)
        if word in ("-d", "--dump"):
            wish.follows = False
        elif word in ("-c", "--clear"):
            wish.clears = True
        elif word in ("-s",):
            wish.levels["*"] = "S"
        elif word in ("-v", "-t", "-T", "-e", "-m", "--pid", "-b", "-f", "-n", "-r"):
            if not words:
                raise ValueError(f"option requires an argument -- {word}")
            _option(wish, word, words.pop(0))
        elif word in ("-g", "-S", "-D", "-L", "-B", "-p"):
            wish.follows = False
        elif word.startswith("-"):
            raise ValueError(f"unrecognized option {word}")
        else:
            tag, _, level = word.partition(":")
            wish.levels[tag] = (level or "V").upper()[:1]
    for told in call.environment.get("ANDROID_LOG_TAGS", "").strip("'\"").split():
        tag, _, level = told.partition(":")
        wish.levels.setdefault(tag, (level or "V").upper()[:1])
    return wish


def _option(wish: _Wish, option: str, value: str) -> None:
    if option == "-v":
        if value not in _FORMATS and value not in _MODIFIERS:
            raise ValueError(f"Invalid parameter {value} to -v")
        wish.form = _FORMATS.get(value, wish.form)
    elif option == "-e":
        wish.pattern = compile_pattern(value, "E")
    elif option in ("-t", "-T", "-m", "--pid"):
        number = int(value[-9:]) if value.isascii() and value.isdecimal() else None
        if option == "-m":
            wish.most = number
        elif option == "--pid":
            wish.pid = number
        else:
            wish.last = number
            wish.follows = wish.follows and option == "-T"


def _spelled_out(arguments: list[str]) -> list[str]:
    """`-vtime` as `-v time`, `--format=time` as `-v time`."""
    words: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in _WITH_VALUE:
            words += [_WITH_VALUE[name], *([value] if equals else [])]
        elif re.fullmatch(r"-[vtTebm].+", argument):
            words += [argument[:2], argument[2:]]
        else:
            words.append(argument)
    return words


@command("log")
def log_(call: Call) -> int:
    """`log [-p LEVEL] [-t TAG] message`: writes a line."""
    words, tag, told = list(call.arguments), "log", "I"
    while len(words) > 1 and words[0] in ("-p", "-t"):
        option, value, *words = words
        tag, told = (value, told) if option == "-t" else (tag, value.upper()[:1])
    level: Level = next((one for one in LEVELS if one == told), "I")
    call.phone.log.add(tag, " ".join(words), level)
    return 0
