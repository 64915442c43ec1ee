"""Programs that walk, pack and examine files: find, xargs, tar, gzip, stat, du, dd and others."""

import base64
import bz2
import gzip
import io
import itertools
import lzma
import posixpath
import re
import stat
import tarfile
import time
from collections.abc import Callable, Sequence

from agentrl.virtual_phone.commands.builtins import run_words
from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.file_commands import each, size_of
from agentrl.virtual_phone.commands.text_commands import split_options
from agentrl.virtual_phone.shell.expansion import compile_glob
from agentrl.virtual_phone.shell.interpreter import CommandContext
from agentrl.virtual_phone.system.file_system import FileNode

_MAX_SIZE = 64 << 20
_UNITS = {"": 1, "c": 1, "b": 512, "w": 2, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "z": gzip.compress,
    "j": bz2.compress,
    "J": lzma.compress,
}
_TYPES = {stat.S_IFDIR: "directory", stat.S_IFREG: "regular file"}


def _children(ctx: CommandContext, path: str) -> list[str]:
    """The paths in a folder, spelled as the folder is."""
    names = ctx.phone.files.names(ctx.path(path))
    return [f"{path.rstrip('/')}/{name}" if path != "/" else f"/{name}" for name in names]


def number_of(text: str) -> int:
    """A size such as `4k` or `1M`, in bytes.

    Raises:
        OSError: it is not a size.
    """
    found = re.fullmatch(r"(\d{1,12})([cbwkmg]?)b?", text.lower())
    if found is None:
        raise OSError(22, "Invalid argument", text)
    return int(found[1]) * _UNITS[found[2]]


