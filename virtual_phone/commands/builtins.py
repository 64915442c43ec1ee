"""Shell builtins: export, cd, exit, read and others."""

import asyncio
import re
import time

from virtual_phone.commands.command_options import split_options
from virtual_phone.commands.command_table import COMMANDS, command
from virtual_phone.shell.arithmetic import ArithmeticFailure
from virtual_phone.shell.command_context import CommandContext, UsageError
from virtual_phone.shell.conditions import words_hold
from virtual_phone.shell.field_splitting import field_separator
from virtual_phone.shell.shell_state import (
    BUILTINS,
    FunctionReturn,
    LoopJump,
    ShellExit,
    ShellFailure,
)

_MAX_LINE_LENGTH = 1 << 20
_LINE = re.compile(rb"(?<!\\)(?:\\\\)*\n")
"""End of a line with its backslash continuations."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION_NAMES = {
    "errexit": "e", "noglob": "f", "nounset": "u", "xtrace": "x", "pipefail": "pipefail",
}  # fmt: skip
_TIMES = "{:5d}m{:05.2f}s real     0m00.00s user     0m00.00s system"
"""Output of `time`; the processor is not measured."""


@command("export", "readonly", "typeset", "local")
def export(ctx: CommandContext) -> int:
    """`export [-p] NAME=value`, `local NAME`, `typeset -grx NAME`; alone, `export` lists."""
    options, words = split_options(ctx, "pgrx", is_mixed=False)
    shell = ctx.shell.state
    if not words and ctx.name == "export":
        start = "export " if "p" in options else ""
        for name in sorted(shell.exported):
            ctx.print(f"{start}{name}={shell.environment.get(name, '')}")
    for word in words:
        name, equals, value = word.partition("=")
        if not _NAME.fullmatch(name):
            return ctx.fail(f"sh: {ctx.name}: {word}: is not an identifier")
        is_local = ctx.name not in ("export", "readonly") and "g" not in options
        if is_local and shell.frames:  # restored at the end of the function
            shell.frames[-1].setdefault(name, shell.environment.get(name))
            if not equals:
                shell.environment.pop(name, None)
        if equals:
            shell.assign(name, value)
        if ctx.name == "export" or "x" in options:
            shell.exported.add(name)
        if ctx.name == "readonly" or "r" in options:
            shell.read_only.add(name)
    return 0


@command("unset")
def unset(ctx: CommandContext) -> int:
    """`unset [-v] NAME`, `unset -f FUNCTION`."""
    options, names = split_options(ctx, "fv")
    for name in names:
        if name in ctx.shell.state.read_only:
            return ctx.fail(f"sh: read-only: {name}")
        if "f" in options:
            ctx.shell.state.functions.pop(name, None)
        else:
            ctx.environment.pop(name, None)
            ctx.shell.state.exported.discard(name)
    return 0


@command("env")
async def env(ctx: CommandContext) -> int:
    """`env [-i] [-u NAME] [NAME=value] [command]`: print exported variables, or run a command."""
    options, words = split_options(ctx, "iu:", joined="u", is_mixed=False)
    nested = ctx.shell.inner(ctx.io)
    shell = nested.state
    if "i" in options:
        shell.environment = {"IFS": ctx.environment["IFS"], "PWD": ctx.environment["PWD"]}
    for name in options.get("u", "").split("\n"):
        shell.environment.pop(name, None)
    while words and "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        shell.assign(name, value)
        shell.exported.add(name)
    if words:
        return await nested.execute(words, ctx.io)
    for name, value in shell.environment.items():
        if name in shell.exported:
            ctx.print(f"{name}={value}")
    return 0


@command("set")
def set_(ctx: CommandContext) -> int:
    """`set [-euxf] [-o name] [-- parameters]`; alone, print all variables."""
    shell, words = ctx.shell.state, list(ctx.arguments)
    if not words:
        for name, value in sorted(shell.environment.items()):
            if not re.fullmatch(r"[\w./:,@%+-]+", value):
                value = "'" + value.replace("'", "'\\''") + "'"
            ctx.print(f"{name}={value}")
        return 0
    while words and words[0][:1] in ("-", "+") and len(words[0]) > 1:
        word = words.pop(0)
        if word == "--":
            shell.positional = words
            return 0
        letters = list(word[1:])
        if letters[-1] == "o":
            name = words.pop(0) if words else ""
            if name not in _OPTION_NAMES:
                return ctx.fail(f"sh: set: {name}: bad option")
            letters[-1] = _OPTION_NAMES[name]
        unknown = {*letters} - {"a", *_OPTION_NAMES.values()}
        if unknown:
            raise UsageError(f"-{min(unknown)}: unknown option")
        (shell.options.update if word[0] == "-" else shell.options.difference_update)(letters)
    if words:
        shell.positional = words
    return 0


@command("shift")
def shift(ctx: CommandContext) -> int:
    """`shift [count]`."""
    count = ctx.shell.words.number((ctx.arguments or ["1"])[0])
    if not 0 <= count <= len(ctx.shell.state.positional):
        ctx.fail("sh: shift: nothing to shift")
        raise ShellFailure(1)
    ctx.shell.state.positional = ctx.shell.state.positional[count:]
    return 0


@command("break", "continue")
def break_(ctx: CommandContext) -> int:
    """`break [levels]`, `continue [levels]`."""
    levels = ctx.shell.words.number((ctx.arguments or ["1"])[0])
    if levels < 1 or not ctx.shell.state.num_loops:
        ctx.fail(f"sh: {ctx.name}: can't {ctx.name}")
        return int(levels < 1)
    raise LoopJump(min(levels, ctx.shell.state.num_loops), ctx.name == "break")


def _exit_code(ctx: CommandContext) -> int:
    text = (ctx.arguments or [str(ctx.shell.state.code)])[0]
    if not re.fullmatch(r"-?\d{1,9}", text, re.ASCII):
        ctx.fail(f"sh: {ctx.name}: bad number: {text}")
        return 1
    return int(text) & 0xFF


@command("return")
def return_(ctx: CommandContext) -> int:
    """`return [code]` from a function or a sourced script."""
    raise FunctionReturn(_exit_code(ctx))


@command("exit")
def exit_(ctx: CommandContext) -> int:
    """`exit [code]`."""
    raise ShellExit(_exit_code(ctx))


@command("eval")
async def eval_(ctx: CommandContext) -> int:
    """`eval words`: run the words as a script."""
    return await _run_here(ctx, " ".join(ctx.arguments))


async def _run_here(ctx: CommandContext, script: str) -> int:
    """Run a script in the current shell, using the command's streams."""
    state = ctx.shell.state
    outer, state.io = state.io, ctx.io
    try:
        return await ctx.shell.run_here(script)
    finally:
        state.io = outer


