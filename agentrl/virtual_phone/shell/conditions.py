"""The conditions of `test`, `[` and `[[`."""

import re
from collections.abc import Callable, MutableMapping, Sequence

from agentrl.virtual_phone.shell.arithmetic import evaluate
from agentrl.virtual_phone.shell.redirects import CommandIO
from agentrl.virtual_phone.shell.shell_state import ShellState
from agentrl.virtual_phone.shell.syntax_tree import Word
from agentrl.virtual_phone.system.file_system import FileNode, FileSystem, normalize_path

_NUMERIC: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_TEXTUAL: dict[str, Callable[[str, str], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}
_OF_FILES: dict[str, Callable[[FileNode], bool]] = {
    "-e": lambda node: True,
    "-a": lambda node: True,
    "-f": lambda node: not node.is_folder,
    "-d": lambda node: node.is_folder,
    "-s": lambda node: node.is_folder or bool(node.content),
    "-r": lambda node: True,
    "-w": lambda node: True,
    "-x": lambda node: bool(node.mode & 0o111),
    "-O": lambda node: True,
    "-G": lambda node: True,
    "-h": lambda node: False,
    "-L": lambda node: False,
    "-b": lambda node: False,
    "-c": lambda node: False,
    "-p": lambda node: False,
    "-S": lambda node: False,
    "-u": lambda node: False,
    "-g": lambda node: False,
}
UNARY = frozenset((*_OF_FILES, "-z", "-n", "-t", "-o", "-v"))
"""Operators before one operand."""
BINARY = frozenset((*_NUMERIC, *_TEXTUAL, "-nt", "-ot", "-ef"))
"""Operators between two operands."""


class Conditions:
    """Evaluates conditions about the files and the variables of one shell."""

    def __init__(
        self, files: FileSystem, folder: str, variables: MutableMapping[str, str], is_terminal: bool
    ) -> None:
        self._files = files
        self._folder = folder
        self._variables = variables
        self._is_terminal = is_terminal
        self._words: list[str] = []

    def unary(self, operator: str, operand: str) -> bool:
        """`operator operand`, such as `-f path`."""
        if operator in ("-z", "-n"):
            return bool(operand) == (operator == "-n")
        if operator == "-t":
            return self._is_terminal
        if operator == "-v":
            return operand in self._variables
        node = self._node(operand) if operand else None
        return node is not None and operator in _OF_FILES and _OF_FILES[operator](node)

    def binary(self, left: str, operator: str, right: str) -> bool:
        """`left operator right`, such as `1 -lt 2`.

        Raises:
            ArithmeticFailure: an operand of a numeric operator is invalid.
        """
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

    def test(self, words: list[str]) -> bool:
        """The words of `test`.

        Raises:
            ValueError: they are no condition; its text is the unexpected word.
            ArithmeticFailure: an operand of a numeric operator is invalid.
        """
        self._words = list(reversed(words))
        if not words:
            return False
        value = self._or()
        if self._words:
            raise ValueError(self._words[-1])
        return value

    def _node(self, path: str) -> FileNode | None:
        return self._files.find(normalize_path(path, self._folder))

    def _or(self) -> bool:
        value = self._and()
        while self._words and self._words[-1] == "-o":
            self._words.pop()
            value = self._and() or value
        return value

    def _and(self) -> bool:
        value = self._primary()
        while self._words and self._words[-1] == "-a":
            self._words.pop()
            value = self._primary() and value
        return value

    def _primary(self) -> bool:
        words = self._words
        if not words:
            raise ValueError("expression expected")
        first = words.pop()
        if len(words) >= 2 and words[-1] in BINARY:
            operator, right = words.pop(), words.pop()
            return self.binary(first, operator, right)
        if first == "!" and words:
            return not self._primary()
        if first == "(" and words:
            value = self._or()
            if not words or words.pop() != ")":
                raise ValueError(first)
            return value
        if words and (first in UNARY or re.fullmatch("-[a-zA-Z]", first)):
            if first not in UNARY:
                raise ValueError(first)
            return self.unary(first, words.pop())
        return bool(first)


class ConditionalTest:
    """Evaluates `[[ ... ]]`, whose words are not split and whose right sides are patterns."""

    def __init__(self, shell: ShellState, tokens: Sequence[Word | str]) -> None:
        self._shell = shell
        self._tokens = list(reversed(tokens))
        self._conditions = conditions_of(shell, shell.io)

    async def whole(self) -> bool:
        """Whether all of it holds.

        Raises:
            ValueError: an operator or operand is unexpected; its text.
        """
        value = await self._or()
        if self._tokens:
            raise ValueError(await self._next())
        return value

    async def _next(self) -> str:
        token = self._tokens.pop()
        return token if isinstance(token, str) else await self._shell.text_of(token)

    def _operator(self) -> str:
        """The next token, if it is an operator or one unquoted word."""
        token = self._tokens[-1] if self._tokens else ""
        if isinstance(token, str):
            return token
        return token[0].text if len(token) == 1 and not token[0].quoted else ""

    async def _or(self) -> bool:
        value = await self._and()
        while self._operator() == "||":
            self._tokens.pop()
            value = await self._and() or value
        return value

    async def _and(self) -> bool:
        value = await self._primary()
        while self._operator() == "&&":
            self._tokens.pop()
            value = await self._primary() and value
        return value

    async def _primary(self) -> bool:
        operator = self._operator()
        if operator == "!":
            self._tokens.pop()
            return not await self._primary()
        if operator == "(":
            self._tokens.pop()
            value = await self._or()
            if self._operator() != ")":
                raise ValueError(")")
            self._tokens.pop()
            return value
        if not self._tokens or isinstance(self._tokens[-1], str):
            raise ValueError(operator or "]]")
        if operator in UNARY and len(self._tokens) > 1:
            self._tokens.pop()
            return self._conditions.unary(operator, await self._next())
        left = await self._next()
        between = self._operator()
        if between not in BINARY or len(self._tokens) < 2:
            return bool(left)
        self._tokens.pop()
        right = self._tokens.pop()
        if isinstance(right, str):
            raise ValueError(right)
        if between in ("=", "==", "!="):
            return (between != "!=") == await self._shell.matches(left, right)
        return self._conditions.binary(left, between, await self._shell.text_of(right))


def conditions_of(shell: ShellState, io: CommandIO) -> Conditions:
    """Evaluates conditions in the state of a shell."""
    folder, variables = shell.environment["PWD"], shell.environment
    return Conditions(shell.phone.files, folder, variables, io.terminal is not None)
