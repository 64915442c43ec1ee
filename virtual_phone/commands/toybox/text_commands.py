"""Frequently used text programs: echo, head, tail, wc, tee, base64."""

import asyncio
import base64
import re
from collections import Counter
from collections.abc import AsyncIterator, Collection

from virtual_phone.commands.command_options import number_of, split_options
from virtual_phone.commands.command_table import command
from virtual_phone.commands.toybox.file_commands import contents_of
from virtual_phone.shell.command_context import CommandContext, UsageError
from virtual_phone.shell.lexer import C_ESCAPES

_SLICE_BYTES = 1 << 16
_ESCAPE = re.compile(r"\\(0[0-7]{0,3}|x[0-9a-fA-F]{1,2}|[\s\S])")


async def sliced_lines(content: bytes) -> AsyncIterator[list[str]]:
    """Yield lines in batches, giving the other phones of the process a turn between batches."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start + _SLICE_BYTES) + 1 or len(content)
        text = content[start:end].decode("utf-8", "surrogateescape")
        yield text.removesuffix("\n").split("\n")
        if (start := end) < len(content):
            await asyncio.sleep(0)


def _title(ctx: CommandContext, options: Collection[str], path: str, number: int, of: int) -> None:
    """Print the header line that head and tail show above each of several files."""
    if "v" in options or (of > 1 and "q" not in options):
        ctx.print(f"{chr(10) * bool(number)}==> {path} <==")


@command("echo")
def echo(ctx: CommandContext) -> int:
    """`echo [-neE] words`; like mksh, it interprets escapes unless `-E` is given."""
    words, newline, escapes = list(ctx.arguments), True, True
    while words and re.fullmatch(r"-[neE]+", words[0]):
        for option in words.pop(0)[1:]:
            newline, escapes = (
                newline and option != "n",
                escapes if option == "n" else option == "e",
            )
    text = " ".join(words)
    if escapes and "\\" in text:
        text, end, _ = text.partition("\\c")
        newline = newline and not end
        text = _ESCAPE.sub(_meaning, text)
    ctx.out((text + "\n" * newline).encode("utf-8", "surrogateescape"))
    return 0


def _meaning(found: re.Match[str]) -> str:
    r"""Return the character for an escape such as `\n`, `\0101` or `\x41`."""
    escaped = found[1]
    if escaped[0] == "0":
        return chr(int(escaped, 8) & 0xFF)
    is_hexadecimal = escaped[0] == "x" and len(escaped) > 1
    return chr(int(escaped[1:], 16)) if is_hexadecimal else C_ESCAPES.get(escaped, found[0])


@command("head")
async def head(ctx: CommandContext) -> int:
    """`head [-n count | -count | -c bytes] [files]`; it stops reading once it has enough."""
    ctx.arguments = _spelled_out(ctx.arguments)
    options, files = split_options(ctx, "c:n:qv")
    bytes_wanted = _count(options["c"]) if "c" in options else None
    lines_wanted = _count(options.get("n", "10"))
    if files:
        size = 1 << 20 if bytes_wanted is None else min(bytes_wanted, 1 << 28)
        contents = await contents_of(ctx, files, size)
        for number, (path, content) in enumerate(contents):
            _title(ctx, options, path, number, len(files))
            ctx.out(_start(content, lines_wanted, bytes_wanted))
        return int(len(contents) < len(files))
    read = b""
    while chunk := await ctx.io.read():
        read += chunk
        enough = read.count(b"\n") >= lines_wanted if bytes_wanted is None else False
        if enough or len(read) >= (bytes_wanted or 1 << 24):
            break
    start = _start(read, lines_wanted, bytes_wanted)
    ctx.out(start)
    ctx.io.read.put_back(read[len(start) :])
    return 0


@command("tail")
async def tail(ctx: CommandContext) -> int:
    """`tail [-n [+]count | -count | -c [+]bytes] [files]`."""
    ctx.arguments = _spelled_out(ctx.arguments)
    options, files = split_options(ctx, "c:n:qv")
    contents = await contents_of(ctx, files)
    wanted = options.get("c", options.get("n", "10"))
    count = _count(wanted.lstrip("+-"))
    for number, (path, content) in enumerate(contents):
        _title(ctx, options, path, number, len(files))
        if "c" in options:
            at = count - 1 if wanted.startswith("+") else len(content) - count
        elif wanted.startswith("+"):
            at = len(_start(content, count - 1, None))
        else:
            at = len(content) - bool(content.endswith(b"\n"))
            for _ in range(count):
                at = content.rfind(b"\n", 0, at) if at > 0 else at
            at = at + 1 if count and at >= 0 and content[at : at + 1] == b"\n" else at
            at = len(content) if not count else at
        ctx.out(memoryview(content)[max(0, at) :])
        await ctx.io.drain()
    return int(len(contents) < len(files))


@command("wc")
async def wc(ctx: CommandContext) -> int:
    """`wc [-l] [-w] [-c] [-m] [files]`."""
    options, files = split_options(ctx, "clmw")
    columns = [letter for letter in "lwcm" if letter in options] or list("lwc")
    contents = await contents_of(ctx, files)
    total: Counter[str] = Counter()
    rows: list[tuple[Counter[str], str]] = []
    for path, content in contents:
        counts = Counter({"l": content.count(b"\n"), "c": len(content)})
        if "w" in columns:
            slices = sliced_lines(content)
            counts["w"] = sum([len(line.split()) async for lines in slices for line in lines])
        if "m" in columns:
            counts["m"] = len(content.decode("utf-8", "replace"))
        rows.append((counts, path))
        total += counts
    if len(files) > 1:
        rows.append((total, "total"))
    is_short = len(files) == 1 or len(columns) == len(rows) == 1
    for counts, path in rows:
        numbers = [f"{counts[letter]:>{0 if is_short else 7}}" for letter in columns]
        ctx.print(" ".join([*numbers, path] if path else numbers))
    return int(len(contents) < len(files))


@command("tee")
async def tee(ctx: CommandContext) -> int:
    """`tee [-a] files`: copy standard input to standard output and to files."""
    options, paths = split_options(ctx, "ai")
    files, chunks, num_bytes = ctx.phone.files, list[bytes](), 0
    kept: dict[str, bytes] = {}
    for path in map(ctx.path, paths):
        kept[path] = files.read(path) if "a" in options and files.find(path) else b""
        files.write(path, kept[path])
    try:
        while chunk := await ctx.io.read():
            ctx.out(chunk)
            chunks += [chunk] if kept else []
            num_bytes += len(chunk) * len(kept)
            if num_bytes > files.num_free:
                raise OSError(28, "No space left on device")
            await ctx.io.drain()
    finally:
        for path, content in kept.items():
            files.write(path, content + b"".join(chunks))
    return 0


def _spelled_out(arguments: list[str]) -> list[str]:
    """Normalize `-5` to `-n5`."""
    return [re.sub(r"^-(\d+)$", r"-n\1", argument) for argument in arguments]


def _count(text: str) -> int:
    count = number_of(text)
    if count is None:
        raise UsageError(f"not integer: {text[:100]}")
    return count


def _start(content: bytes, num_lines: int, num_bytes: int | None) -> bytes:
    if num_bytes is not None:
        return content[:num_bytes]
    return b"".join(content.splitlines(keepends=True)[:num_lines])


@command("base64")
async def base64_(ctx: CommandContext) -> int:
    """`base64 [-d] [-w columns] [file]`."""
    options, paths = split_options(ctx, "dw:")
    content = ctx.phone.files.read(ctx.path(paths[0])) if paths else await ctx.read_all()
    if "d" in options:
        letters = bytes(c for c in content if not chr(c).isspace())
        ctx.out(base64.b64decode(letters + b"=" * (-len(letters) % 4)))
        return 0
    text, columns = base64.b64encode(content).decode(), number_of(options.get("w", "76")) or 0
    lines = [text[at : at + columns] for at in range(0, len(text), columns)] if columns else [text]
    ctx.out(("\n".join(lines) + "\n" * bool(columns and text)).encode())
    return 0
