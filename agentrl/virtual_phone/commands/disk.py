"""Commands for file metadata, checksums and disk usage: stat, md5sum, base64, du, df."""

import base64
import hashlib
import stat as modes

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.file_commands import each, size_of
from agentrl.virtual_phone.commands.text_commands import split_options
from agentrl.virtual_phone.shell.command_context import CommandContext

_NOMINAL = 64 << 30


@command("stat")
def stat(call: CommandContext) -> int:
    """`stat [-c FORMAT] paths`, FORMAT of %n, %s, %Y, %a and %F."""
    options, paths = split_options(call, "c")
    form = options.get("c", "  File: %n\n  Size: %s\n  Mode: %a\nModify: %Y")

    def show(path: str) -> None:
        node = call.phone.files.find(path)
        if node is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        kind = "directory" if node.is_folder else "regular file"
        text = form
        for letter, value in (
            ("%s", str(size_of(node))),
            ("%Y", str(node.mtime)),
            ("%a", f"{modes.S_IMODE(node.mode):o}"),
            ("%F", kind),
            ("%n", path),
        ):
            text = text.replace(letter, value)
        call.say(text)

    return each(call, paths, show)


@command("md5sum", "sha1sum", "sha256sum")
async def md5sum(call: CommandContext) -> int:
    """`md5sum [files]`."""
    name = call.name.removesuffix("sum")
    paths = split_options(call, "")[1]

    def show(content: bytes, path: str) -> None:
        call.say(f"{hashlib.new(name, content, usedforsecurity=False).hexdigest()}  {path}")

    if not paths:
        show(await call.read_all(), "-")
    read = call.phone.files.read
    return each(call, paths, lambda path: show(read(path), path))


@command("base64")
async def base64_(call: CommandContext) -> int:
    """`base64 [-d] [file]`."""
    options, paths = split_options(call, "w")
    content = call.phone.files.read(call.path(paths[0])) if paths else await call.read_all()
    if "d" not in options:
        call.out(base64.encodebytes(content))
        return 0
    try:
        call.out(base64.b64decode(content))
    except ValueError:
        return call.fail("base64: bad input")
    return 0


@command("du")
def du(call: CommandContext) -> int:
    """`du [-s] [paths]`: disk usage of folders, in blocks of 1024 bytes."""
    everything = call.phone.files.all()

    def show(path: str) -> None:
        inside = f"{path.rstrip('/')}/"
        used = sum(size_of(n) for p, n in everything if p == path or p.startswith(inside))
        call.say(f"{-(-used // 1024)}\t{path}")

    return each(call, split_options(call, "d")[1] or ["."], show)


@command("df")
def df(call: CommandContext) -> int:
    """`df [-h] [paths]`: free space, in blocks of 1024 bytes."""
    options, _ = split_options(call, "")
    files = call.phone.files
    # Unless a fault limits the space, report the size of a real phone: the actual capacity is
    # what this process can spare, and nothing should warn of that.
    total = files.capacity if files.is_scarce else _NOMINAL
    used = files.capacity - files.num_free
    numbers = (total, used, total - used)
    shown = [f"{n / 1e6:.1f}M" if "h" in options else str(n // 1024) for n in numbers]
    share = -(-100 * used // max(1, total))
    call.say("Filesystem       1K-blocks      Used Available Use% Mounted on")
    columns = " ".join(f"{text:>9}" for text in shown)
    return call.say(f"/dev/block/dm-5  {columns} {share:>3}% /data")