@command(".", "source")
async def source(ctx: CommandContext) -> int:
    """`. file [parameters]`: run a script in the current shell."""
    shell, (path, *words) = ctx.shell.state, ctx.arguments or [""]
    try:
        content = ctx.phone.files.read(ctx.path(path))
    except OSError as error:
        ctx.fail(f"sh: .: {path}: {error.strerror}")
        raise ShellFailure(1) from None
    positional, shell.positional = shell.positional, words or shell.positional
    try:
        return await _run_here(ctx, content.decode("utf-8", "surrogateescape"))
    except FunctionReturn as end:
        return end.code
    finally:
        shell.positional = positional if words else shell.positional


@command("cd")
def cd(ctx: CommandContext) -> int:
    """`cd [-P] [folder | -]`; without -P, symbolic links in the path are kept."""
    words = [word for word in ctx.arguments if word not in ("-L", "-P", "--")]
    wanted = (words or [ctx.environment.get("HOME", "/")])[0]
    path = ctx.path(ctx.environment.get("OLDPWD", "/") if wanted == "-" else wanted)
    files = ctx.phone.files
    try:
        if not files.stat(path).is_folder:
            raise NotADirectoryError(20, "Not a directory")
    except OSError as error:
        return ctx.fail(f"sh: cd: {path}: {error.strerror}", 2)
    path = files.resolve(path) if "-P" in ctx.arguments else path
    ctx.environment["OLDPWD"], ctx.environment["PWD"] = ctx.environment["PWD"], path
    return ctx.print(path) if wanted == "-" else 0


