"""The state of a shell, and the expansion of words in it."""

import random
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from virtual_phone.shell.arithmetic import ArithmeticFailure, evaluate
from virtual_phone.shell.expansion import (
    DEFAULT_IFS,
    MAX_LENGTH,
    Field,
    Piece,
    braces,
    compile_glob,
    fields_of,
    is_literal,
    trim,
)
from virtual_phone.shell.redirects import CommandIO
from virtual_phone.shell.syntax_tree import (
    Assignment,
    Script,
    ShellCommand,
    Word,
    WordPart,
)
from virtual_phone.system.file_system import FileSystem
from virtual_phone.system.process_table import Process
from virtual_phone.virtual_phone import VirtualPhone

_ENVIRONMENT = {
    "ANDROID_DATA": "/data",
    "ANDROID_ROOT": "/system",
    "EXTERNAL_STORAGE": "/sdcard",
    "HOME": "/",
    "HOSTNAME": "virtual",
    "IFS": DEFAULT_IFS,
    "PATH": "/product/bin:/system/bin:/system/xbin:/vendor/bin",
    "PWD": "/",
    "SHELL": "/system/bin/sh",
    "TMPDIR": "/data/local/tmp",
    "USER": "shell",
}
_DYNAMIC = ("RANDOM", "SECONDS", "PPID", "LINENO")
"""Variables whose value is computed when they are read."""
_ADBD_PID = 400
BUILTINS = frozenset((
    ".", ":", "break", "cd", "command", "continue", "eval", "exec", "exit", "export", "let",
    "local", "read", "readonly", "return", "set", "shift", "source", "trap", "type", "typeset",
    "unset", "wait",
))  # fmt: skip
"""Commands that belong to the shell, and are no programs."""
_EXPORTED = frozenset(_ENVIRONMENT) - {"IFS"}
_MAX_VARIABLES_LENGTH = 32 * MAX_LENGTH
"""Longest total length of a shell's variables."""


