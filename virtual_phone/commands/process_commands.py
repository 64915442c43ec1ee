"""Commands for processes: ps, pidof, kill, pgrep, pkill, top, timeout, wait; and stty."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from virtual_phone.commands.builtins import duration_s
from virtual_phone.commands.command_options import number_of, split_options
from virtual_phone.commands.command_table import command
from virtual_phone.commands.toybox.grep import compile_pattern
from virtual_phone.shell.command_context import CommandContext, UsageError
from virtual_phone.system.process_table import SIGNALS, signal_number

_ZYGOTE_PID = 300
_TIMED_OUT = 124
"""Exit code of `timeout` if the command took too long."""
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


@command("kill")
async def kill(ctx: CommandContext) -> int:
    """`kill [-SIGNAL | -s SIGNAL] pids`, `kill -l`."""
    words, signal = list(ctx.arguments), 15
    if words[:1] == ["-l"]:
        return ctx.print("\n".join(f"{number:2} {name}" for name, number in SIGNALS.items()))
    if words and re.fullmatch(r"-\w+", words[0]):
        word = words.pop(0)[1:]
        known = signal_number(words.pop(0) if word == "s" and words else word)
        if known is None:
            return ctx.fail(f"sh: kill: bad signal '{word}'")
        signal = known
    if not words:
        return ctx.fail("sh: kill: Usage: kill [-s signame | -signum | -signame] {job | pid} ...")
    code = 0
    for word in words:
        pid = number_of(word)
        if pid is None:
            code = ctx.fail(f"sh: kill: {word}: arguments must be jobs or process IDs")
        elif not await _send(ctx, pid, signal):
            code = ctx.fail(f"sh: kill: {word}: No such process")
    return code


async def _send(ctx: CommandContext, pid: int, signal: int) -> bool:
    """Send a signal to a program or an app; return whether the process exists."""
    tasks = ctx.phone.tasks
    app = next((package for package in tasks.running if tasks.pid(package) == pid), None)
    # Unlike programs run by a shell, apps are not event-loop tasks.
    if app is not None and signal in (9, 15):
        tasks.stop(app)
        return True
    known = ctx.phone.processes.kill(pid, signal)
    await asyncio.sleep(0)  # if this process was killed, it ends here
    return known or app is not None


@command("pgrep", "pkill")
async def pgrep(ctx: CommandContext) -> int:
    """`pgrep [-flnx] pattern`, `pkill [-SIGNAL] [-fnx] pattern`."""
    words, signal = list(ctx.arguments), 15
    if ctx.name == "pkill" and words and (number := signal_number(words[0][1:])) is not None:
        ctx.arguments, signal = words[1:], number
    options, patterns = split_options(ctx, "flnx")
    if len(patterns) != 1:
        raise UsageError("Needs 1 argument")
    pattern = compile_pattern(patterns[0], "E")
    match = pattern.fullmatch if "x" in options else pattern.search
    own = ctx.process.pid if ctx.process is not None else 0
    found = [
        row
        for row in running_processes(ctx)
        if row.pid != own and match(row.line if "f" in options else row.name)
    ]
    for row in found[-1:] if "n" in options else found:
        if ctx.name == "pkill":
            await _send(ctx, row.pid, signal)
        else:
            shown = row.line if "f" in options else row.name
            ctx.print(f"{row.pid} {shown}" if "l" in options else str(row.pid))
    return int(not found)


@command("top")
async def top(ctx: CommandContext) -> int:
    """`top [-b] [-n count] [-d seconds] [-m rows]`; `-n` defaults to 1."""
    options, _ = split_options(ctx, "bn:d:m:")
    for number in range(number_of(options.get("n")) or 1):
        if number:
            await asyncio.sleep(duration_s(options.get("d", "3")) or 0.1)
        rows = running_processes(ctx)
        num = len(rows)
        ctx.print(f"Tasks: {num} total,   1 running, {num - 1} sleeping,   0 stopped,   0 zombie")
        ctx.print("  Mem:  4000000K total,  2000000K used,  2000000K free,    50000K buffers")
        ctx.print(" Swap:        0K total,        0K used,        0K free,  1000000K cached")
        ctx.print("200%cpu   5%user   0%nice   5%sys 190%idle   0%iow   0%irq   0%sirq   0%host")
        ctx.print("  PID USER         PR  NI VIRT  RES  SHR S[%CPU] %MEM     TIME+ ARGS")
        for row in rows[: number_of(options.get("m"))]:
            left = f"{row.pid:>5} {row.user:<12} 20   0 1.0G  50M  20M S"
            ctx.print(f"{left}  0.0   1.2   0:00.10 {row.line}")
        await ctx.io.drain()
    return 0


@command("timeout")
async def timeout(ctx: CommandContext) -> int:
    """`timeout [-s SIGNAL] [-k seconds] seconds command`: exit code 124 on timeout."""
    _, words = split_options(ctx, "s:k:", is_mixed=False)
    seconds = duration_s(words[0]) if len(words) > 1 else None
    if seconds is None:
        raise UsageError("Needs 2 arguments")
    try:
        async with asyncio.timeout(seconds or None):
            return await ctx.shell.execute(words[1:], ctx.io)
    except TimeoutError:
        return _TIMED_OUT


@command("wait")
async def wait(ctx: CommandContext) -> int:
    """`wait [pids]`: exit code of the last pid; without pids, wait for all jobs and return 0."""
    shell, code = ctx.shell.state, 0
    for word in ctx.arguments or map(str, shell.own_jobs):
        job = shell.jobs.get(number_of(word) or 0)
        if job is None or job.task is None:
            code = 127
            continue
        await asyncio.wait([job.task])
        code = job.code
    return code if ctx.arguments else 0


@command("stty")
def stty(ctx: CommandContext) -> int:
    """`stty size`: rows and columns of the terminal."""
    terminal = ctx.io.terminal
    if terminal is None:
        return ctx.fail("stty: standard input: Not a typewriter")
    if ctx.arguments == ["size"]:
        return ctx.print(f"{terminal.rows} {terminal.columns}")
    if not ctx.arguments or ctx.arguments == ["-a"]:
        return ctx.print(
            f"speed 38400 baud; rows {terminal.rows}; columns {terminal.columns}; line = 0;"
        )
    return 0