class _Find:
    """`find`: evaluates an expression for each path, as it is parsed."""

    def __init__(self, ctx: CommandContext, words: Sequence[str]) -> None:
        self._ctx = ctx
        self._words = list(words)
        self._at = 0
        self._depth = 0
        self._path = ""
        self._node = FileNode(content=None, mode=0)
        self._batches: dict[int, list[str]] = {}
        self.code = 0
        self._is_pruned = False
        self._acts = {"-print", "-print0", "-exec", "-delete", "-ok", "-ls", "-quit"} & set(words)
        self._limits = {"-maxdepth": 1 << 20, "-mindepth": 0}
        for option in self._limits:
            while option in self._words:
                at = self._words.index(option)
                text = (self._words[at + 1 :] or [""])[0]
                if not text.isdecimal():
                    raise ValueError(f"{option}: needs a number")
                self._limits[option] = int(text[:6])
                del self._words[at : at + 2]
        self._is_deep = "-depth" in words or "-delete" in words

    async def walk(self, path: str, depth: int = 0) -> None:
        """Examine a path and, if it is a folder, what is in it."""
        node = self._ctx.phone.files.find(self._ctx.path(path))
        if node is None:
            self.code = self._ctx.fail(f"find: {path}: No such file or directory")
            return
        self._is_pruned = False
        if not self._is_deep:
            await self._examine(path, node, depth)
        if node.is_folder and depth < self._limits["-maxdepth"] and not self._is_pruned:
            for child in _children(self._ctx, path):
                await self.walk(child, depth + 1)
        if self._is_deep:
            await self._examine(path, node, depth)
        await self._ctx.io.drain()

    async def _examine(self, path: str, node: FileNode, depth: int) -> None:
        if depth < self._limits["-mindepth"]:
            return
        self._path, self._node, self._depth, self._at = path, node, depth, 0
        holds = await self._or(True) if self._words else True
        if self._at < len(self._words):
            raise ValueError(f"bad arg '{self._words[self._at]}'")
        if holds and not self._acts:
            self._ctx.print(path)

    async def finish(self) -> None:
        """Run the commands of `-exec ... {} +`."""
        for at, paths in self._batches.items():
            end = self._words.index("+", at)
            words = self._words[at : end - 1] + paths
            self.code |= await run_words(self._ctx, words)

    async def _or(self, is_live: bool) -> bool:
        value = await self._and(is_live)
        while self._next() in ("-o", "-or"):
            self._at += 1
            value = await self._and(is_live and not value) or value
        return value

    async def _and(self, is_live: bool) -> bool:
        value = await self._primary(is_live)
        while self._next() not in ("", "-o", "-or", ")"):
            self._at += self._next() in ("-a", "-and")
            value = await self._primary(is_live and value) and value
        return value

    def _next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _operand(self, name: str) -> str:
        if self._at >= len(self._words):
            raise ValueError(f"'{name}' needs 1 arg")
        self._at += 1
        return self._words[self._at - 1]

    async def _primary(self, is_live: bool) -> bool:
        word = self._operand("")
        if word in ("!", "-not"):
            return not await self._primary(is_live)
        if word == "(":
            value = await self._or(is_live)
            if self._operand("(") != ")":
                raise ValueError("need )")
            return value
        if word in ("-exec", "-ok"):
            return await self._exec(is_live)
        actions: dict[str, Callable[[], bool]] = {
            "-print": lambda: self._emit("\n"),
            "-print0": lambda: self._emit("\0"),
            "-prune": self._prune,
            "-delete": self._delete,
            "-depth": lambda: True,
            "-true": lambda: True,
            "-false": lambda: False,
            "-empty": self._is_empty,
            "-xdev": lambda: True,
        }
        if word in actions:
            return actions[word]() if is_live else False
        tests: dict[str, Callable[[str], bool]] = {
            "-name": lambda text: self._glob(text, self._name()),
            "-iname": lambda text: self._glob(text.lower(), self._name().lower()),
            "-path": lambda text: self._glob(text, self._path),
            "-wholename": lambda text: self._glob(text, self._path),
            "-ipath": lambda text: self._glob(text.lower(), self._path.lower()),
            "-type": lambda text: ("d" if self._node.is_folder else "f") in text.split(","),
            "-size": self._has_size,
            "-perm": self._has_mode,
            "-newer": self._is_newer,
            "-mtime": lambda text: self._compare(
                text, int((time.time() - self._node.mtime) / 86400)
            ),
            "-mmin": lambda text: self._compare(text, int((time.time() - self._node.mtime) / 60)),
            "-user": lambda text: text == "shell",
            "-group": lambda text: text == "shell",
        }
        if word not in tests:
            raise ValueError(f"bad arg '{word}'")
        return tests[word](self._operand(word)) and is_live

    def _name(self) -> str:
        return self._path.rstrip("/").rpartition("/")[2] or "/"

    def _glob(self, pattern: str, text: str) -> bool:
        return compile_glob(pattern).match(text) is not None

    def _compare(self, text: str, value: int) -> bool:
        """`+n` for more than n, `-n` for less."""
        number = text.lstrip("+-")
        if not number.isdecimal():
            raise ValueError(f"bad number '{text}'")
        wanted = int(number[:15])
        return (
            value > wanted
            if text[0] == "+"
            else value < wanted
            if text[0] == "-"
            else value == wanted
        )

    def _has_size(self, text: str) -> bool:
        unit = 512 if text[-1:].isdecimal() else _UNITS.get(text[-1:].lower(), 0)
        sign, number = re.sub(r"\d.*", "", text), text.lstrip("+-").rstrip("cbwkmgCBWKMG")
        if not unit or not number.isdecimal():
            raise ValueError(f"bad size '{text}'")
        return self._compare(f"{sign}{int(number[:12]) * unit}", size_of(self._node))

    def _has_mode(self, text: str) -> bool:
        mode, wanted = stat.S_IMODE(self._node.mode), int(text.lstrip("-/+") or "0", 8)
        if text[:1] == "-":
            return mode & wanted == wanted
        return bool(mode & wanted) if text[:1] in ("/", "+") else mode == wanted

    def _is_newer(self, text: str) -> bool:
        other = self._ctx.phone.files.find(self._ctx.path(text))
        return other is not None and self._node.mtime > other.mtime

    def _is_empty(self) -> bool:
        return not (
            _children(self._ctx, self._path) if self._node.is_folder else self._node.content
        )

    def _emit(self, end: str) -> bool:
        self._ctx.out(f"{self._path}{end}".encode("utf-8", "surrogateescape"))
        return True

    def _prune(self) -> bool:
        self._is_pruned = True
        return True

    def _delete(self) -> bool:
        self._ctx.phone.files.remove(self._ctx.path(self._path), recursive=True)
        return True

    async def _exec(self, is_live: bool) -> bool:
        start = self._at
        while self._next() not in (";", ""):
            if self._next() == "+" and self._words[self._at - 1] == "{}":
                self._at += 1
                if is_live:
                    self._batches.setdefault(start, []).append(self._path)
                return True
            self._at += 1
        if not self._next():
            raise ValueError("-exec needs ;")
        words = [word.replace("{}", self._path) for word in self._words[start : self._at]]
        self._at += 1
        if not is_live or not words:
            return False
        after = self._at, self._path, self._node, self._depth
        code = await run_words(self._ctx, words)
        self._at, self._path, self._node, self._depth = after
        return code == 0


