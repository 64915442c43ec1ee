"""find and xargs."""

import re
import stat
import time
from collections.abc import Callable, Sequence

from virtual_phone.commands.command_table import command
from virtual_phone.commands.toybox.file_commands import size_of
from virtual_phone.commands.toybox.file_tools import SIZE_UNITS, children_of
from virtual_phone.shell.expansion import compile_glob
from virtual_phone.shell.interpreter import CommandContext
from virtual_phone.system.file_system import FileNode


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
        node = self._ctx.phone.files.find(self._ctx.path(path), follow=path.endswith("/"))
        if node is None:
            self.code = self._ctx.fail(f"find: {path}: No such file or directory")
            return
        self._is_pruned = False
        if not self._is_deep:
            await self._examine(path, node, depth)
        if node.is_folder and depth < self._limits["-maxdepth"] and not self._is_pruned:
            for child in children_of(self._ctx, path):
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
            self.code |= await self._ctx.shell.execute(words, self._ctx.io)

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
            "-type": lambda text: self._type() in text.split(","),
            "-lname": lambda text: self._node.is_link and self._glob(text, self._node.target),
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

    def _type(self) -> str:
        return stat.filemode(self._node.mode)[0].replace("-", "f")

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
        unit = 512 if text[-1:].isdecimal() else SIZE_UNITS.get(text[-1:].lower(), 0)
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
            children_of(self._ctx, self._path) if self._node.is_folder else self._node.content
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
        code = await self._ctx.shell.execute(words, self._ctx.io)
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
        found = await ctx.shell.execute(call, ctx.io)
        if found in (126, 127):
            return found
        code = 123 if found else code
        await ctx.io.drain()
    return code
