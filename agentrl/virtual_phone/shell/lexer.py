r"""Words and operators of the phone's shell.

::

    word = { literal | '...' | "..." | $'...' | \x | $NAME | ${NAME} | $? | $(...) | `...` }

Every character is looked at once, however deep scripts are nested in words.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from agentrl.virtual_phone.shell.shell_parser import Script

Kind = Literal["text", "name", "script"]


class ShellSyntaxError(Exception):
    """The script cannot be read; the message is what the shell says."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Part:
    """A piece of a word."""

    kind: Kind
    """`text` stands for itself, `name` for a variable's value, `script` for its output."""
    text: str
    quoted: bool
    """A quoted piece is never split at spaces, nor is it a pattern."""
    script: "Script" = ()


Word = tuple[Part, ...]

DEEPEST = 40
"""Scripts in scripts, at most."""

_OPERATOR = re.compile(
    r"\d?>>|\d?>\||\d?>&(?:\d|-)|&>|\d?<&\d|\d?<<|\d?<>|\d?>|\d?<|&&|\|\||[;|&\n()]"
)
_BLANKS = re.compile(r"(?:[ \t]+|\\\n)+(?:#[^\n]*)?|#[^\n]*")
_NAME = re.compile(r"\$(\?|\$|#|[A-Za-z_][A-Za-z0-9_]*|\{(?:[A-Za-z_][A-Za-z0-9_]*|\?|#)\})")
_PLAIN = re.compile(r"[^ \t\n'\"\\$`;&|<>()]+")
_PLAIN_IN_QUOTES = re.compile(r"[^\"$`\\]+")
_PLAIN_IN_BACKTICKS = re.compile(r"[^`\\]+")
_ANSI_C = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "v": "\v",
}


class Reader:
    """Cuts a script into words and operators."""

    def __init__(self, script: str, nested: Callable[["Reader"], "Script"], depth: int = 0) -> None:
        """Start at the beginning.

        Args:
            script: to read.
            nested: reads the script of a `$(`, up to and with its `)`.
            depth: of the script in others.

        Raises:
            ShellSyntaxError: it is nested too deeply.
        """
        self.depth = depth
        self._script = script
        self._nested = nested
        self._at = 0
        self.check_depth()

    def check_depth(self) -> None:
        """Refuse to go deeper than any script that is meant.

        Raises:
            ShellSyntaxError: it is nested too deeply.
        """
        if self.depth > DEEPEST:
            raise ShellSyntaxError("syntax error: nested too deeply")

    def token(self) -> Word | str | None:
        """The next operator or word; None at the end."""
        if blanks := _BLANKS.match(self._script, self._at):
            self._at = blanks.end()
        if self._at >= len(self._script):
            return None
        if operator := _OPERATOR.match(self._script, self._at):
            self._at = operator.end()
            return operator.group()
        return self._word()

    def _word(self) -> Word:
        parts: list[Part] = []
        script = self._script
        while self._at < len(script):
            here = script[self._at]
            if here in " \t\n;&|<>()":
                break
            if here == "'":
                parts.append(self._single_quoted())
            elif here == '"':
                parts += self._double_quoted()
            elif here in "$`":
                parts.append(self._expansion(quoted=False))
            elif here == "\\":
                parts.append(self._escaped())
            else:
                parts.append(self._plain(_PLAIN, quoted=False))
        return tuple(parts)

    def _plain(self, pattern: re.Pattern[str], *, quoted: bool) -> Part:
        found = pattern.match(self._script, self._at)
        assert found is not None, self._script[self._at :]
        self._at = found.end()
        return Part(kind="text", text=found.group(), quoted=quoted)

    def _single_quoted(self) -> Part:
        end = self._script.find("'", self._at + 1)
        if end < 0:
            raise ShellSyntaxError("no closing quote")
        text = self._script[self._at + 1 : end]
        self._at = end + 1
        return Part(kind="text", text=text, quoted=True)

    def _escaped(self) -> Part:
        text = self._script[self._at + 1 : self._at + 2]
        self._at += 2
        return Part(kind="text", text="" if text == "\n" else text or "\\", quoted=True)

    def _double_quoted(self) -> list[Part]:
        self._at += 1
        parts = [Part(kind="text", text="", quoted=True)]
        script = self._script
        while self._at < len(script):
            here = script[self._at]
            if here == '"':
                self._at += 1
                return parts
            if here in "$`":
                parts.append(self._expansion(quoted=True))
            elif here != "\\":
                parts.append(self._plain(_PLAIN_IN_QUOTES, quoted=True))
            elif script[self._at + 1 : self._at + 2] in ("$", "`", '"', "\\", "\n"):
                parts.append(self._escaped())
            else:
                self._at += 1
                parts.append(Part(kind="text", text="\\", quoted=True))
        raise ShellSyntaxError("no closing quote")

    def _expansion(self, *, quoted: bool) -> Part:
        """A `$` or a backtick and what belongs to it."""
        script = self._script
        if name := _NAME.match(script, self._at):
            self._at = name.end()
            return Part(kind="name", text=name.group(1).strip("{}"), quoted=quoted)
        if script[self._at] == "`":
            return self._backticks(quoted=quoted)
        if script.startswith("$((", self._at):
            raise ShellSyntaxError("syntax error: arithmetic is not known to this shell")
        if script.startswith("$(", self._at):
            self._at += 2
            self.depth += 1
            self.check_depth()
            inner = self._nested(self)
            self.depth -= 1
            return Part(kind="script", text="", quoted=quoted, script=inner)
        if script.startswith("${", self._at):
            end = script.find("}", self._at, self._at + 200)
            raise ShellSyntaxError(f"{script[self._at : end + 1]}: bad substitution")
        if script.startswith("$'", self._at) and not quoted:
            return self._ansi_quoted()
        self._at += 1
        return Part(kind="text", text="$", quoted=quoted)

    def _backticks(self, *, quoted: bool) -> Part:
        """A script between backticks; a backslash in it saves `, $ and itself."""
        script, inner = self._script, []
        self._at += 1
        while self._at < len(script) and script[self._at] != "`":
            if script[self._at] == "\\":
                saved = script[self._at + 1 : self._at + 2]
                inner.append(saved if saved in ("`", "$", "\\") else "\\" + saved)
                self._at += 2
            else:
                inner.append(self._plain(_PLAIN_IN_BACKTICKS, quoted=True).text)
        if self._at >= len(script):
            raise ShellSyntaxError("no closing quote")
        self._at += 1
        # Nothing follows the inner script, so that it is read to its end.
        nested = self._nested(Reader("".join(inner) + ")", self._nested, self.depth + 1))
        return Part(kind="script", text="", quoted=quoted, script=nested)

    def _ansi_quoted(self) -> Part:
        start = at = self._at + 2
        while at < len(self._script) and self._script[at] != "'":
            at += 2 if self._script[at] == "\\" else 1
        if at >= len(self._script):
            raise ShellSyntaxError("no closing quote")
        self._at = at + 1
        text = _ANSI_C.sub(_meaning, self._script[start:at])
        return Part(kind="text", text=text, quoted=True)


def _meaning(escape: re.Match[str]) -> str:
    """What a backslash sequence in `$'...'` stands for."""
    hexadecimal, unicode, octal, letter = escape.groups()
    if unicode:
        character = chr(int(unicode, 16))
        return "\ufffd" if "\ud800" <= character <= "\udfff" else character
    if hexadecimal or octal:
        byte = int(hexadecimal, 16) if hexadecimal else int(octal, 8) & 0xFF
        return bytes([byte]).decode("utf-8", "surrogateescape")
    return _ESCAPES.get(letter, letter)