@command("find")
async def find(ctx: CommandContext) -> int:
    """`find [paths] [-name PATTERN] [-type f] [-exec COMMAND {} ;] ...`."""
    words = list(ctx.arguments)
    paths: list[str] = []
    while words and words[0][:1] not in ("-", "(", "!"):
        paths.append(words.pop(0))
    try:
        search = _Find(ctx, words)
        for path in paths or ["."]:
            await search.walk(path)
        await search.finish()
    except ValueError as error:
        return ctx.fail(f"find: {error}")
    return search.code


@command("xargs")
async def xargs(ctx: CommandContext) -> int:
    """`xargs [-0r] [-n count] [-I text] [command]`."""
    words, options = list(ctx.arguments), dict[str, str]()
    while words and re.match("-[^-]", words[0]):
        word = words.pop(0)
        takes_value = word[1] in "nILPsdE"
        options[word[1]] = (word[2:] or (words.pop(0) if words else "")) if takes_value else ""
        options.update(dict.fromkeys(word[2:] if not takes_value else "", ""))
    text = (await ctx.read_all()).decode("utf-8", "surrogateescape")
    if "0" in options:
        items = [item for item in text.split("\0") if item]
    elif "I" in options:
        items = [line.strip() for line in text.split("\n") if line.strip()]
    else:
        items = text.split()
    command_words = words or ["echo"]
    if "I" in options:
        calls = [[word.replace(options["I"], item) for word in command_words] for item in items]
    else:
        most = options.get("n") or options.get("L") or ""
        step = max(1, int(most[:6])) if most.isdecimal() else 1000
        calls = [command_words + items[at : at + step] for at in range(0, len(items), step)]
        if not items and "r" not in options:
            calls = [command_words]
    code = 0
    for call in calls:
        found = await run_words(ctx, call)
        if found in (126, 127):
            return found
        code = 123 if found else code
        await ctx.io.drain()
    return code


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
    node = files.find(full)
    if node is None:
        return ctx.fail(f"tar: {path}: No such file or directory")
    info = tarfile.TarInfo(path.lstrip("/") + "/" * (node.is_folder and path[-1:] != "/"))
    info.mode, info.mtime, info.uid, info.gid = stat.S_IMODE(node.mode), node.mtime, 2000, 2000
    info.uname = info.gname = "shell"
    info.type = tarfile.DIRTYPE if node.is_folder else tarfile.REGTYPE
    info.size = len(node.content or b"")
    archive.addfile(info, io.BytesIO(node.content or b""))
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


