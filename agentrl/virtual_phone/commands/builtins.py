"""Builtin commands of the shell: echo, printf, export, exit and others."""

import asyncio
import re
from collections.abc import Callable

from agentrl.virtual_phone.commands.command_table import COMMANDS, command
from agentrl.virtual_phone.commands.text_commands import split_options
from agentrl.virtual_phone.shell.interpreter import CommandContext, ShellExit

_ESCAPE = re.compile(r"\\([\\ntrabe0])|%([sd%])")
_MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "0": "\0"}
_MAX_LINE_LENGTH = 1 << 20
_BINARY: dict[str, Callable[[str, str], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "-eq": lambda a, b: int(a) == int(b),
    "-ne": lambda a, b: int(a) != int(b),
    "-lt": lambda a, b: int(a) < int(b),
    "-le": lambda a, b: int(a) <= int(b),
    "-gt": lambda a, b: int(a) > int(b),
    "-ge": lambda a, b: int(a) >= int(b),
}


@command("echo")
def echo(ctx: CommandContext) -> int:
    """`echo [-n] [-e] words`."""
    words, newline, escapes = list(ctx.arguments), True, False
    while words and words[0] in ("-n", "-e", "-E"):
        option = words.pop(0)
        newline, escapes = newline and option != "-n", option == "-e" or escapes
    text = " ".join(words)
    if escapes:
        text = re.sub(r"\\([\\ntrabe0])", lambda found: _MEANINGS.get(found[1], found[1]), text)
    ctx.out((text + "\n" * newline).encode("utf-8", "surrogateescape"))
    return 0


@command("printf")
def printf(ctx: CommandContext) -> int:
    r"""`printf format [words]`: `%s`, `%d`, `%%`, `\n` etc.; repeated until no word is left."""
    form, *words = ctx.arguments or [""]
    takes = any(found[2] in ("s", "d") for found in _ESCAPE.finditer(form))
    written: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return _MEANINGS.get(found[1], found[1])
        if found[2] == "%":
            return "%"
        return words.pop(0) if words else "0" if found[2] == "d" else ""

    while not written or (words and takes):
        written.append(_ESCAPE.sub(replaced, form))
    ctx.out("".join(written).encode("utf-8", "surrogateescape"))
    return 0


@command("export", "readonly", "local")
def export(ctx: CommandContext) -> int:
    """`export NAME=value`."""
    for argument in ctx.arguments:
        name, equals, value = argument.partition("=")
        if equals:
            ctx.environment[name] = value
    return 0


@command("unset")
def unset(ctx: CommandContext) -> int:
    """`unset NAME`."""
    for name in ctx.arguments:
        ctx.environment.pop(name, None)
    return 0


@command("env", "set", "printenv")
def env(ctx: CommandContext) -> int:
    """Print all variables."""
    for name, value in sorted(ctx.environment.items()):
        ctx.print(f"{name}={value}")
    return 0


@command("cd")
def cd(ctx: CommandContext) -> int:
    """`cd folder`."""
    path = ctx.path((ctx.arguments or ["/"])[0])
    node = ctx.phone.files.find(path)
    if node is None or not node.is_folder:
        error = "No such file or directory" if node is None else "Not a directory"
        return ctx.fail(f"sh: cd: {path}: {error}", 2)
    ctx.environment["PWD"] = path
    return 0


@command("pwd")
def pwd(ctx: CommandContext) -> int:
    """Print the working directory."""
    return ctx.print(ctx.environment["PWD"])


@command("exit")
def exit_(ctx: CommandContext) -> int:
    """`exit [code]`."""
    code = (ctx.arguments or [str(ctx.shell.code)])[0]
    raise ShellExit(int(code[-9:]) & 0xFF if code.isascii() and code.isdecimal() else 2)


@command("sh")
async def sh(ctx: CommandContext) -> int:
    """`sh -c script`, `sh file`, or a script on standard input."""
    words = [word for word in ctx.arguments if word != "-"]
    if words[:1] == ["-c"] and len(words) > 1:
        script = words[1]
    elif words:
        script = ctx.phone.files.read(ctx.path(words[0])).decode("utf-8", "surrogateescape")
    else:
        script = (await ctx.read_all()).decode("utf-8", "surrogateescape")
    return await ctx.shell.inner(ctx.io).run(script)


@command("command", "nohup", "time")
async def command_(ctx: CommandContext) -> int:
    """`command [-v] name ...`: run a command, or look it up."""
    if ctx.name == "command" and ctx.arguments[:1] in (["-v"], ["-V"]):
        return which(ctx)
    if not ctx.arguments:
        return 0
    spelled, *arguments = ctx.arguments
    name = spelled.rpartition("/")[2]
    inner = CommandContext(shell=ctx.shell, name=name, arguments=arguments, io=ctx.io)
    return await ctx.shell.execute(inner, spelled)


@command("which")
def which(ctx: CommandContext) -> int:
    """`which names`: print the paths of commands; fails if one does not exist."""
    names = [name for name in ctx.arguments if not name.startswith("-")]
    for name in names:
        if name in COMMANDS:
            ctx.print(f"/system/bin/{name}")
    return 0 if names and all(name in COMMANDS for name in names) else 1


@command("sleep")
async def sleep(ctx: CommandContext) -> int:
    """`sleep seconds`."""
    try:
        seconds = float((ctx.arguments or [""])[0].removesuffix("s"))
    except ValueError:
        return ctx.fail(f"sleep: not a number: {' '.join(ctx.arguments)}")
    await asyncio.sleep(min(max(seconds, 0.0), 1e6))
    return 0


@command("true", ":", "exec", "wait", "trap", "umask", "sync", "chcon", "restorecon")
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
    negated = words[:1] == ["!"]
    words = words[negated:]
    try:
        return int(_holds(ctx, words) == negated)
    except (KeyError, ValueError):
        return ctx.fail(f"sh: {ctx.name}: {' '.join(words)}: unexpected operator/operand", 2)


def _holds(ctx: CommandContext, words: list[str]) -> bool:
    if len(words) == 3:
        return bool(_BINARY[words[1]](words[0], words[2]))
    if len(words) < 2:
        return bool(words and words[0])
    operator, operand = words
    if operator in ("-z", "-n"):
        return bool(operand) == (operator == "-n")
    node = ctx.phone.files.find(ctx.path(operand))
    known = {
        "-e": node is not None,
        "-f": node is not None and not node.is_folder,
        "-d": node is not None and node.is_folder,
        "-s": node is not None and bool(node.content),
        "-r": node is not None,
        "-w": node is not None,
        "-x": node is not None and bool(node.mode & 0o111),
    }
    return known[operator]


@command("read")
async def read(ctx: CommandContext) -> int:
    """`read [-r] names`: split a line into variables, the rest into the last; 1 at the end."""
    _, names = split_options(ctx, "tnud")
    line = b""
    while b"\n" not in line and len(line) < _MAX_LINE_LENGTH and (chunk := await ctx.io.read()):
        line += chunk
    text, newline, _ = line.decode("utf-8", "surrogateescape").partition("\n")
    names = names or ["REPLY"]
    words = text.split(None, len(names) - 1)
    for name, word in zip(names, [*words, *[""] * len(names)], strict=False):
        ctx.environment[name] = word.rstrip()
    return 0 if newline else 1
