"""sed, awk, printf and others, run by Bashkit: an interpreter with an in-memory file system.

Bashkit (https://github.com/everruns/bashkit) never touches this machine's files, network or
processes, matches patterns in linear time, and limits loops. A program runs in a thread on copies
of its standard input and of the files named in its arguments; the files it writes are copied back.
"""

import asyncio
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from virtual_phone.commands.command_table import command
from virtual_phone.shell.command_context import CommandContext

if TYPE_CHECKING:
    from bashkit import Bash, FileSystem

_MAX_SIZE = 8 << 20
"""Maximum input size of a program, in bytes."""
_MAX_MEMORY = 64 << 20
_MAX_IDLE = 4
_FOLDER = "/phone"
"""Folder of the phone's files in Bashkit's file system, which has its own /proc and /etc."""
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
"""Characters that no argument may have: null and bytes that are not UTF-8."""
_MAX_USES = 900
"""Programs that one interpreter runs; Bashkit refuses the 1,001st."""
_idle: "list[tuple[Bash, int]]" = []
"""Interpreters to reuse, and how many programs each has run. Creating one takes 1 ms, running a
program in it 0.2 ms."""


@dataclass(slots=True, frozen=True)
class _Usage:
    """Command-line syntax of a program."""

    with_value: str = ""
    """Letters of the options that take a value."""
    num_words: int = 0
    """Number of operands before the files; -1 if the program takes no files."""
    word_options: str = ""
    """Letters of the options that replace those operands."""
    reads_input: bool = True
    """Whether the program reads standard input when no file is given."""
    is_binary: bool = False
    """Whether the input is bytes rather than text."""


_PROGRAMS = {
    "sed": _Usage("efl", 1, "ef"),
    "awk": _Usage("Fvf", 1, "f"),
    "sort": _Usage("ktoST"),
    "uniq": _Usage("fsw"),
    "tr": _Usage(num_words=-1),
    "basename": _Usage(num_words=-1, reads_input=False),
    "dirname": _Usage(num_words=-1, reads_input=False),
    "seq": _Usage(num_words=-1, reads_input=False),
    "cut": _Usage("dfcb"),
    "expr": _Usage(num_words=-1, reads_input=False),
    "printf": _Usage(num_words=-1, reads_input=False),
    "factor": _Usage(num_words=-1, reads_input=False),
    "nl": _Usage("bvwsi"),
    "paste": _Usage("d"),
    "comm": _Usage(),
    "diff": _Usage("U"),
    "cmp": _Usage("n", is_binary=True),
    "rev": _Usage(),
    "tac": _Usage(),
    "fold": _Usage("w"),
    "split": _Usage("lba", is_binary=True),
    "strings": _Usage("n", is_binary=True),
    "od": _Usage("AjNtw", is_binary=True),
    "xxd": _Usage("clogs", is_binary=True),
    "expand": _Usage("t"),
    "unexpand": _Usage("t"),
    "cksum": _Usage(is_binary=True),
    "shuf": _Usage("n"),
}


@command(*_PROGRAMS)
async def text_program(ctx: CommandContext) -> int:
    """Run a filter with its POSIX options."""
    usage, arguments = _PROGRAMS[ctx.name], list(ctx.arguments)
    if any(map(_NOT_TEXT.search, arguments)):
        return ctx.fail(f"{ctx.name}: invalid argument")
    words, scripts, operands = _sorted_out(arguments, usage)
    stdin = b""
    is_filter = not operands or any(arguments[at] == "-" for at in operands)
    if is_filter and usage.reads_input and not (ctx.name == "awk" and _only_begins(words)):
        stdin = await ctx.read_all()
    files: dict[str, bytes] = {}
    for at in (*scripts, *operands):
        path = ctx.path(arguments[at])
        node = ctx.phone.files.find(path) if arguments[at] else None
        if node is not None and node.content is not None:
            files[path] = ctx.phone.files.read(path)
            if arguments[at].startswith("/"):
                arguments[at] = _FOLDER + path
    if len(stdin) + sum(map(len, files.values())) > _MAX_SIZE:
        raise OSError(12, "Cannot allocate memory")
    return await _run(ctx, [ctx.name, *arguments], files, stdin, usage.is_binary)