@command("base64")
async def base64_(ctx: CommandContext) -> int:
    """`base64 [-d] [-w columns] [file]`."""
    options, paths = split_options(ctx, "w")
    content = ctx.phone.files.read(ctx.path(paths[0])) if paths else await ctx.read_all()
    if "d" in options:
        letters = bytes(c for c in content if not chr(c).isspace())
        ctx.out(base64.b64decode(letters + b"=" * (-len(letters) % 4)))
        return 0
    text, width = base64.b64encode(content).decode(), options.get("w", "76")
    columns = int(width[:6]) if width.isdecimal() else 76
    lines = [text[at : at + columns] for at in range(0, len(text), columns)] if columns else [text]
    ctx.out(("\n".join(lines) + "\n" * bool(columns and text)).encode())
    return 0


@command("stat")
def stat_(ctx: CommandContext) -> int:
    """`stat [-c FORMAT] paths`."""
    options, paths = split_options(ctx, "c")
    form = options.get("c") or (
        "  File: %N\n  Size: %s\t Blocks: %b\t IO Blocks: 512\t%F\nAccess: (0%a/%A)\tUid: "
        "( 2000/   shell)\tGid: ( 2000/   shell)\nModify: %y"
    )

    def show(name: str) -> None:
        node = ctx.phone.files.find(ctx.path(name))
        if node is None:
            raise FileNotFoundError(2, "No such file or directory")
        kind = _TYPES.get(stat.S_IFMT(node.mode), "regular file")
        empty = "regular empty file" if node.content == b"" else kind
        when = time.strftime("%Y-%m-%d %H:%M:%S.000000000 +0000", time.gmtime(node.mtime))
        known = {
            "n": name, "N": f"`{name}'", "s": str(size_of(node)), "F": empty, "y": when,
            "a": f"{stat.S_IMODE(node.mode):o}", "A": stat.filemode(node.mode), "U": "shell",
            "Y": str(node.mtime), "G": "shell", "u": "2000", "g": "2000", "h": "1",
            "b": str(-(-size_of(node) // 512)), "B": "512", "f": f"{node.mode:x}", "%": "%",
        }  # fmt: skip
        ctx.print(re.sub("%(.)", lambda found: known.get(found[1], found[0]), form))

    return each(ctx, paths, show, spelled=True)


@command("du")
def du(ctx: CommandContext) -> int:
    """`du [-sahkmb] [-d depth] [paths]`: sizes in blocks of 1024 bytes."""
    options, paths = split_options(ctx, "d")
    most = 0 if "s" in options else int(options.get("d", "1000")[:4])

    def show(num_bytes: int, path: str) -> None:
        shown: str = str(-(-num_bytes // 1024))
        if "b" in options:
            shown = str(num_bytes)
        elif "m" in options:
            shown = str(-(-num_bytes // (1 << 20)))
        elif "h" in options:
            unit = "K" if num_bytes < 1 << 20 else "M" if num_bytes < 1 << 30 else "G"
            value = num_bytes / {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit]
            shown = f"{value:.1f}{unit}" if value < 10 else f"{value:.0f}{unit}"
        ctx.print(f"{shown}\t{path}")

    def measure(path: str, depth: int) -> int:
        node = ctx.phone.files.find(ctx.path(path))
        if node is None:
            raise FileNotFoundError(2, "No such file or directory")
        size = len(node.content) if node.content is not None else 0 if "b" in options else 4096
        if "b" not in options:
            size = -(-size // 4096) * 4096
        if node.is_folder:
            size += sum(measure(child, depth + 1) for child in _children(ctx, path))
        if depth <= most and (node.is_folder or "a" in options or not depth):
            show(size, path)
        return size

    code = 0
    for path in paths or ["."]:
        try:
            measure(path, 0)
        except OSError as error:
            code = ctx.fail(f"du: {path}: {error.strerror}")
    return code


@command("basename", "dirname", "realpath", "readlink")
def basename(ctx: CommandContext) -> int:
    """`basename path [suffix]`, `dirname path`, `realpath path`."""
    options, words = split_options(ctx, "s")
    if not words:
        return ctx.fail(f"{ctx.name}: Needs 1 argument")
    if ctx.name == "basename":
        suffix = options.get("s", words[1] if len(words) > 1 else "")
        for path in words if "s" in options or "a" in options else words[:1]:
            name = path.rstrip("/").rpartition("/")[2] or path[:1]
            ctx.print(name.removesuffix(suffix) if suffix != name else name)
        return 0
    code = 0
    for path in words:
        if ctx.name == "dirname":
            ctx.print(posixpath.dirname(path.rstrip("/")) or ("/" if path[:1] == "/" else "."))
        elif (ctx.name == "readlink" and "f" not in options) or (
            ctx.phone.files.find(ctx.path(path)) is None and "m" not in options
        ):
            code = (
                1
                if ctx.name == "readlink"
                else ctx.fail(f"realpath: {path}: No such file or directory")
            )
        else:
            ctx.print(ctx.path(path))
    return code


@command("mktemp")
def mktemp(ctx: CommandContext) -> int:
    """`mktemp [-d] [-p folder] [template]`."""
    options, words = split_options(ctx, "p")
    template = (words or ["tmp.XXXXXXXXXX"])[0]
    folder = options.get("p") or ("" if words else ctx.environment.get("TMPDIR", "/data/local/tmp"))
    files, stem = ctx.phone.files, template.rstrip("X")
    width = len(template) - len(stem)
    names = (f"{stem}{number:0{width}d}" for number in itertools.count())
    paths = (f"{folder.rstrip('/')}/{name}" if folder else name for name in names)
    path = next(path for path in paths if files.find(ctx.path(path)) is None)
    if "d" in options:
        files.make_folder(ctx.path(path))
    elif "u" not in options:
        files.write(ctx.path(path), b"", mode=0o600)
    return ctx.print(path)


@command("rmdir")
def rmdir(ctx: CommandContext) -> int:
    """`rmdir paths`: remove empty folders."""
    files = ctx.phone.files

    def remove(path: str) -> None:
        if files.names(path):
            raise OSError(39, "Directory not empty")
        files.remove(path, recursive=True)

    return each(ctx, split_options(ctx, "")[1], remove)


@command("truncate")
def truncate(ctx: CommandContext) -> int:
    """`truncate -s SIZE files`."""
    options, paths = split_options(ctx, "s")
    size, files = number_of(options.get("s", "")), ctx.phone.files

    def change(path: str) -> None:
        node = files.find(path)
        content = (node.content or b"") if node is not None else b""
        if size > files.num_free + len(content):
            raise OSError(28, "No space left on device")
        files.write(path, content[:size].ljust(size, b"\0"))

    return each(ctx, paths, change)


@command("dd")
async def dd(ctx: CommandContext) -> int:
    """`dd [if=FILE] [of=FILE] [bs=SIZE] [count=N] [skip=N] [seek=N] [conv=notrunc]`."""
    known = dict(word.partition("=")[::2] for word in ctx.arguments)
    files, size = ctx.phone.files, number_of(known.get("bs", "512"))
    count = number_of(known["count"]) if "count" in known else None
    source, start = known.get("if", ""), number_of(known.get("skip", "0")) * size
    most = None if count is None else start + count * size
    if most is not None and most > _MAX_SIZE:
        raise OSError(12, "Cannot allocate memory")
    content = (
        await ctx.read_all() if not source else files.read(ctx.path(source), most or _MAX_SIZE)
    )
    content = content[start:most]
    if target := known.get("of"):
        path, offset = ctx.path(target), number_of(known.get("seek", "0")) * size
        old = files.read(path) if files.find(path) else b""
        head = old[:offset].ljust(offset, b"\0") if offset <= files.capacity else old
        tail = old[offset + len(content) :] if "notrunc" in known.get("conv", "") else b""
        files.write(path, head + content + tail)
    else:
        ctx.out(content)
    whole, rest = divmod(len(content), size or 1)
    records = f"{whole}+{int(rest > 0)} records"
    ctx.fail(f"{records} in\n{records} out\n{len(content)} bytes copied")
    return 0
