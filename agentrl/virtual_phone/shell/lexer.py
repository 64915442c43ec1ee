r"""Splits shell scripts into words and operators.

::

    word = { literal | '...' | "..." | \x | $NAME | ${NAME} | $? | $(...) | `...` }

Every character is read once, however deeply scripts are nested.
"""

import re
from collections.abc import Callable

from agentrl.virtual_phone.shell.syntax_tree import (
    MAX_NESTING,
    Script,
    ShellSyntaxError,
    Word,
    WordPart,
)

_OPERATOR = re.compile(
    r"\d?>>|\d?>\||\d?>&(?:\d|-)|&>|\d?<&\d|\d?<<|\d?<>|\d?>|\d?<|&&|\|\||[;|&\n()]"
)
_BLANKS = re.compile(r"(?:[ \t]+|\\\n)+(?:#[^\n]*)?|#[^\n]*")
_NAME = re.compile(r"\$(\?|\$|#|[A-Za-z_][A-Za-z0-9_]*|\{(?:[A-Za-z_][A-Za-z0-9_]*|\?|#)\})")
_PLAIN = re.compile(r"[^ \t\n'\"\\$`;&|<>()]+")
_PLAIN_IN_QUOTES = re.compile(r"[^\"$`\\]+")
_PLAIN_IN_BACKTICKS = re.compile(r"[^`\\]+")


class ShellLexer:
    """Splits a script into words and operators."""

    def __init__(
        self, script: str, nested: Callable[["ShellLexer"], Script], depth: int = 0
    ) -> None:
        """Start at the beginning.

        Args:
            script: text to split.
            nested: parses the script of a `$(`, including its `)`.
            depth: nesting depth of the script.

        Raises:
            ShellSyntaxError: the script is nested too deeply.
        """
        self.depth = depth
        self._script = script
        self._nested = nested
        self._at = 0
        self.check_depth()

    def check_depth(self) -> None:
        """Check the nesting depth.

        Raises:
            ShellSyntaxError: the script is nested too deeply.
        """
        if self.depth > MAX_NESTING:
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
        parts: list[WordPart] = []
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

    def _plain(self, pattern: re.Pattern[str], *, quoted: bool) -> WordPart:
        match = pattern.match(self._script, self._at)
        assert match is not None, self._script[self._at :]
        self._at = match.end()
        return WordPart(kind="text", text=match.group(), quoted=quoted)

    def _single_quoted(self) -> WordPart:
        end = self._script.find("'", self._at + 1)
        if end < 0:
            raise ShellSyntaxError("no closing quote")
        text = self._script[self._at + 1 : end]
        self._at = end + 1
        return WordPart(kind="text", text=text, quoted=True)

    def _escaped(self) -> WordPart:
        text = self._script[self._at + 1 : self._at + 2]
        self._at += 2
        return WordPart(kind="text", text="" if text == "\n" else text or "\\", quoted=True)

    def _double_quoted(self) -> list[WordPart]:
        self._at += 1
        parts = [WordPart(kind="text", text="", quoted=True)]
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
                parts.append(WordPart(kind="text", text="\\", quoted=True))
        raise ShellSyntaxError("no closing quote")

    def _expansion(self, *, quoted: bool) -> WordPart:
        """An expansion that starts with a `$` or a backtick."""
        script = self._script
        if name := _NAME.match(script, self._at):
            self._at = name.end()
            return WordPart(kind="name", text=name.group(1).strip("{}"), quoted=quoted)
        if script[self._at] == "`":
            return self._backticks(quoted=quoted)
        if script.startswith("$((", self._at):
            raise ShellSyntaxError("syntax error: this shell does not support arithmetic")
        if script.startswith("$(", self._at):
            self._at += 2
            self.depth += 1
            self.check_depth()
            inner = self._nested(self)
            self.depth -= 1
            return WordPart(kind="script", text="", quoted=quoted, script=inner)
        if script.startswith("${", self._at):
            end = script.find("}", self._at, self._at + 200)
            raise ShellSyntaxError(f"{script[self._at : end + 1]}: bad substitution")
        if script.startswith("$'", self._at) and not quoted:
            raise ShellSyntaxError("syntax error: this shell does not support $'...'")
        self._at += 1
        return WordPart(kind="text", text="$", quoted=quoted)

    def _backticks(self, *, quoted: bool) -> WordPart:
        """A script between backticks; in it, a backslash escapes `, $ and itself."""
        script, inner = self._script, []
        self._at += 1
        while self._at < len(script) and script[self._at] != "`":
            if script[self._at] == "\\":
                escaped = script[self._at + 1 : self._at + 2]
                inner.append(escaped if escaped in ("`", "$", "\\") else "\\" + escaped)
                self._at += 2
            else:
                inner.append(self._plain(_PLAIN_IN_BACKTICKS, quoted=True).text)
        if self._at >= len(script):
            raise ShellSyntaxError("no closing quote")
        self._at += 1
        # The added `)` ends the inner script.
        nested = self._nested(ShellLexer("".join(inner) + ")", self._nested, self.depth + 1))
        return WordPart(kind="script", text="", quoted=quoted, script=nested)