@command("pwd")
def pwd(ctx: CommandContext) -> int:
    """`pwd [-P]`: the working directory; with -P, symbolic links are resolved."""
    path = ctx.environment["PWD"]
    return ctx.print(ctx.phone.files.resolve(path) if "-P" in ctx.arguments else path)


@command("sh", "mksh")
async def sh(ctx: CommandContext) -> int:
    """`sh [-eux] [-c script [name]] [file] [parameters]`, or a script on standard input."""
    words, options = list(ctx.arguments), ""
    while words and words[0][:1] == "-" and words[0] not in ("-", "--"):
        options += words.pop(0)[1:]
    words = words[1:] if words[:1] in (["-"], ["--"]) else words
    if "c" in options:
        if not words:
            return ctx.fail("sh: -c: requires argument")
        script, words = words[0], words[1:] or ["sh"]
    elif words and "s" not in options:
        path = ctx.path(words[0])
        node = ctx.phone.files.find(path)
        if node is None or node.content is None:
            return ctx.fail(f"sh: {words[0]}: No such file or directory", 127)
        script = node.content.decode("utf-8", "surrogateescape")
    else:
        script, words = (await ctx.read_all()).decode("utf-8", "surrogateescape"), ["sh", *words]
    letters = "".join(letter for letter in options if letter in "efux")
    return await ctx.shell.run_program(ctx, script, words, set(letters))


@command("command", "builtin", "nohup", "nice", "time", "setsid", "toybox")
async def command_(ctx: CommandContext) -> int:
    """`command [-v] name ...`: run a command, or look it up."""
    if ctx.name == "command" and ctx.arguments[:1] in (["-v"], ["-V"]):
        return which(ctx)
    options, words = split_options(ctx, "n:" if ctx.name == "nice" else "p", is_mixed=False)
    if not words:
        return ctx.print(" ".join(sorted(set(COMMANDS) - BUILTINS))) if ctx.name == "toybox" else 0
    start_s = time.monotonic()
    code = await ctx.shell.execute(words, ctx.io)
    if ctx.name == "time":
        minutes, seconds = divmod(time.monotonic() - start_s, 60)
        form = "real {1:.2f}\nuser 0.00\nsys 0.00" if "p" in options else _TIMES
        ctx.fail(form.format(int(minutes), seconds))
    return code


@command("which", "type")
def which(ctx: CommandContext) -> int:
    """`which names`: print the paths of commands; fails if any does not exist."""
    names = [name for name in ctx.arguments if not name.startswith("-")]
    code = int(not names)
    for name in names:
        base = name.rpartition("/")[2]
        found = name if name in ctx.shell.state.functions or name in BUILTINS else ""
        if ctx.name == "which" or not found:
            is_program = base in COMMANDS and name not in BUILTINS
            found = f"/system/bin/{base}" if is_program else ""
        if not found:
            code = 1
            if ctx.name == "type":
                ctx.fail(f"{name} not found")
        elif ctx.name == "type":
            kind = "function" if name in ctx.shell.state.functions else "shell builtin"
            ctx.print(f"{name} is a {kind}" if found == name else f"{name} is {found}")
        else:
            ctx.print(found)
    return code


@command("sleep", "usleep")
async def sleep(ctx: CommandContext) -> int:
    """`sleep seconds[s|m|h|d]`."""
    text = (ctx.arguments or [""])[0]
    seconds = duration_s(text)
    if seconds is None:
        return ctx.fail(f"sleep: not a number: {' '.join(ctx.arguments)}")
    await asyncio.sleep(seconds / 1e6 if ctx.name == "usleep" else seconds)
    return 0