class ShellExit(Exception):
    """Raised by the `exit` command."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ShellFailure(ShellExit):
    """Raised by an error that ends a script, but not a shell that somebody types into."""


@dataclass(slots=True, kw_only=True)
class ShellState:
    """Variables, parameters, options, functions and streams."""

    phone: VirtualPhone
    io: CommandIO
    environment: dict[str, str] = field(default_factory=_ENVIRONMENT.copy)
    exported: set[str] = field(default_factory=lambda: set(_EXPORTED))
    read_only: set[str] = field(default_factory=set)
    functions: dict[str, ShellCommand] = field(default_factory=dict)
    options: set[str] = field(default_factory=set)
    """Letters of `set`, and `pipefail`."""
    positional: list[str] = field(default_factory=list)
    name: str = "sh"
    """Value of `$0`."""
    traps: dict[str, str] = field(default_factory=dict)
    """Scripts to run at the end, or on a signal."""
    frames: list[dict[str, str | None]] = field(default_factory=list)
    """Values that the local variables of each running function hide."""
    code: int = 0
    depth: int = 0
    """Number of shells that this one is nested in."""
    process: Process | None = None
    jobs: dict[int, Process] = field(default_factory=dict)
    """Background commands of this shell and of those that share its output."""
    own_jobs: list[int] = field(default_factory=list)
    line: int = 0
    """Line of the command that runs; 0 if lines are not counted, as in `sh -c`."""
    started_s: float = field(default_factory=time.monotonic)

    @abstractmethod
    async def output_of(self, script: Script) -> str:
        """Run a script and return its output, for `$(...)`."""

    @property
    def pid(self) -> int:
        """Process id."""
        return 2000 if self.process is None else self.process.pid

    def complain(self, message: str) -> None:
        """Write an error message of the shell itself."""
        self.io.err(f"sh: {message}\n".encode("utf-8", "surrogateescape"))

    def assign(self, name: str, value: str) -> None:
        """Set a variable."""
        if name in self.read_only:
            self.complain(f"read-only: {name}")
            raise ShellFailure(2)
        if len(value) > 1 << 16:
            total = sum(map(len, self.environment.values()))
            if len(value) > MAX_LENGTH or total > _MAX_VARIABLES_LENGTH:
                raise OSError(12, "Cannot allocate memory", name)
        self.environment[name] = value
        if "a" in self.options:
            self.exported.add(name)

    async def assign_word(self, assignment: Assignment) -> None:
        """Make an assignment."""
        value = await self.text_of(assignment.value)
        if value[:1] == "~" and value[1:2] in ("", "/") and not assignment.value[0].quoted:
            value = self.environment.get("HOME", "") + value[1:]
        old = self.environment.get(assignment.name, "") if assignment.appends else ""
        self.assign(assignment.name, old + value)

    def declare_local(self, name: str) -> None:
        """Have the current function's end restore a variable."""
        if self.frames:
            self.frames[-1].setdefault(name, self.environment.get(name))

    def restore_locals(self) -> None:
        """Restore the variables that a function has hidden."""
        for name, value in self.frames.pop().items():
            self.environment.pop(name, None)
            if value is not None:
                self.environment[name] = value

    def parameter(self, name: str) -> str | None:
        """The value of a variable or a special parameter; None if it is not set."""
        if name in _DYNAMIC:
            return self._dynamic(name)
        value = self.environment.get(name)
        if value is None and name in ("COLUMNS", "LINES") and (terminal := self.io.terminal):
            return str(terminal.columns if name == "COLUMNS" else terminal.rows)
        if value is not None or name[0].isalpha() or name[0] == "_":
            return value
        if name.isdecimal():
            number = int(name[:9])
            if not number:
                return self.name
            return self.positional[number - 1] if number <= len(self.positional) else None
        if name == "!":
            return str(self.own_jobs[-1]) if self.own_jobs else None
        if name in ("@", "*"):
            return " ".join(self.positional) if self.positional else None
        if name == "-":
            return "".join(sorted(o for o in self.options if len(o) == 1))
        return str({"?": self.code, "$": self.pid, "#": len(self.positional)}[name])

    def _dynamic(self, name: str) -> str:
        if name == "RANDOM":
            return str(random.randrange(1 << 15))
        if name == "LINENO":
            return str(self.line)
        return str(_ADBD_PID if name == "PPID" else int(time.monotonic() - self.started_s))

    async def expanded(self, words: Sequence[Word]) -> list[str]:
        """Expand words into the arguments that they stand for."""
        texts: list[str] = []
        for word in words:
            text = self._literal_text(word)
            if text is not None:
                texts.append(text)
            else:
                texts += await self._fields(word)
        return texts

    async def _fields(self, word: Word) -> list[str]:
        first = word[0]
        words = [word]
        if any(part.kind == "text" and not part.quoted and "{" in part.text for part in word):
            words = braces(word)
        texts: list[str] = []
        files, folder = self.phone.files, self.environment["PWD"]
        for each in words:
            fields = fields_of(await self._pieces(each), self.environment.get("IFS", DEFAULT_IFS))
            texts += [path for field in fields for path in self._paths(field, files, folder)]
        is_tilde = first.kind == "text" and not first.quoted and first.text[:1] == "~"
        if is_tilde and texts and texts[0][1:2] in ("", "/"):
            texts[0] = self.environment.get("HOME", "").rstrip("/") + texts[0][1:] or "/"
        return texts

    def _literal_text(self, word: Word) -> str | None:
        """The argument that a word such as `==$?` stands for; None if it takes more to expand it.

        This is only faster, and what most words are.
        """
        text = ""
        for part in word:
            value = part.text
            if part.kind == "name" and not part.operator and value not in ("@", "*"):
                value = self.parameter(value) or ""
                is_one = value.isalnum() and self.environment.get("IFS") == DEFAULT_IFS
                if not value or not (part.quoted or is_one):
                    return None
            elif not is_literal(part):
                return None
            text += value
        return text if len(text) <= MAX_LENGTH else None

    def _paths(self, field: Field, files: FileSystem, folder: str) -> list[str]:
        return [field.text] if "f" in self.options else field.paths(files, folder)

    async def text_of(self, word: Word) -> str:
        """Expand a word into one text, without splitting it."""
        if len(word) == 1 and word[0].kind == "text":
            return word[0].text
        return (await self.field_of(word)).text

    async def matches(self, value: str, pattern: Word) -> bool:
        """Whether a value matches a word as a pattern."""
        return bool(compile_glob((await self.field_of(pattern)).pattern).match(value))

    async def field_of(self, word: Word) -> Field:
        """Expand a word into one argument or pattern, without splitting it."""
        field = Field()
        for piece in await self._pieces(word):
            if piece is None:
                field.add(" ", quoted=True)
            else:
                field.add(piece[0], piece[1])
        return field

    async def _pieces(self, word: Word, *, splits_text: bool = False) -> list[Piece | None]:
        """The pieces of a word; None separates fields that are not joined."""
        pieces: list[Piece | None] = []
        for part in word:
            if part.kind == "text":
                pieces.append((part.text, part.quoted, splits_text and not part.quoted))
            elif part.kind == "name":
                pieces += await self._parameter_pieces(part)
            elif part.kind == "script":
                pieces.append((await self.output_of(part.script), part.quoted, not part.quoted))
            else:
                value = self.number(await self.text_of(part.operand))
                pieces.append((str(value), part.quoted, not part.quoted))
        if not self.positional and all(
            piece is None or piece[:2] == ("", True) for piece in pieces
        ):
            has_all = any(p.kind == "name" and p.text == "@" and p.quoted for p in word)
            return [] if has_all else pieces
        return pieces

    def number(self, expression: str) -> int:
        """The value of an arithmetic expression."""
        for name in _DYNAMIC:
            if name in expression:
                self.environment[name] = self._dynamic(name)
        try:
            return evaluate(expression, self.environment)
        except ArithmeticFailure as error:
            self.complain(str(error))
            raise ShellFailure(1) from None

    async def _parameter_pieces(self, part: WordPart) -> list[Piece | None]:
        name, operator, quoted = part.text, part.operator, part.quoted
        if name in ("@", "*") and not operator:
            return self._all_parameters(is_joined=name == "*", quoted=quoted)
        value = self.parameter(name)
        if operator[-1:] in ("-", "=", "?", "+") and operator:
            return await self._default(part, value)
        if value is None and "u" in self.options and name not in ("@", "*"):
            self.complain(f"{name}: parameter not set")
            raise ShellFailure(1)
        value = value or ""
        if operator == "length":
            value = str(len(self.positional) if name in ("@", "*") else len(value))
        elif operator[:1] in ("#", "%") and operator:
            value = trim(value, operator, (await self.field_of(part.operand)).pattern)
        elif operator[:1] == "/":
            value = await self._replaced(value, part)
        elif operator == ":":
            value = self._sliced(value, await self.text_of(part.operand))
        return [(value, quoted, not quoted)]

    def _all_parameters(self, *, is_joined: bool, quoted: bool) -> list[Piece | None]:
        """`$@` or `$*`."""
        if quoted and is_joined:
            between = self.environment.get("IFS", DEFAULT_IFS)[:1]
            return [(between.join(self.positional), True, False)]
        pieces: list[Piece | None] = []
        for number, value in enumerate(self.positional):
            pieces += [None] if number else []
            pieces.append((value, quoted, not quoted))
        return pieces

    async def _default(self, part: WordPart, value: str | None) -> list[Piece | None]:
        """`${x:-word}`, `${x:=word}`, `${x:?word}`, `${x:+word}`; without colon if only unset."""
        is_set = value is not None and (value != "" or part.operator[0] != ":")
        verb = part.operator[-1]
        if verb == "+":
            return await self._pieces(part.operand, splits_text=True) if is_set else []
        if is_set:
            return [(value or "", part.quoted, not part.quoted)]
        if verb == "-":
            return await self._pieces(part.operand, splits_text=True)
        text = await self.text_of(part.operand)
        if verb == "?":
            self.complain(f"{part.text}: {text or 'parameter null or not set'}")
            raise ShellFailure(1)
        self.assign(part.text, text)
        return [(text, part.quoted, not part.quoted)]

    async def _replaced(self, value: str, part: WordPart) -> str:
        """`${x/pattern/text}`, or `//` for each occurrence."""
        pattern = (await self.field_of(part.operand)).pattern
        text = await self.text_of(part.replacement)
        anchors = {"#": "^", "%": "$"}.get(pattern[:1], "")
        if not pattern[bool(anchors) :]:
            return value
        compiled = compile_glob(pattern[bool(anchors) :], anchors)
        count = 0 if part.operator == "//" else 1
        replaced = compiled.sub(lambda _: text, value, count)
        if len(replaced) > MAX_LENGTH:
            raise OSError(12, "Cannot allocate memory", part.text)
        return replaced

    def _sliced(self, value: str, operand: str) -> str:
        """`${x:offset:length}`."""
        start_text, colon, length_text = operand.partition(":")
        start = self.number(start_text)
        start = max(0, len(value) + start) if start < 0 else start
        if not colon:
            return value[start:]
        length = self.number(length_text)
        return value[start : start + length] if length >= 0 else value[start : len(value) + length]
