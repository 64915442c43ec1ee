"""Programs that examine files: stat, du, readlink, realpath."""

import posixpath
import re
import stat
import time

from virtual_phone.commands.command_options import number_of, split_options
from virtual_phone.commands.command_table import command
from virtual_phone.commands.toybox.file_commands import each, human_size, size_of
from virtual_phone.shell.command_context import CommandContext

_TYPES = {
    stat.S_IFDIR: "directory", stat.S_IFREG: "regular file", stat.S_IFLNK: "symbolic link",
    stat.S_IFCHR: "character device",
}  # fmt: skip


def children_of(ctx: CommandContext, path: str) -> list[str]:
    """Return the paths in a folder, relative or absolute like `path`."""
    names = ctx.phone.files.names(ctx.path(path))
    return [f"{path.rstrip('/')}/{name}" if path != "/" else f"/{name}" for name in names]


@command("stat")
def stat_(ctx: CommandContext) -> int:
    """`stat [-L] [-c FORMAT] paths`."""
    options, paths = split_options(ctx, "Lc:")
    form = options.get("c") or (
        "  File: %N\n  Size: %s\t Blocks: %b\t IO Blocks: 512\t%F\nAccess: (0%a/%A)\tUid: "
        "( 2000/   shell)\tGid: ( 2000/   shell)\nModify: %y"
    )

    def show(name: str) -> None:
        node = ctx.phone.files.stat(ctx.path(name), follow="L" in options)
        kind = _TYPES.get(stat.S_IFMT(node.mode), "regular file")
        shown = f"{name} -> '{node.target}'" if node.is_link else name
        empty = "regular empty file" if node.content == b"" else kind
        when = time.strftime("%Y-%m-%d %H:%M:%S.000000000 +0000", time.gmtime(node.mtime))
        known = {
            "n": name, "N": shown, "s": str(size_of(node)), "F": empty, "y": when,
            "a": f"{stat.S_IMODE(node.mode):o}", "A": stat.filemode(node.mode), "U": "shell",
            "Y": str(node.mtime), "G": "shell", "u": "2000", "g": "2000", "h": "1",
            "b": str(-(-size_of(node) // 512)), "B": "512", "f": f"{node.mode:x}", "%": "%",
        }  # fmt: skip
        ctx.print(re.sub("%(.)", lambda found: known.get(found[1], found[0]), form))

    return each(ctx, paths, show, spelled=True)


@command("du")
def du(ctx: CommandContext) -> int:
    """`du [-sahkmb] [-d depth] [paths]`: sizes in blocks of 1024 bytes."""
    options, paths = split_options(ctx, "ahbkmsd:")
    most = 0 if "s" in options else number_of(options.get("d")) or 1000

    def show(num_bytes: int, path: str) -> None:
        unit = 1 if "b" in options else 1 << 20 if "m" in options else 1024
        shown = human_size(num_bytes) if "h" in options else str(-(-num_bytes // unit))
        ctx.print(f"{shown}\t{path}")

    def measure(path: str, depth: int) -> int:
        node = ctx.phone.files.stat(ctx.path(path), follow=False)
        size = len(node.content) if node.content is not None else 0 if "b" in options else 4096
        if "b" not in options:
            size = 0 if node.is_link else -(-size // 4096) * 4096
        if node.is_folder:
            size += sum(measure(child, depth + 1) for child in children_of(ctx, path))
        if depth <= most and (node.is_folder or "a" in options or not depth):
            show(size, path)
        return size

    return each(ctx, paths or ["."], lambda path: measure(path, 0), spelled=True)


@command("realpath", "readlink")
def readlink(ctx: CommandContext) -> int:
    """`readlink links`: their targets; `readlink -f|-e|-m paths`, `realpath paths`."""
    options, words = split_options(ctx, "efmnq")
    if not words:
        return ctx.fail(f"{ctx.name}: Needs 1 argument")
    files, code = ctx.phone.files, 0
    is_canonical = ctx.name == "realpath" or not options.keys().isdisjoint("efm")
    for path in words:
        try:
            if is_canonical:
                found = files.resolve(ctx.path(path))
                if "m" not in options:
                    files.stat(posixpath.dirname(found) if "f" in options else found)
            else:
                node = files.stat(ctx.path(path), follow=False)
                if not node.is_link:
                    raise OSError(22, "Invalid argument")
                found = node.target
        except OSError as error:
            code = 1
            if ctx.name == "realpath" and "q" not in options:
                ctx.fail(f"realpath: {path}: {error.strerror}")
            continue
        ctx.out((found + "\n" * ("n" not in options)).encode("utf-8", "surrogateescape"))
    return code
