"""Commands for files: cat, ls, ln, rm, mkdir, rmdir, cp, mv, touch, chmod, md5sum, df."""

import asyncio
import hashlib
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence

from virtual_phone.commands.command_options import split_options
from virtual_phone.commands.command_table import command
from virtual_phone.shell.command_context import CommandContext
from virtual_phone.system.file_system import FileNode

_CHUNK = 1 << 20
_BLOCK = 4096
_SYSTEM_BYTES = 2 << 30
_MOUNTS = {
    "/": "/dev/block/dm-0",
    "/dev": "tmpfs",
    "/data": "/dev/block/dm-5",
    "/storage/emulated": "/dev/fuse",
}
"""Devices by mount point."""


def each(
    ctx: CommandContext,
    paths: Sequence[str],
    act: Callable[[str], object],
    *,
    spelled: bool = False,
) -> int:
    """Apply a function to every path; print an error for each path that fails."""
    code = 0
    for path in paths:
        try:
            act(path if spelled else ctx.path(path))
        except OSError as error:
            code = ctx.fail(f"{ctx.name}: {path}: {error.strerror}")
    return code


async def contents_of(
    ctx: CommandContext, paths: Sequence[str], size: int = 1 << 28
) -> list[tuple[str, bytes]]:
    """Read files, or standard input if there are none; print an error for each that fails."""
    if not paths:
        return [("", await ctx.read_all())]
    contents: list[tuple[str, bytes]] = []
    for path in paths:
        try:
            contents.append((path, ctx.phone.files.read(ctx.path(path), size)))
        except OSError as error:
            ctx.fail(f"{ctx.name}: {path}: {error.strerror}")
    return contents


@command("cat")
async def cat(ctx: CommandContext) -> int:
    """`cat [files]`; `-` is standard input."""
    code = 0
    for path in split_options(ctx, "u")[1] or ["-"]:
        if path == "-":
            while chunk := await ctx.io.read():
                ctx.out(chunk)
                await ctx.io.drain()
            continue
        contents = await contents_of(ctx, [path], _CHUNK)
        code |= not contents
        for _, content in contents:
            for start in range(0, len(content), _CHUNK):
                ctx.out(memoryview(content)[start : start + _CHUNK])
                await ctx.io.drain()
    return code


@command("ls")
def ls(ctx: CommandContext) -> int:
    """`ls [-lnhaAdRpFLrtS1] [paths]`, one name per line; names are sorted."""
    options, paths = split_options(ctx, "1ACFLRSadhlnprt")
    files, is_long = ctx.phone.files, not options.keys().isdisjoint("ln")
    folders: list[str] = []

    def entry(name: str, node: FileNode) -> None:
        shown = f"{name} -> {node.target}" if node.is_link and is_long else name
        shown += "/" * (("p" in options or "F" in options) and node.is_folder)
        shown += "@" * ("F" in options and node.is_link)
        ctx.print(_line(shown, node, options) if is_long else shown)

    def sort_out(path: str) -> None:
        follow = options.keys().isdisjoint("dFln") or "L" in options or path.endswith("/")
        full = ctx.path(path)
        # For a dangling link, list the link itself.
        node = files.find(files.resolve(full)) if follow else None
        node = node or files.stat(full, follow=False)
        if node.is_folder and "d" not in options:
            folders.append(path)
        else:
            entry(path, node)

    def show(path: str) -> None:
        full = files.resolve(ctx.path(path))
        names = [n for n in files.names(full) if n[0] != "." or "a" in options or "A" in options]
        if len(paths) > 1 or "R" in options:
            ctx.print(f"{path}:")
        if is_long:
            ctx.print(f"total {len(names) * _BLOCK // 1024}")
        names = [".", "..", *names] if "a" in options else names
        found = [(name, files.find(f"{full}/{name}", follow="L" in options)) for name in names]
        listed = [(name, node) for name, node in found if node is not None]
        if "t" in options:
            listed.sort(key=lambda pair: -pair[1].mtime)
        elif "S" in options:
            listed.sort(key=lambda pair: -size_of(pair[1]))
        for name, inside in reversed(listed) if "r" in options else listed:
            entry(name, inside)
            if inside.is_folder and "R" in options and name.strip("."):
                folders.append(f"{path.rstrip('/')}/{name}")

    code = each(ctx, paths or ["."], sort_out, spelled=True)
    for number, path in enumerate(folders):  # grows during the loop
        ctx.out(b"\n" if number else b"")
        show(path)
    return code