def _sorted_out(arguments: list[str], usage: _Usage) -> tuple[list[str], list[int], list[int]]:
    """Return the operands before the files, and the positions of `-f` files and other files."""
    words: list[str] = []
    scripts: list[int] = []
    operands: list[int] = []
    num_words, value_of, is_option = usage.num_words, "", True
    for at, argument in enumerate(arguments):
        if value_of:
            scripts += [at] if value_of in usage.word_options and value_of == "f" else []
            value_of = ""
        elif argument == "--" and is_option:
            is_option = False
        elif is_option and argument[:1] == "-" and len(argument) > 1:
            found = re.search(f"[{usage.with_value}]", argument) if usage.with_value else None
            if found is not None:
                num_words = 0 if found[0] in usage.word_options else num_words
                value_of = found[0] if found.end() == len(argument) else ""
        elif num_words:
            num_words -= 1
            words.append(argument)
        elif usage.word_options != "f" or not re.match(r"[A-Za-z_]\w*=", argument):
            operands.append(at)
    return words, scripts, operands


def _only_begins(words: list[str]) -> bool:
    """Return whether an awk program is only a BEGIN block, so that it reads no input."""
    program = re.sub(r'"(?:\\.|[^"\\])*+(?:"|\Z)', "", words[0] if words else "").strip()
    depth = 0
    for at, character in enumerate(program if program.startswith("BEGIN") else ""):
        depth += (character == "{") - (character == "}")
        if character == "}" and not depth:
            return not program[at + 1 :].strip()
    return False


async def _run(
    ctx: CommandContext, words: list[str], files: dict[str, bytes], stdin: bytes, is_binary: bool
) -> int:
    """Run a program in an interpreter and copy the files it writes back to the phone."""
    try:
        from bashkit import Bash
    except ImportError:
        return ctx.fail(f"{ctx.name}: the Python package bashkit is not installed here", 127)
    encode, decode = _codecs([*files.values(), stdin], is_binary)
    inputs = {path: encode(content) for path, content in files.items()}
    # Take the interpreter out of the pool while it runs: other phones may run programs too.
    bash, uses = _idle.pop() if _idle else (Bash(max_memory=_MAX_MEMORY), 0)
    folder = _FOLDER + ctx.environment["PWD"].rstrip("/")
    fs = bash.fs()
    for path in (folder, *(_FOLDER + path.rpartition("/")[0] for path in inputs)):
        fs.mkdir(path, recursive=True)
    for path, content in inputs.items():
        fs.write_file(_FOLDER + path, content)
    # A script that Bashkit refuses would leave the output of the previous program.
    for path, content in (("/stdin", encode(stdin)), ("/stdout", b""), ("/stderr", b"")):
        fs.write_file(path, content)
    variables = ""
    if any("ENVIRON" in word for word in words):
        exported = ((name, ctx.environment.get(name)) for name in sorted(ctx.shell.state.exported))
        variables = "".join(f"{n}={shlex.quote(v)} " for n, v in exported if v is not None)
    script = f"cd {shlex.quote(folder)}; {variables}{shlex.join(words)} </stdin >/stdout 2>/stderr"
    try:
        result = await bash.execute(script)
    # Without this, the thread would keep running after the client is gone.
    except asyncio.CancelledError:
        bash.cancel()
        raise
    ctx.out(decode(fs.read_file("/stdout")))
    errors = decode(fs.read_file("/stderr")).removeprefix(b"bash: line 1: ")
    if result.error:
        errors += f"{ctx.name}: {result.error}\n".encode()
    ctx.io.err(errors.replace(_FOLDER.encode(), b""))
    for path, content in _contents(fs, _FOLDER):
        path = path.removeprefix(_FOLDER)
        if inputs.get(path) != content:
            known = ctx.phone.files.find(path)
            ctx.phone.files.write(path, decode(content), mode=known.mode if known else 0o644)
    fs.remove(_FOLDER, recursive=True)
    if len(_idle) < _MAX_IDLE and uses + 1 < _MAX_USES:
        _idle.append((bash, uses + 1))
    await ctx.io.drain()
    # Toybox has a single exit code for all errors of these two.
    return int(result.exit_code > 0) if ctx.name in ("sed", "printf") else result.exit_code


def _codecs(
    contents: list[bytes], is_binary: bool
) -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
    """Return an encoder and a decoder; text that is not UTF-8 passes as Latin-1, byte for byte."""
    try:
        for content in contents if not is_binary else ():
            content.decode()
    except UnicodeDecodeError:
        return (
            lambda data: data.decode("latin-1").encode(),
            lambda data: data.decode("utf-8", "replace").encode("latin-1", "replace"),
        )
    return bytes, bytes


def _contents(fs: "FileSystem", folder: str) -> Iterable[tuple[str, bytes]]:
    """Yield the files below a folder and their contents."""
    for entry in fs.read_dir(folder):
        path = f"{folder}/{entry['name']}"
        if fs.stat(path)["file_type"] == "directory":
            yield from _contents(fs, path)
        else:
            yield path, fs.read_file(path)
