"""Every regular expression of the package takes linear time, also on text made to slow it down.

The expressions are found in the source: each call of `re`, and each use of a compiled pattern.
Texts that could slow one down are made from its own parts: what precedes a repetition, and then
many of what it repeats.
"""

import ast
import gc
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations
from pathlib import Path
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("agentrl", "rewards", "envs", "virtual_phone")
SIZES = (16, 20, 24, 28, 32, 40, 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
NOTABLE_S = 0.004
METHODS = ("search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")
FLAGS = re.compile(r"re\.[A-Z]+(?: \| re\.[A-Z]+)*")
CATEGORIES = {
    ops.CATEGORY_DIGIT: "0", ops.CATEGORY_SPACE: " ", ops.CATEGORY_WORD: "a",
    ops.CATEGORY_NOT_DIGIT: "a", ops.CATEGORY_NOT_SPACE: "a", ops.CATEGORY_NOT_WORD: "-",
}  # fmt: skip


USERS_OWN = ("agentrl/cli/porting/",)
"""Code that reads only a user's own scripts, on this user's command."""
COMPOSED = {
    # Alternatives of fixed names or of single characters.
    "agentrl/cli/virtual_phones.py": 1,
    "agentrl/cli/serve.py": 1,
    "agentrl/cluster/ray_reaper.py": 1,
    "agentrl/text/phone_names.py": 1,
    "agentrl/policies/chat/chat_encoder.py": 1,
    "agentrl/policies/chat/formats/template.py": 1,
    "agentrl/training/monitoring/metric_descriptions.py": 1,
    "agentrl/training/command_target.py": 1,
    "agentrl/runs/run_folder.py": 1,
    "agentrl/viewer/episodes/episode_search.py": 2,
    "virtual_phone/commands/toybox/bashkit_programs.py": 1,
    # A task's own expression for the short instruction that a page of MiniWoB++ draws.
    "envs/web_app/miniwob_expert/message_tasks.py": 1,
    "envs/web_app/miniwob_expert/page.py": 1,
    # A run of blanks, or one separator with the blanks around it.
    # A shell's or grep's own pattern, which its author may make as slow as they like.
    "virtual_phone/commands/toybox/grep.py": 2,
    "virtual_phone/shell/field_splitting.py": 1,
    "virtual_phone/shell/glob_patterns.py": 2,
}
"""How many expressions of a file are composed while it runs. Add one here if it is linear."""


@dataclass(frozen=True)
class Expression:
    """A regular expression and the methods that the package calls."""

    place: str
    pattern: str | bytes = field(hash=False)
    flags: int
    methods: tuple[str, ...]


class Source:
    """A file's constants, and its regular expressions."""

    def __init__(self, path: Path) -> None:
        self.name, self.tree = str(path.relative_to(ROOT)), ast.parse(path.read_text())
        self.constants: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node.value
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.constants[node.target.id] = node.value

    def value(self, node: ast.expr) -> Any:
        """The value of an expression of constants; raises LookupError for others."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name() if node.id in self.constants:
                return self.value(self.constants[node.id])
            case ast.JoinedStr():
                return "".join(str(self.value(part)) for part in node.values)
            case ast.FormattedValue():
                return self.value(node.value)
            case ast.BinOp(op=ast.Add()):
                return self.value(node.left) + self.value(node.right)
            case ast.BinOp(op=ast.BitOr()):
                return self.value(node.left) | self.value(node.right)
            case ast.Attribute(value=ast.Name(id="re")):
                return getattr(re, node.attr)
            case ast.Attribute(attr="pattern", value=inner):
                return self.value(inner)
            case ast.Tuple() | ast.List():
                return [self.value(part) for part in node.elts]
            case ast.Call(func=ast.Attribute(attr="join", value=between), args=[parts]):
                return self.value(between).join(self.value(parts))
            case ast.Call(func=ast.Name(id="str"), args=[inner]):
                return str(self.value(inner))
            case ast.Call(func=ast.Attribute(attr="compile", value=ast.Name(id="re"))):
                return self.value(node.args[0])
        raise LookupError(ast.unparse(node))

    def calls(self) -> Iterator[ast.Call]:
        """The calls of functions of `re` that take a pattern."""
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr in ("compile", *METHODS)
            ):
                yield node

    def methods(self, call: ast.Call) -> tuple[str, ...]:
        """The methods by which a pattern is used; all if it is not a constant's own."""
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr != "compile":
            return (call.func.attr,)
        names = [name for name, value in self.constants.items() if value is call]
        used = {
            node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in names
        }
        if used & {*METHODS}:
            return tuple(sorted(used & {*METHODS}))
        # In a collection: whatever the file calls; `split` is a method of texts, too.
        calls = {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        return tuple(sorted(calls & {*METHODS} - {"split"})) or ("search", "sub")


@cache
def sources() -> list[Source]:
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    files = dict.fromkeys(path.resolve() for path in paths)
    return [Source(path) for path in files if "import re\n" in path.read_text()]


@cache
def expressions() -> tuple[list[Expression], "Counter[str]"]:
    """The expressions that consist of constants, and how many others each file has."""
    found, others = list[Expression](), Counter[str]()
    for source in sources():
        if source.name.startswith(USERS_OWN):
            continue
        for call in source.calls():
            try:
                pattern = source.value(call.args[0])
                given = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "flags")]
                flags = 0
                for one in given:
                    if FLAGS.fullmatch(ast.unparse(one)):
                        flags |= int(source.value(one))
            except LookupError:
                others[source.name] += 1
                continue
            place = f"{source.name}:{call.lineno}"
            found.append(Expression(place, pattern, flags, source.methods(call)))
    return found, others