@command("ln")
def ln(ctx: CommandContext) -> int:
    """`ln -s [-fnTv] targets [link]`; `link` is a path or a folder.

    As on a real phone, the shell may not create hard links.
    """
    options, words = split_options(ctx, "Tfnsv")
    if not words:
        return ctx.fail("ln: Needs 1 argument")
    targets, goal = (words[:-1], words[-1]) if len(words) > 1 else (words, ".")
    files, kind = ctx.phone.files, "symbolic" if "s" in options else "hard"
    node = files.find(ctx.path(goal), follow="n" not in options)
    is_folder = node is not None and node.is_folder and "T" not in options
    code = 0
    for target in targets:
        link = f"{goal.rstrip('/')}/{target.rstrip('/').rpartition('/')[2]}" if is_folder else goal
        try:
            if kind == "hard":
                raise PermissionError(13, "Permission denied")
            if "f" in options and files.find(ctx.path(link), follow=False) is not None:
                files.remove(ctx.path(link))
            files.make_link(ctx.path(link), target)
        except OSError as error:
            failed = f"cannot create {kind} link from '{target}' to '{link}': {error.strerror}"
            code = ctx.fail(f"ln: {failed}")
            continue
        if "v" in options:
            ctx.fail(f"'{link}' -> '{target}'")
    return code


@command("rm")
def rm(ctx: CommandContext) -> int:
    """`rm [-r] [-f] paths`."""
    options, paths = split_options(ctx, "Rfrv")
    files = ctx.phone.files

    def remove(path: str) -> None:
        if files.find(path, follow=False) is not None or "f" not in options:
            files.remove(path, recursive="r" in options or "R" in options)

    return each(ctx, paths, remove)


@command("mkdir")
def mkdir(ctx: CommandContext) -> int:
    """`mkdir [-p] paths`."""
    options, paths = split_options(ctx, "m:pv")
    files = ctx.phone.files
    return each(ctx, paths, files.make_folders if "p" in options else files.make_folder)


@command("rmdir")
def rmdir(ctx: CommandContext) -> int:
    """`rmdir paths`: remove empty folders."""
    files = ctx.phone.files

    def remove(path: str) -> None:
        if not files.stat(path, follow=False).is_folder:
            raise NotADirectoryError(20, "Not a directory")
        if files.names(path):
            raise OSError(39, "Directory not empty")
        files.remove(path, recursive=True)

    return each(ctx, split_options(ctx, "p")[1], remove)


@command("cp", "mv")
def cp(ctx: CommandContext) -> int:
    """`cp [-r] paths target`, `mv paths target`; the target is a file or a folder."""
    options, paths = split_options(ctx, "HLPRadfnprv")
    if len(paths) < 2:
        return ctx.fail(f"{ctx.name}: Needs 2 arguments")
    files, goal = ctx.phone.files, ctx.path(paths[-1])
    node = files.find(goal)
    takes_folders = ctx.name == "mv" or not {"r", "R", "a"}.isdisjoint(options)
    keeps_links = "L" not in options and (takes_folders or not {"d", "P"}.isdisjoint(options))

    def copy(path: str, target: str) -> None:
        # Copying a folder into itself would never end.
        if target == path or target.startswith(f"{path}/"):
            raise OSError(22, "into itself")
        source = files.stat(path, follow=not keeps_links)
        if source.is_link:
            if files.find(target, follow=False) is not None:
                files.remove(target)
            files.make_link(target, source.target)
        elif source.is_folder and takes_folders:
            files.make_folders(target)
            for name in files.names(path):
                copy(f"{path}/{name}", f"{target}/{name}")
        else:
            files.write(target, files.read(path), mode=source.mode)

    def act(path: str) -> None:
        is_inside = node is not None and node.is_folder
        copy(path, f"{goal.rstrip('/')}/{path.rpartition('/')[2]}" if is_inside else goal)
        if ctx.name == "mv":
            files.remove(path, recursive=True)

    return each(ctx, paths[:-1], act)


@command("touch")
def touch(ctx: CommandContext) -> int:
    """`touch paths`: create empty files."""
    files = ctx.phone.files

    def make(path: str) -> None:
        if files.find(path) is None:
            files.write(path, b"")

    return each(ctx, split_options(ctx, "acd:hmr:t:")[1], make)