def duration_s(text: str) -> float | None:
    """Parse a duration such as `1.5`, `2m` or `1h` into seconds; None if it is not valid."""
    scale = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}.get(text[-1:])
    try:
        seconds = float(text[:-1] if scale else text) * (scale or 1.0)
    except ValueError:
        return None
    return min(max(seconds, 0.0), 1e6)


@command("true", ":", "exec", "umask", "sync", "chcon", "restorecon", "chown", "chgrp")
def true(ctx: CommandContext) -> int:
    """Do nothing, successfully."""
    return 0


@command("false")
def false(ctx: CommandContext) -> int:
    """Do nothing, unsuccessfully."""
    return 1


@command("yes")
async def yes(ctx: CommandContext) -> int:
    """`yes [word]`: print a line forever."""
    line = (" ".join(ctx.arguments) or "y") + "\n"
    many = line.encode("utf-8", "surrogateescape") * 256
    while True:
        ctx.out(many)
        await ctx.io.drain()
        await asyncio.sleep(0)


@command("test", "[")
def test(ctx: CommandContext) -> int:
    """`test -f x`, `[ a = b ]`: 0 for true, 1 for false, 2 for an invalid test."""
    words = list(ctx.arguments)
    if ctx.name == "[" and (not words or words.pop() != "]"):
        return ctx.fail("sh: [: missing ]", 2)
    try:
        return int(not words_hold(ctx.shell.state, ctx.io, words))
    except (ValueError, ArithmeticFailure, RecursionError) as error:
        return ctx.fail(f"sh: {ctx.name}: {error}: unexpected operator/operand", 2)


@command("read")
async def read(ctx: CommandContext) -> int:
    """`read [-r] names`: split a line into variables; the last takes the rest."""
    options, names = split_options(ctx, "r")
    line = await ctx.io.read.through(_LINE, _MAX_LINE_LENGTH)
    text = line.decode("utf-8", "surrogateescape")
    if "r" not in options:
        text = re.sub(r"\\([\s\S])", lambda found: "" if found[1] == "\n" else found[1], text)
    ended = text.endswith("\n")
    names, separators = names or ["REPLY"], ctx.environment.get("IFS", " \t\n")
    for name, word in zip(names, _words_of(text.removesuffix("\n"), len(names), separators),
                          strict=True):  # fmt: skip
        ctx.shell.state.assign(name, word)
    return 0 if ended else 1


def _words_of(text: str, count: int, separators: str) -> list[str]:
    """Split a line into words for `read`: the last word takes the rest."""
    if not separators:
        return [text, *[""] * (count - 1)]
    blanks, separator = field_separator(separators)
    words, text = list[str](), text.strip(blanks) if blanks else text
    while len(words) < count - 1 and (found := separator.search(text)):
        words.append(text[: found.start()])
        text = text[found.end() :]
    end = next((at for at, c in enumerate(text) if c in separators), len(text))
    rest = text[end:].strip(blanks)
    if len(rest) <= 1 and rest in separators:  # a single separator only ends the word
        text = text[:end]
    return [*words, text, *[""] * (count - len(words) - 1)]


@command("trap")
def trap(ctx: CommandContext) -> int:
    """`trap [action] EXIT`; no action or `-` clears it. Signals cannot be trapped."""
    words = ctx.arguments[1:] if ctx.arguments[:1] == ["--"] else ctx.arguments
    action, names = (words[0], words[1:]) if len(words) > 1 else ("", words)
    action = "" if action == "-" else action
    signals = [name for name in names if name not in ("0", "EXIT")]
    if action and signals:
        raise UsageError(f"{signals[0]}: a virtual phone supports only EXIT")
    if len(names) > len(signals):
        ctx.shell.state.exit_trap = action
    return 0