class Example:
    """A short text that an expression matches, and what its repetitions repeat."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.groups: dict[int, str] = {}
        self.pumps: list[tuple[str, str]] = []
        """What precedes a repetition, and what it repeats."""
        self.letters: dict[str, None] = {}
        self.text = self.of(_parser.parse(pattern, flags), "")

    def of(self, parsed: Any, before: str) -> str:
        text = ""
        for kind, value in parsed:
            text += self.part(kind, value, before + text)
        return text

    def part(self, kind: Any, value: Any, before: str) -> str:
        if kind in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
            least, most, inner = value
            once = self.of(inner, before)
            if most > 20:
                self.pumps.append((before, once))
            return once * min(int(least), 50)
        if kind is ops.SUBPATTERN:
            self.groups[value[0]] = text = self.of(value[3], before)
            return text
        if kind is ops.BRANCH:
            first, *_ = [self.of(branch, before) for branch in value[1]]
            return first
        if kind is ops.ATOMIC_GROUP:
            return self.of(value, before)
        if kind is ops.GROUPREF:
            return self.groups.get(value, "")
        if kind is ops.IN:
            return self.member(value)
        if kind is ops.LITERAL:
            letter = chr(value)
        else:
            letter = "a" if kind in (ops.ANY, ops.NOT_LITERAL) else ""
        if letter:
            self.letters[letter] = None
        return letter

    def member(self, items: Any) -> str:
        """A character of a set."""
        found = []
        for kind, value in items:
            if kind is ops.LITERAL:
                found.append(chr(value))
            elif kind is ops.RANGE:
                found.append(chr(value[0]))
            elif kind is ops.CATEGORY:
                found.append(CATEGORIES[value])
        self.letters.update(dict.fromkeys(found))
        if items[0][0] is ops.NEGATE:
            return next(letter for letter in "a b-<" if letter not in found)
        return found[0]


def attacks(pattern: str, flags: int) -> Iterator[Callable[[int], str]]:
    """Makers of texts of about a length that may slow an expression down."""
    example = Example(pattern, flags)
    letters = [*example.letters, " ", "\n", "a", "0", "\\"][:12]
    units = dict.fromkeys([*letters, example.text, *map("".join, permutations(letters[:4], 2))])
    starts = {"": None}
    for before, once in example.pumps:
        starts[before] = None
        units.update(dict.fromkeys([once, before + once, once + example.text]))
    # What any of the repetitions can begin with, then what one of them repeats.
    for start in starts:
        for unit in filter(None, units):
            for end in dict.fromkeys(["\1", "a", example.text[-1:]]):
                yield (
                    lambda n, a=start, u=unit, e=end: (  # type: ignore[misc]
                        (a + u * (n // len(u) + 1))[:n] + e
                    )
                )


def seconds(compiled: "re.Pattern[Any]", method: str, text: Any) -> float:
    """Seconds of this thread alone: other processes and garbage of other tests don't count."""
    empty = text[:0]
    arguments = (empty, text) if method in ("sub", "subn") else (text,)
    gc.disable()
    began = time.thread_time()
    result = getattr(compiled, method)(*arguments)
    if method == "finditer":
        for _ in result:
            pass
    took = time.thread_time() - began
    gc.enable()
    return took


def slow_text(one: Expression) -> str | None:
    """The beginning of a text on which an expression takes more than linear time; None if none."""
    compiled = re.compile(one.pattern, one.flags)
    is_bytes = isinstance(one.pattern, bytes)
    pattern = one.pattern.decode("latin1") if isinstance(one.pattern, bytes) else one.pattern
    for make in attacks(pattern, one.flags | (re.ASCII if is_bytes else 0)):
        for method in one.methods:

            def best(size: int, method: str = method, make: Callable[[int], str] = make) -> float:
                text: Any = make(size).encode("latin1", "replace") if is_bytes else make(size)
                first = seconds(compiled, method, text)
                again = range(0 if first < NOTABLE_S else 3)
                return min([first, *(seconds(compiled, method, text) for _ in again)])

            before = 0.0
            for size in SIZES:
                now = best(size)
                # Below 100 characters it is exponential; else it must go on: this may be noise.
                if (now > NOTABLE_S and now > 3 * before) and (
                    size < 100 or best(4 * size) > 2.5 * best(2 * size) > 6 * best(size)
                ):
                    return f"{method} of {make(40)!r}... ({size} characters)"
                if now > NOTABLE_S:
                    break
                before = now
    return None


@pytest.mark.parametrize("part", range(4))
def test_expressions_take_linear_time(part: int) -> None:
    found, _ = expressions()
    assert len(found) > 150
    slow = {one.place: slow_text(one) for one in found[part::4]}
    assert not {place: text for place, text in slow.items() if text}


def test_expressions_that_are_composed_while_the_program_runs_are_known() -> None:
    _, others = expressions()
    assert others == COMPOSED


@pytest.mark.parametrize("pattern", [r"\s+$", "<a>(.*?)</a>", r"(\s*<b>)+$", r"(a|a)*b", r"\d+e"])
def test_slow_expressions_are_found(pattern: str) -> None:
    one = Expression(place="", pattern=pattern, flags=re.DOTALL, methods=("search",))
    assert slow_text(one)