@command("chmod")
def chmod(ctx: CommandContext) -> int:
    """`chmod MODE paths`: MODE is octal, or symbolic as in `u+x,go-w`."""
    words = [word for word in ctx.arguments if not re.fullmatch("-[Rfv]+", word)]
    if len(words) < 2:
        return ctx.fail("chmod: Needs 2 arguments")
    # -R changes only the folder: the shell owns all files, so permissions restrict nothing.
    mode, files = words[0], ctx.phone.files

    def change(path: str) -> None:
        node = files.stat(path)
        if all(digit in "01234567" for digit in mode) and len(mode) <= 4:
            node.mode = stat.S_IFMT(node.mode) | int(mode, 8)
        else:
            _change_mode(node, mode)

    return each(ctx, words[1:], change)


def _change_mode(node: FileNode, mode: str) -> None:
    """Apply a symbolic mode."""
    for clause in mode.split(","):
        found = re.fullmatch(r"([ugoa]*)([-+=])([rwxX]*)", clause)
        if found is None:
            raise OSError(22, f"bad mode '{mode[:50]}'")
        who, verb, letters = found.groups()
        bits = sum({"r": 0o444, "w": 0o222, "x": 0o111, "X": 0o111}[c] for c in set(letters))
        mask = 0o777 if not who or "a" in who else 0
        mask |= sum({"u": 0o700, "g": 0o070, "o": 0o007, "a": 0}[c] for c in set(who))
        if verb != "+":
            node.mode &= ~((bits if verb == "-" else 0o777) & mask)
        if verb != "-":
            node.mode |= bits & mask


def size_of(node: FileNode) -> int:
    """Return the size of a file or folder in bytes."""
    return _BLOCK if node.content is None else len(node.content)


def _line(name: str, node: FileNode, options: Mapping[str, str]) -> str:
    """Format a line of `ls -l`."""
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(node.mtime))
    owner = "2000 2000" if "n" in options else "shell shell"
    size = human_size(size_of(node)) if "h" in options else str(size_of(node))
    return f"{stat.filemode(node.mode)} 1 {owner} {size:>8} {when} {name}"


@command("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum")
async def md5sum(ctx: CommandContext) -> int:
    """`md5sum [files]`."""
    name = ctx.name.removesuffix("sum")
    paths = split_options(ctx, "b")[1]
    contents = await contents_of(ctx, paths)
    for path, content in contents:
        ctx.print(f"{await _digest(name, content)}  {path or '-'}")
    return int(len(contents) < len(paths))


async def _digest(name: str, content: bytes) -> str:
    """Compute the digest of a file, yielding to other phones between chunks."""
    digest = hashlib.new(name, usedforsecurity=False)
    for start in range(0, len(content), _CHUNK):
        digest.update(memoryview(content)[start : start + _CHUNK])
        await asyncio.sleep(0)
    return digest.hexdigest()


@command("df")
def df(ctx: CommandContext) -> int:
    """`df [-hk] [paths]`: sizes in blocks of 1024 bytes."""
    options, paths = split_options(ctx, "Phk")
    is_human, files = "h" in options, ctx.phone.files
    size = "     Size" if is_human else "1K-blocks"
    ctx.print(f"Filesystem       {size}      Used Available Use% Mounted on")

    def show(mount: str) -> None:
        total, free = files.capacity, files.num_free
        if mount in ("/", "/dev"):
            total, free = (_SYSTEM_BYTES, 0) if mount == "/" else (total // 2, total // 2)
        numbers = (total, total - free, free)
        shown = [human_size(n) if is_human else str(n // 1024) for n in numbers]
        share = f"{-(-100 * (total - free) // max(1, total))}%"
        columns = " ".join(f"{text:>9}" for text in shown)
        ctx.print(f"{_MOUNTS[mount]:<16} {columns} {share:>4} {mount}")

    def show_of(path: str) -> None:
        files.stat(path)
        path = f"{files.resolve(path)}/"
        path = "/storage/emulated/" if path.startswith("/sdcard/") else path
        show(max((m for m in _MOUNTS if path.startswith(f"{m.rstrip('/')}/")), key=len))

    if paths:
        return each(ctx, paths, show_of)
    for mount in _MOUNTS:
        show(mount)
    return 0


def human_size(num_bytes: float) -> str:
    """Format a size like toybox: `512`, `1.5K`, `12G`."""
    unit = 0
    while num_bytes >= 1000 and unit < 4:
        num_bytes, unit = num_bytes / 1024, unit + 1
    digits = 1 if unit and num_bytes < 10 else 0
    return f"{num_bytes:.{digits}f}{' KMGT'[unit].strip()}"
