"""tar and gzip."""

import bz2
import gzip
import io
import lzma
import posixpath
import stat
import tarfile
from collections.abc import Callable, Sequence

from virtual_phone.commands.command_table import command, split_options
from virtual_phone.commands.toybox.file_commands import each
from virtual_phone.shell.interpreter import CommandContext

_MAX_SIZE = 64 << 20
_COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "z": gzip.compress,
    "j": bz2.compress,
    "J": lzma.compress,
}


@command("tar")
async def tar(ctx: CommandContext) -> int:
    """`tar -c|-x|-t [-zjv] [-f ARCHIVE] [-C FOLDER] [paths]`."""
    if ctx.arguments and ctx.arguments[0][:1] != "-":
        ctx.arguments[0] = "-" + ctx.arguments[0]
    options, paths = split_options(ctx, "fC")
    verbs = [verb for verb in "cxt" if verb in options]
    if len(verbs) != 1:
        return ctx.fail("tar: Needs -c, -x or -t")
    archive, folder = options.get("f", "-"), ctx.path(options.get("C", "."))
    compress = next((_COMPRESSORS[o] for o in _COMPRESSORS if o in options), bytes)
    if verbs == ["c"]:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:") as written:
            code = max([_pack(ctx, written, folder, path, "v" in options) for path in paths] or [1])
        if archive == "-":
            ctx.out(compress(buffer.getvalue()))
        else:
            ctx.phone.files.write(ctx.path(archive), compress(buffer.getvalue()))
        return code
    content = await ctx.read_all() if archive == "-" else ctx.phone.files.read(ctx.path(archive))
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as packed:
            return _unpack(ctx, packed, folder, paths, options)
    except (tarfile.TarError, EOFError, ValueError):
        return ctx.fail("tar: bad archive")


def _pack(
    ctx: CommandContext, archive: tarfile.TarFile, folder: str, path: str, is_verbose: bool
) -> int:
    """Add a file or a folder to an archive."""
    files, full = ctx.phone.files, posixpath.join(folder, path)
    node = files.find(full, follow=False)
    if node is None:
        return ctx.fail(f"tar: {path}: No such file or directory")
    info = tarfile.TarInfo(path.lstrip("/") + "/" * (node.is_folder and path[-1:] != "/"))
    info.mode, info.mtime, info.uid, info.gid = stat.S_IMODE(node.mode), node.mtime, 2000, 2000
    info.uname = info.gname = "shell"
    content = b""
    if node.is_link:
        info.type, info.linkname = tarfile.SYMTYPE, node.target
    elif node.is_folder:
        info.type = tarfile.DIRTYPE
    else:
        content = node.content or b""
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))
    if is_verbose:
        ctx.io.err(f"{info.name}\n".encode("utf-8", "surrogateescape"))
    inside = files.names(full) if node.is_folder else []
    codes = [_pack(ctx, archive, folder, f"{path.rstrip('/')}/{n}", is_verbose) for n in inside]
    return max([0, *codes])


def _unpack(
    ctx: CommandContext, archive: tarfile.TarFile, folder: str, paths: Sequence[str],
    options: dict[str, str],
) -> int:  # fmt: skip
    """List an archive, or write what is in it."""
    files, num_bytes = ctx.phone.files, 0
    for member in archive:
        name = member.name.lstrip("/")
        if paths and not any(
            name == p.rstrip("/") or name.startswith(f"{p.rstrip('/')}/") for p in paths
        ):
            continue
        if "t" in options or "v" in options:
            ctx.print(name + "/" * member.isdir())
        target = posixpath.normpath(posixpath.join(folder, name))
        num_bytes += member.size
        if num_bytes > files.capacity:
            raise OSError(28, "No space left on device")
        if "x" not in options or ".." in name.split("/"):
            continue
        if member.isdir():
            files.make_folders(target)
        elif member.issym():
            files.make_folders(posixpath.dirname(target))
            if files.find(target, follow=False) is not None:
                files.remove(target)
            files.make_link(target, member.linkname)
        elif (packed := archive.extractfile(member)) is not None:
            files.make_folders(posixpath.dirname(target))
            files.write(target, packed.read(), mode=member.mode, mtime=int(member.mtime))
    return 0


def _gunzipped(content: bytes) -> bytes:
    """Unpack, up to the largest size that a command may hold.

    Raises:
        OSError: it is not packed, or too large.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
        try:
            unpacked = packed.read(_MAX_SIZE + 1)
        except (OSError, EOFError) as error:
            raise OSError(22, "not gzip") from error
    if len(unpacked) > _MAX_SIZE:
        raise OSError(12, "Cannot allocate memory")
    return unpacked


@command("gzip", "gunzip", "zcat")
async def gzip_(ctx: CommandContext) -> int:
    """`gzip [-cdk] [files]`: pack files or standard input, or unpack them."""
    options, paths = split_options(ctx, "S")
    unpacks = "d" in options or ctx.name != "gzip"
    convert = _gunzipped if unpacks else lambda content: gzip.compress(content, mtime=0)
    if not paths:
        ctx.out(convert(await ctx.read_all()))
        return 0
    files = ctx.phone.files

    def act(path: str) -> None:
        if unpacks and not path.endswith(".gz") and ctx.name != "zcat":
            raise OSError(22, "unknown suffix")
        content = convert(files.read(path))
        if "c" in options or ctx.name == "zcat":
            ctx.out(content)
            return
        files.write(path.removesuffix(".gz") if unpacks else f"{path}.gz", content)
        if "k" not in options:
            files.remove(path)

    return each(ctx, paths, act)
