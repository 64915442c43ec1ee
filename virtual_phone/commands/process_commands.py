"""Commands for processes: ps, pidof."""

import time
from collections.abc import Callable
from typing import NamedTuple

from virtual_phone.commands.command_options import split_options
from virtual_phone.commands.command_table import command
from virtual_phone.shell.interpreter import CommandContext, UsageError

_ZYGOTE_PID = 300
_USER_IDS = {"root": 0, "system": 1000, "shell": 2000, "u0_a50": 10050, "u0_a100": 10100}


class PhoneProcess(NamedTuple):
    """A process as listed by `ps`."""

    pid: int
    parent: int
    user: str
    name: str
    """Process name, truncated to 15 characters as by the kernel."""
    line: str
    """Command line."""


_SYSTEM = (
    PhoneProcess(1, 0, "root", "init", "/system/bin/init second_stage"),
    PhoneProcess(300, 1, "root", "main", "zygote64"),
    PhoneProcess(400, 1, "shell", "adbd", "/apex/com.android.adbd/bin/adbd"),
    PhoneProcess(500, 1, "system", "surfaceflinger", "/system/bin/surfaceflinger"),
    PhoneProcess(1000, 300, "system", "system_server", "system_server"),
    PhoneProcess(1200, 300, "u0_a50", "ndroid.systemui", "com.android.systemui"),
)
_FIELDS: dict[str, tuple[str, int, Callable[[PhoneProcess, float], object]]] = {
    "USER": ("USER", -12, lambda p, up_s: p.user),
    "UID": ("UID", 5, lambda p, up_s: _USER_IDS[p.user]),
    "PID": ("PID", 5, lambda p, up_s: p.pid),
    "PPID": ("PPID", 5, lambda p, up_s: p.parent),
    "VSZ": ("VSZ", 7, lambda p, up_s: 1_000_000),
    "RSS": ("RSS", 6, lambda p, up_s: 50_000),
    "WCHAN": ("WCHAN", -10, lambda p, up_s: "0"),
    "ADDR": ("ADDR", 10, lambda p, up_s: "0"),
    "S": ("S", 1, lambda p, up_s: "R" if p.name == "ps" else "S"),
    "C": ("C", 1, lambda p, up_s: 0),
    "STIME": ("STIME", -5, lambda p, up_s: "00:00"),
    "TTY": ("TTY", -8, lambda p, up_s: "?"),
    "TIME": ("TIME", 8, lambda p, up_s: "00:00:00"),
    "ELAPSED": ("ELAPSED", 11, lambda p, up_s: time.strftime("%H:%M:%S", time.gmtime(up_s))),
    "COMM": ("COMM", -15, lambda p, up_s: p.name),
    "NAME": ("NAME", -27, lambda p, up_s: p.line.partition(" ")[0].rpartition("/")[2]),
    "ARGS": ("ARGS", -27, lambda p, up_s: p.line),
    "CMD": ("CMD", -27, lambda p, up_s: p.line),
    "CMDLINE": ("CMDLINE", -27, lambda p, up_s: p.line),
}
"""Title, width (negative: left-aligned) and value of each column."""
_SAME = {"STAT": "S", "ETIME": "ELAPSED", "COMMAND": "ARGS"}
_HELP = """\
usage: ps [-AefnwZ] [-o FIELD,] [-p PID,] [-u USER,]

List processes.

-A\tAll
-e\tSynonym for -A
-f\tFull listing (-o USER:12=UID,PID,PPID,C,STIME,TTY,TIME,ARGS=CMD)
-o\tOutput FIELDs instead of defaults
-p\tProcess IDs (--pid)
-u\tSelect by effective user"""
"""Help text of `ps`. Clients search it for `-A`, which old phones lack."""
_COLUMNS = "USER,PID,PPID,VSZ,RSS,WCHAN,ADDR,S,NAME"
_FULL = "USER,PID,PPID,C,STIME,TTY,TIME,CMD"


def running_processes(ctx: CommandContext) -> list[PhoneProcess]:
    """Return system processes, apps and shell programs, sorted by process id."""
    tasks = ctx.phone.tasks
    found = [*_SYSTEM]
    for package in tasks.running:
        pid = tasks.pid(package)
        found.append(PhoneProcess(pid, _ZYGOTE_PID, "u0_a100", package[-15:], package))
    programs = [(p.pid, p.parent, p.words) for p in ctx.phone.processes.running.values()]
    if ctx.process is None:  # commands that never wait are not in the process table
        pid = ctx.phone.processes.new_pid()
        programs.append((pid, ctx.shell.state.pid, (ctx.name, *ctx.arguments)))
    for pid, parent, words in programs:
        found.append(PhoneProcess(pid, parent, "shell", words[0][:15], " ".join(words)))
    return sorted(found, key=lambda process: process.pid)


@command("ps")
def ps(ctx: CommandContext) -> int:
    """`ps [-A | -e] [-f] [-p PIDS] [-u USERS] [-o COLUMNS]`; without -A, only shell processes."""
    if "--help" in ctx.arguments:
        return ctx.print(_HELP)
    options, words = split_options(ctx, "Aaefnwp:u:o:")
    names = options.get("o", _FULL if "f" in options else _COLUMNS).upper().split(",")
    columns = [_SAME.get(title.partition("=")[0].split(":")[0], title) for title in names]
    unknown = [name for name in columns if name not in _FIELDS]
    if unknown:
        raise UsageError(f"bad -o {unknown[0][:40]}")
    wanted = {*words, *(word for o in "pu" if o in options for word in options[o].split(","))}
    shown = [
        process
        for process in running_processes(ctx)
        if options.keys() & {"A", "e"}
        or wanted & {str(process.pid), process.user, f"{_USER_IDS[process.user]}"}
        or (not wanted and process.user == "shell" and process.name != "adbd")
    ]
    fields = [_FIELDS[name] for name in columns]
    up_s = ctx.phone.clock.uptime_s()
    rows = [[str(value(process, up_s)) for *_, value in fields] for process in shown]
    for cells in ([title for title, *_ in fields], *rows):
        padded = [
            cell.rjust(width) if width > 0 else cell.ljust(-width)
            for cell, (_, width, _) in zip(cells, fields, strict=True)
        ]
        ctx.print(" ".join(padded).rstrip())
    return 0 if shown else 1


@command("pidof")
def pidof(ctx: CommandContext) -> int:
    """`pidof [-s] names`."""
    options, names = split_options(ctx, "s")
    found = [
        str(process.pid)
        for process in running_processes(ctx)
        if process.line.partition(" ")[0].rpartition("/")[2] in names
    ]
    return ctx.print(" ".join(found[: 1 if "s" in options else None])) if found else 1
