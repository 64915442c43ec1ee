"""The conditions of `test`, `[` and `[[`."""

import operator
import re
import stat
from collections.abc import Callable, Sequence
from typing import NamedTuple

from virtual_phone.shell.arithmetic import evaluate
from virtual_phone.shell.command_streams import CommandIO
from virtual_phone.shell.field_splitting import Field
from virtual_phone.shell.glob_patterns import compile_glob
from virtual_phone.shell.shell_state import ShellState
from virtual_phone.shell.syntax_tree import Word
from virtual_phone.shell.word_expander import WordExpander
from virtual_phone.system.file_system import FileNode, normalize_path

_NUMERIC: dict[str, Callable[[int, int], bool]] = {
    f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_TEXTUAL: dict[str, Callable[[str, str], bool]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_OF_FILES: dict[str, Callable[[FileNode], bool]] = {
    **dict.fromkeys(("-e", "-r", "-w"), lambda node: True),
    **dict.fromkeys(("-b", "-p", "-S"), lambda node: False),
    **dict.fromkeys(("-h", "-L"), lambda node: node.is_link),
    "-c": lambda node: stat.S_ISCHR(node.mode),
    "-f": lambda node: not node.is_folder,
    "-d": lambda node: node.is_folder,
    "-s": lambda node: node.is_folder or bool(node.content),
    "-x": lambda node: bool(node.mode & 0o111),
}
_UNARY = frozenset((*_OF_FILES, "-z", "-n", "-t"))
"""Operators that precede a single operand."""
_FIRST = _UNARY | {"!", "("}
_BINARY = frozenset((*_NUMERIC, *_TEXTUAL, "-nt", "-ot", "-ef"))
"""Operators between two operands."""


class _Token(NamedTuple):
    """A word of a condition."""

    text: str
    operator: str
    """`text` if the word may be an operator, else ''; a quoted word in `[[` may not."""
    field: Field | None = None
    """In `[[`, the word as a pattern to compare with; None for `&&`, `(` and the like."""


class _Conditions:
    """Evaluates a condition on the files and variables of a shell."""

    def __init__(
        self, shell: ShellState, io: CommandIO, tokens: Sequence[_Token], *, is_double: bool
    ) -> None:
        self._files = shell.phone.files
        self._folder = shell.environment["PWD"]
        self._variables = shell.environment
        self._is_terminal = io.terminal is not None
        self._tokens = list(reversed(tokens))
        self._is_double = is_double

    def hold(self) -> bool:
        """Return whether the condition holds.

        Raises:
            ValueError: the condition is invalid; the message is the unexpected word.
            ArithmeticFailure: an operand of a numeric operator is invalid.
        """
        value = self._or()
        if self._tokens:
            raise ValueError(self._tokens[-1].text)
        return value

    def _or(self) -> bool:
        value = self._and()
        while self._takes("||" if self._is_double else "-o"):
            value = self._and() or value
        return value

    def _and(self) -> bool:
        value = self._primary()
        while self._takes("&&" if self._is_double else "-a"):
            value = self._primary() and value
        return value

    def _primary(self) -> bool:
        if not self._tokens:
            raise ValueError("expression expected")
        first = self._tokens.pop()
        between = self._tokens[-1].operator if len(self._tokens) > 1 else ""
        # `[ ! = x ]` is a comparison: three words with an operator in the middle.
        if between in _BINARY and not (self._is_double and first.operator in _FIRST):
            self._tokens.pop()
            return self._binary(self._operand(first), between, self._tokens.pop())
        if first.operator == "!" and self._tokens:
            return not self._primary()
        if first.operator == "(" and self._tokens:
            value = self._or()
            if not self._takes(")"):
                raise ValueError(first.text)
            return value
        if self._tokens and re.fullmatch("-[a-zA-Z]", first.operator):
            if first.operator not in _UNARY:
                raise ValueError(first.text)
            return self._unary(first.operator, self._operand(self._tokens.pop()))
        return bool(self._operand(first))

    def _takes(self, operator: str) -> bool:
        """Consume an operator if it comes next; return whether it did."""
        is_next = bool(self._tokens) and self._tokens[-1].operator == operator
        if is_next:
            self._tokens.pop()
        return is_next

    def _operand(self, token: _Token) -> str:
        if self._is_double and token.field is None:
            raise ValueError(token.text)
        return token.text

    def _unary(self, operator: str, operand: str) -> bool:
        """Evaluate `operator operand`, such as `-f path`."""
        if operator in ("-z", "-n"):
            return bool(operand) == (operator == "-n")
        if operator == "-t":
            return self._is_terminal
        follow = operator not in ("-h", "-L")
        node = self._node(operand, follow=follow) if operand else None
        return node is not None and operator in _OF_FILES and _OF_FILES[operator](node)

    def _binary(self, left: str, operator: str, token: _Token) -> bool:
        """Evaluate `left operator right`, such as `1 -lt 2`."""
        right = self._operand(token)
        if token.field is not None and operator in ("=", "==", "!="):
            found = compile_glob(token.field.pattern).match(left)
            return (found is None) == (operator == "!=")
        if operator in _NUMERIC:
            numbers = [evaluate(text, self._variables) for text in (left, right)]
            return _NUMERIC[operator](*numbers)
        if operator in _TEXTUAL:
            return _TEXTUAL[operator](left, right)
        one, other = self._node(left), self._node(right)
        if operator == "-ef":
            return one is not None and one is other
        one, other = (one, other) if operator == "-nt" else (other, one)
        return one is not None and (other is None or one.mtime > other.mtime)

    def _node(self, path: str, *, follow: bool = True) -> FileNode | None:
        return self._files.find(normalize_path(path, self._folder), follow=follow)


def words_hold(shell: ShellState, io: CommandIO, words: Sequence[str]) -> bool:
    """Return whether the condition of `test` or `[` holds.

    Raises:
        ValueError: the condition is invalid; the message is the unexpected word.
        ArithmeticFailure: an operand of a numeric operator is invalid.
    """
    tokens = [_Token(word, word) for word in words]
    return bool(words) and _Conditions(shell, io, tokens, is_double=False).hold()


async def tokens_hold(shell: ShellState, words: WordExpander, tokens: Sequence[Word | str]) -> bool:
    """Return whether a `[[` condition holds; its words are not split. Raises like `words_hold`."""
    expanded: list[_Token] = []
    for token in tokens:
        if isinstance(token, str):
            expanded.append(_Token(token, token))
            continue
        field = await words.field_of(token)
        is_plain = len(token) == 1 and token[0].kind == "text" and not token[0].quoted
        expanded.append(_Token(field.text, field.text if is_plain else "", field))
    return _Conditions(shell, shell.io, expanded, is_double=True).hold()
