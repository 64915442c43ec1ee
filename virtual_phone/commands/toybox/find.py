"""find and xargs."""

import operator
import stat
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from virtual_phone.commands.command_options import number_of, split_options
from virtual_phone.commands.command_table import command
from virtual_phone.commands.toybox.file_commands import size_of
from virtual_phone.commands.toybox.file_status_commands import children_of
from virtual_phone.shell.command_context import CommandContext, UsageError
from virtual_phone.shell.glob_patterns import compile_glob
from virtual_phone.system.file_system import FileNode

_SIZE_UNITS = {"": 1, "c": 1, "b": 512, "w": 2, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_ACTIONS = frozenset(("-print", "-print0", "-exec", "-delete"))


class _Found(NamedTuple):
    """A file or folder found on the walk."""

    path: str
    node: FileNode

    @property
    def name(self) -> str:
        """Last component of the path."""
        return self.path.rstrip("/").rpartition("/")[2] or "/"


_Test = Callable[[_Found], bool | Awaitable[bool]]
"""A test of a file, or an action."""
_Tree = _Test | tuple[str, "_Tree", "_Tree"]
"""Tests joined by `and`, `or` and `not`; both operands of `not` are the same test."""


async def _holds(tree: "_Tree", found: _Found) -> bool:
    if not isinstance(tree, tuple):
        held = tree(found)
        return held if isinstance(held, bool) else await held
    joint, one, other = tree
    first = await _holds(one, found)
    if joint == "not":
        return not first
    return await _holds(other, found) if first == (joint == "and") else first


class _Find:
    """Parses the expression of `find` and evaluates it for each path."""

    def __init__(self, ctx: CommandContext, words: Sequence[str]) -> None:
        self.code = 0
        self._ctx = ctx
        self._words = list(reversed(words))
        self._batches: list[tuple[list[str], list[str]]] = []
        """Commands of `-exec ... {} +` and the paths to pass to them."""
        self._is_pruned = False
        self._least, self._most = 0, 1 << 20
        self._is_deep = "-depth" in words or "-delete" in words
        self._tree: _Tree = self._or() if words else lambda found: True
        if self._words:
            raise UsageError(f"bad arg '{self._words[-1]}'")
        if _ACTIONS.isdisjoint(words):
            self._tree = ("and", self._tree, self._printing("\n"))

    async def walk(self, path: str, depth: int = 0) -> None:
        """Evaluate a path and, if it is a folder, everything in it."""
        node = self._ctx.phone.files.find(self._ctx.path(path), follow=path.endswith("/"))
        if node is None:
            self.code = self._ctx.fail(f"find: {path}: No such file or directory")
            return
        self._is_pruned = False
        is_shown = depth >= self._least
        if is_shown and not self._is_deep:
            await _holds(self._tree, _Found(path, node))
        if node.is_folder and depth < self._most and not self._is_pruned:
            for child in children_of(self._ctx, path):
                await self.walk(child, depth + 1)
        if is_shown and self._is_deep:
            await _holds(self._tree, _Found(path, node))
        await self._ctx.io.drain()

    async def finish(self) -> None:
        """Run the commands of `-exec ... {} +`."""
        for words, paths in self._batches:
            if paths:
                self.code |= await self._ctx.shell.execute([*words, *paths], self._ctx.io)

    def _or(self) -> _Tree:
        tree = self._and()
        while self._words and self._words[-1] in ("-o", "-or"):
            self._words.pop()
            tree = ("or", tree, self._and())
        return tree

    def _and(self) -> _Tree:
        tree = self._primary()
        while self._words and self._words[-1] not in ("-o", "-or", ")"):
            if self._words[-1] in ("-a", "-and"):
                self._words.pop()
            tree = ("and", tree, self._primary())
        return tree

    def _operand(self, name: str) -> str:
        if not self._words:
            raise UsageError(f"'{name}' needs 1 arg")
        return self._words.pop()

    def _primary(self) -> _Tree:
        word = self._operand("expression")
        if word in ("!", "-not"):
            tree = self._primary()
            return "not", tree, tree
        if word == "(":
            tree = self._or()
            if self._operand("(") != ")":
                raise UsageError("need )")
            return tree
        plain: dict[str, Callable[[], _Test]] = {
            "-exec": self._exec,
            "-print": lambda: self._printing("\n"),
            "-print0": lambda: self._printing("\0"),
            "-depth": lambda: lambda found: True,
            "-prune": lambda: self._prune,
            "-delete": lambda: self._delete,
            "-empty": lambda: self._is_empty,
        }
        compared: dict[str, Callable[[str], _Test]] = {
            "-maxdepth": lambda text: self._limit(most=text),
            "-mindepth": lambda text: self._limit(least=text),
            "-name": lambda text: _matching(text, lambda found: found.name),
            "-iname": lambda text: _matching(text.lower(), lambda found: found.name.lower()),
            "-path": lambda text: _matching(text, lambda found: found.path),
            "-type": lambda text: lambda found: _type(found.node) in text.split(","),
            "-size": _sized,
            "-mtime": lambda text: _compared(text, lambda found: _age_s(found) // 86400),
            "-mmin": lambda text: _compared(text, lambda found: _age_s(found) // 60),
        }
        if word in plain:
            return plain[word]()
        if word not in compared:
            raise UsageError(f"bad arg '{word}'")
        return compared[word](self._operand(word))

    def _limit(self, *, least: str = "0", most: str | None = None) -> _Test:
        self._least = max(self._least, _count(least))
        self._most = self._most if most is None else _count(most)
        return lambda found: True

    def _printing(self, end: str) -> _Test:
        def show(found: _Found) -> bool:
            self._ctx.out(f"{found.path}{end}".encode("utf-8", "surrogateescape"))
            return True

        return show

    def _prune(self, found: _Found) -> bool:
        self._is_pruned = True
        return True

    def _delete(self, found: _Found) -> bool:
        self._ctx.phone.files.remove(self._ctx.path(found.path), recursive=True)
        return True

    def _is_empty(self, found: _Found) -> bool:
        is_folder = found.node.is_folder
        return not (children_of(self._ctx, found.path) if is_folder else found.node.content)

    def _exec(self) -> _Test:
        words, paths = list[str](), list[str]()

        def collect(found: _Found) -> bool:
            paths.append(found.path)
            return True

        while (word := self._operand("-exec")) != ";":
            if word == "+" and words[-1:] == ["{}"]:
                self._batches.append((words[:-1], paths))
                return collect
            words.append(word)

        async def run(found: _Found) -> bool:
            call = [word.replace("{}", found.path) for word in words]
            return await self._ctx.shell.execute(call, self._ctx.io) == 0

        return run


def _type(node: FileNode) -> str:
    return stat.filemode(node.mode)[0].replace("-", "f")


def _age_s(found: _Found) -> int:
    return int(time.time() - found.node.mtime)


def _count(text: str) -> int:
    count = number_of(text)
    if count is None:
        raise UsageError(f"bad number '{text[:100]}'")
    return count


def _matching(pattern: str, text_of: Callable[[_Found], str]) -> _Test:
    glob = compile_glob(pattern)
    return lambda found: glob.match(text_of(found)) is not None


def _compared(text: str, value_of: Callable[[_Found], int], unit: int = 1) -> _Test:
    """Build a test from `+n` (more than n), `-n` (less than n) or `n`."""
    compare = {"+": operator.gt, "-": operator.lt}.get(text[:1], operator.eq)
    wanted = _count(text.lstrip("+-")) * unit
    return lambda found: bool(compare(value_of(found), wanted))


def _sized(text: str) -> _Test:
    unit = _SIZE_UNITS.get(text[-1:].lower(), 512)
    return _compared(text.rstrip("cbwkmgCBWKMG"), lambda found: size_of(found.node), unit)


@command("find")
async def find(ctx: CommandContext) -> int:
    """`find [paths] [-name PATTERN] [-type f] [-exec COMMAND {} ;] ...`."""
    words = list(ctx.arguments)
    paths: list[str] = []
    while words and words[0][:1] not in ("-", "(", "!"):
        paths.append(words.pop(0))
    search = _Find(ctx, words)
    for path in paths or ["."]:
        await search.walk(path)
    await search.finish()
    return search.code


@command("xargs")
async def xargs(ctx: CommandContext) -> int:
    """`xargs [-0r] [-n count] [-I text] [command]`."""
    options, words = split_options(ctx, "0rn:I:L:P:", is_mixed=False)
    text = (await ctx.read_all()).decode("utf-8", "surrogateescape")
    separator = "\0" if "0" in options else "\n" if "I" in options else None
    items = [item for item in text.split(separator) if item.strip()]
    words = words or ["echo"]
    if "I" in options:
        calls = [[word.replace(options["I"], item.strip()) for word in words] for item in items]
    else:
        step = number_of(options.get("n") or options.get("L")) or 1000
        calls = [words + items[at : at + step] for at in range(0, len(items), step)]
        calls = calls or ([] if "r" in options else [words])
    code = 0
    for call in calls:
        found = await ctx.shell.execute(call, ctx.io)
        if found in (126, 127):
            return found
        code = 123 if found else code
        await ctx.io.drain()
    return code
