"""Text filters: head, tail, wc, cut, sort."""

import asyncio
import heapq
import re
from collections import Counter
from collections.abc import AsyncIterator
from itertools import groupby, islice

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.interpreter import MAX_IN_MEMORY, CommandContext

_MAX_FIELDS = 10_000
_SLICE_BYTES = 1 << 16
_SLICE_LINES = 10_000
_RANGE = re.compile(r"(\d{0,9})(-?)(\d{0,9})")


async def read_lines(ctx: CommandContext, paths: list[str]) -> AsyncIterator[list[str]]:
    """The lines of files, or of standard input if there are none, as `sliced_lines`.

    Raises:
        OSError: a file cannot be read, or there is too much to hold in memory.
    """
    contents = [ctx.phone.files.read(ctx.path(path)) for path in paths]
    if sum(map(len, contents)) > MAX_IN_MEMORY:
        raise OSError(12, "Cannot allocate memory")
    for content in contents if paths else [await ctx.read_all()]:
        async for lines in sliced_lines(content):
            yield lines


async def sliced_lines(content: bytes) -> AsyncIterator[list[str]]:
    """Lines, some thousands at a time; the other phones of the process have their turn between."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start + _SLICE_BYTES) + 1 or len(content)
        text = content[start:end].decode("utf-8", "surrogateescape")
        yield text.removesuffix("\n").split("\n")
        if (start := end) < len(content):
            await asyncio.sleep(0)


def split_options(ctx: CommandContext, with_value: str) -> tuple[dict[str, str], list[str]]:
    """Split the arguments into options by letter and other words.

    Args:
        ctx: invocation of the command.
        with_value: letters of options with a value, in the same word or the next.
    """
    options: dict[str, str] = {}
    words: list[str] = []
    arguments = iter(ctx.arguments)
    for argument in arguments:
        if argument == "--":
            return options, [*words, *arguments]
        if len(argument) < 2 or argument[0] != "-":
            words.append(argument)
            continue
        for at, letter in enumerate(argument[1:], 2):
            options[letter] = ""
            if letter in with_value:
                options[letter] = argument[at:] or next(arguments, "")
                break
    return options, words


@command("head")
async def head(ctx: CommandContext) -> int:
    """`head [-n count | -count | -c bytes] [files]`; it stops reading when it has enough."""
    ctx.arguments = _spelled_out(ctx.arguments)
    options, files = split_options(ctx, "nc")
    bytes_wanted = _count(options["c"]) if "c" in options else None
    lines_wanted = _count(options.get("n", "10"))
    if files:
        size = 1 << 20 if bytes_wanted is None else min(bytes_wanted, 1 << 28)
        content = b"".join(ctx.phone.files.read(ctx.path(file), size) for file in files)
        ctx.out(_start(content, lines_wanted, bytes_wanted))
        return 0
    read = b""
    while chunk := await ctx.io.read():
        read += chunk
        enough = read.count(b"\n") >= lines_wanted if bytes_wanted is None else False
        if enough or len(read) >= (bytes_wanted or 1 << 24):
            break
    ctx.out(_start(read, lines_wanted, bytes_wanted))
    return 0


@command("tail")
async def tail(ctx: CommandContext) -> int:
    """`tail [-n count | -count | -c bytes] [files]`."""
    ctx.arguments = _spelled_out(ctx.arguments)
    options, files = split_options(ctx, "nc")
    if "c" in options:
        count = _count(options["c"])
        lines = [line async for some in read_lines(ctx, files) for line in some]
        content = "\n".join(lines).encode("utf-8", "surrogateescape")
        ctx.out(content[len(content) - min(count, len(content)) :])
        return 0
    lines = [line async for some in read_lines(ctx, files) for line in some]
    start = options.get("n", "10")
    first = _count(start[1:]) - 1 if start.startswith("+") else max(0, len(lines) - _count(start))
    for line in lines[max(0, first) :]:
        ctx.print(line)
    return 0


@command("wc")
async def wc(ctx: CommandContext) -> int:
    """`wc [-l] [-w] [-c] [files]`."""
    options, files = split_options(ctx, "")
    columns = [letter for letter in "lwc" if letter in options] or list("lwc")
    contents = [(ctx.phone.files.read(ctx.path(file)), f" {file}") for file in files]
    for content, name in contents or [(await ctx.read_all(), "")]:
        counts = {"l": content.count(b"\n"), "c": len(content)}
        if "w" in columns:
            slices = sliced_lines(content)
            counts["w"] = sum([len(line.split()) async for lines in slices for line in lines])
        numbers = [str(counts[letter]) for letter in columns]
        ctx.print(" ".join(numbers if len(columns) == 1 else (f"{n:>7}" for n in numbers)) + name)
    return 0


@command("cut")
async def cut(ctx: CommandContext) -> int:
    """`cut -d X -f LIST | -c LIST [files]`, LIST as in `1,3-5`."""
    options, files = split_options(ctx, "dfcb")
    indices = _indices(options.get("f") or options.get("c") or options.get("b") or "")
    if not indices:
        return ctx.fail("cut: needs one of -f, -c or -b")
    separator = options.get("d", "\t")[:1] if "f" in options else ""

    def cut_line(line: str) -> str:
        if separator and separator not in line:
            return line
        pieces = line.split(separator) if separator else list(line)
        return separator.join(pieces[i] for i in indices if i < len(pieces))

    async for lines in read_lines(ctx, files):
        ctx.print("\n".join(map(cut_line, lines)))
        await ctx.io.drain()
    return 0


@command("sort")
async def sort(ctx: CommandContext) -> int:
    """`sort [-n] [-r] [-u] [files]`."""
    options, files = split_options(ctx, "kt")
    key, reverse = _leading_number if "n" in options else None, "r" in options
    runs = [sorted(lines, key=key, reverse=reverse) async for lines in read_lines(ctx, files)]
    ordered = iter(runs[0]) if len(runs) == 1 else heapq.merge(*runs, key=key, reverse=reverse)
    if "u" in options:
        ordered = (line for line, _ in groupby(ordered))
    while lines := list(islice(ordered, _SLICE_LINES)):
        ctx.print("\n".join(lines))
        await ctx.io.drain()
        await asyncio.sleep(0)
    return 0


def _spelled_out(arguments: list[str]) -> list[str]:
    """Normalize `-5` to `-n5`."""
    return [re.sub(r"^-(\d+)$", r"-n\1", argument) for argument in arguments]


def _count(text: str) -> int:
    return int(text[-9:]) if text.isascii() and text.isdecimal() else 0


def _start(content: bytes, num_lines: int, num_bytes: int | None) -> bytes:
    if num_bytes is not None:
        return content[:num_bytes]
    return b"".join(content.splitlines(keepends=True)[:num_lines])


def _leading_number(line: str) -> tuple[float, str]:
    found = re.match(r"\s*-?\d{1,15}(\.\d{1,9})?", line)
    return (float(found[0]) if found else 0.0), line


def _indices(text: str) -> list[int]:
    """The positions, from 0, that a list such as `1,3-5` selects."""
    indices: Counter[int] = Counter()
    for piece in text.split(",")[:100]:
        found = _RANGE.fullmatch(piece)
        if found is None or not (found[1] or found[3]):
            return []
        first = int(found[1] or 1)
        last = int(found[3] or _MAX_FIELDS) if found[2] else first
        indices.update(range(max(0, first - 1), min(last, _MAX_FIELDS)))
    return sorted(indices)
