r"""Split shell scripts into words and operators.

::

    word = { literal | '...' | $'...' | "..." | \x | $NAME | ${NAME op word} | $((...)) | $(...)
             | `...` }

Every character is read once, however deeply scripts are nested, except that a `((` is first scanned
for its end.
"""

import re
from collections.abc import Callable

from virtual_phone.shell.syntax_tree import (
    MAX_NESTING,
    Redirect,
    Script,
    ShellSyntaxError,
    Word,
    WordPart,
)

_OPERATOR = re.compile(
    r"\d?>>|\d?>\||\d?>&(?:\d|-)|&>|\d?<&(?:\d|-)|<<<|\d?<<-?|\d?>|\d?<|"
    r"&&|\|\||;;|;&|[;|&\n()]"
)
_BLANKS = re.compile(r"(?:[ \t]+|\\\n)+(?:#[^\n]*)?|#[^\n]*")
_NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")
_LENGTH = re.compile(r"\$\{#([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*])\}")
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])(\}|:?[-=?+]|##?|%%?|//?|:)")
_PLAIN = re.compile(r"[^ \t\n'\"\\$`;&|<>()]+")
_PLAIN_WORD = re.compile(_PLAIN.pattern + r"+(?=[ \t\n;&|<>()]|\Z)")
_PLAIN_IN_QUOTES = re.compile(r"[^\"$`\\]+")
_PLAIN_IN_BACKTICKS = re.compile(r"[^`\\]+")
_PLAIN_IN_OPERAND = re.compile(r"[^'\"\\$`}/]+|['/}]")
_PLAIN_IN_ARITHMETIC = re.compile(r"[^$`()\\]+")
_PARENTHESES = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|[()]""", re.DOTALL)
_C_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|([0-7]{1,3})|([\s\S]))|([^\\']+)"
)
C_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"} | {
    "e": "\x1b", "E": "\x1b", "\\": "\\"
}  # fmt: skip
"""Characters by the letter that follows a backslash."""


class ShellLexer:
    """Splits a script into words and operators."""

    def __init__(
        self,
        script: str,
        nested: Callable[["ShellLexer"], Script],
        depth: int = 0,
    ) -> None:
        self.depth = depth
        self._script = script
        self._nested = nested
        self._at = 0
        self._documents: list[tuple[Redirect, str, bool]] = []
        """Here-documents whose text starts after the current line."""
        self.check_depth()

    def check_depth(self) -> None:
        """Raise if scripts are nested too deeply."""
        if self.depth > MAX_NESTING:
            raise ShellSyntaxError("syntax error: nested too deeply")

    def token(self) -> Word | str | None:
        """Return the next operator or word; None at the end."""
        if blanks := _BLANKS.match(self._script, self._at):
            self._at = blanks.end()
        if self._at >= len(self._script):
            self._read_documents()
            return None
        if operator := _OPERATOR.match(self._script, self._at):
            self._at = operator.end()
            if operator.group() == "\n":
                self._read_documents()
            return operator.group()
        if plain := _PLAIN_WORD.match(self._script, self._at):
            self._at = plain.end()
            return (WordPart(kind="text", text=plain.group(), quoted=False),)
        return self._word()

    def arithmetic_command(self) -> Word | None:
        """Read the rest of a `((` expression after its first parenthesis; None if it is not one."""
        if not (self._script.startswith("(", self._at) and self._is_arithmetic(self._at + 1)):
            return None
        self._at += 1
        return self._arithmetic()

    def expect_document(self, redirect: Redirect) -> None:
        """Set the target of a `<<` once its text, which starts after this line, has been read."""
        delimiter = "".join(part.text for part in redirect.target)
        is_literal = any(part.quoted for part in redirect.target)
        self._documents.append((redirect, delimiter, is_literal))

    def _is_arithmetic(self, start: int) -> bool:
        """Return whether the `((` before `start` is closed by `))`, not by two separate `)`."""
        num_open = 2
        for found in _PARENTHESES.finditer(self._script, start):
            num_open += {"(": 1, ")": -1}.get(found.group(), 0)
            if num_open == 1:
                return self._script.startswith(")", found.end())
        return False

    def _read_documents(self) -> None:
        documents, self._documents = self._documents, []
        for redirect, delimiter, is_literal in documents:
            lines: list[str] = []
            while True:
                if self._at >= len(self._script):
                    raise ShellSyntaxError(
                        f"here document '{delimiter}' unclosed", is_incomplete=True
                    )
                end = self._script.find("\n", self._at) % (len(self._script) + 1)
                line, self._at = self._script[self._at : end], end + 1
                line = line.lstrip("\t") if redirect.operator == "<<-" else line
                if line == delimiter:
                    break
                lines.append(line + "\n")
            text = "".join(lines)
            literal: Word = (WordPart(kind="text", text=text, quoted=True),)
            inner = ShellLexer(text, self._nested, self.depth + 1)
            redirect.target = literal if is_literal else tuple(inner._quoted(end=None))

    def _word(self) -> Word:
        parts: list[WordPart] = []
        script = self._script
        while self._at < len(script):
            if script[self._at] in " \t\n;&|<>()":
                break
            parts += self._parts(_PLAIN, quoted=False)
        return tuple(parts)

    def _parts(self, plain: re.Pattern[str], *, quoted: bool) -> list[WordPart]:
        """Read the next parts of a word; `plain` matches text without quotes or expansions."""
        here = self._script[self._at]
        if here == '"':
            self._at += 1
            return self._quoted(end='"')
        if here in "$`":
            return [self._expansion(quoted=quoted)]
        if here == "\\":
            return [self._escaped()]
        if here == "'" and not quoted:
            return [self._single_quoted()]
        return [self._plain(plain, quoted=quoted)]

    def _plain(self, pattern: re.Pattern[str], *, quoted: bool) -> WordPart:
        match = pattern.match(self._script, self._at)
        assert match is not None, self._script[self._at :]
        self._at = match.end()
        return WordPart(kind="text", text=match.group(), quoted=quoted)

    def _single_quoted(self) -> WordPart:
        end = self._script.find("'", self._at + 1)
        if end < 0:
            raise ShellSyntaxError("no closing quote", is_incomplete=True)
        text = self._script[self._at + 1 : end]
        self._at = end + 1
        return WordPart(kind="text", text=text, quoted=True)

    def _c_quoted(self) -> WordPart:
        """Read `$'...'`, with C escapes."""
        self._at += 2
        pieces: list[str] = []
        while not self._script.startswith("'", self._at):
            found = _C_ESCAPE.match(self._script, self._at)
            if found is None:
                raise ShellSyntaxError("no closing quote", is_incomplete=True)
            self._at = found.end()
            byte, character, octal, letter, plain = found.groups()
            code = int(byte or character, 16) if byte or character else int(octal or "0", 8)
            escaped = C_ESCAPES.get(letter, letter) if letter else chr(code & 0xFFFF)
            pieces.append(plain or escaped)
        self._at += 1
        return WordPart(kind="text", text="".join(pieces), quoted=True)

    def _escaped(self) -> WordPart:
        text = self._script[self._at + 1 : self._at + 2]
        self._at += 2
        return WordPart(kind="text", text="" if text == "\n" else text or "\\", quoted=True)

    def _quoted(self, end: str | None) -> list[WordPart]:
        """Read the rest of a double-quoted string, or of a here-document if `end` is None."""
        parts = [WordPart(kind="text", text="", quoted=True)]
        script = self._script
        while self._at < len(script):
            here = script[self._at]
            if here == '"':
                self._at += 1
                if end == '"':
                    return parts
                parts.append(WordPart(kind="text", text='"', quoted=True))
            elif here in "$`":
                parts.append(self._expansion(quoted=True))
            elif here != "\\":
                parts.append(self._plain(_PLAIN_IN_QUOTES, quoted=True))
            elif script[self._at + 1 : self._at + 2] in ("$", "`", end, "\\", "\n"):
                parts.append(self._escaped())
            else:
                self._at += 1
                parts.append(WordPart(kind="text", text="\\", quoted=True))
        if end is not None:
            raise ShellSyntaxError("no closing quote", is_incomplete=True)
        return parts

    def _expansion(self, *, quoted: bool) -> WordPart:
        """Read an expansion that starts with `$` or a backtick."""
        script = self._script
        if name := _NAME.match(script, self._at):
            self._at = name.end()
            return WordPart(kind="name", text=name.group(1), quoted=quoted)
        if script[self._at] == "`":
            return self._backticks(quoted=quoted)
        if script.startswith("$((", self._at) and self._is_arithmetic(self._at + 3):
            self._at += 3
            expression = self._arithmetic()
            return WordPart(kind="arithmetic", text="", quoted=quoted, operand=expression)
        if script.startswith("$(", self._at):
            self._at += 2
            self.depth += 1
            self.check_depth()
            inner = self._nested(self)
            self.depth -= 1
            return WordPart(kind="script", text="", quoted=quoted, script=inner)
        if script.startswith("${", self._at):
            return self._braced(quoted=quoted)
        if script.startswith("$'", self._at) and not quoted:
            return self._c_quoted()
        self._at += 1
        return WordPart(kind="text", text="$", quoted=quoted)

    def _braced(self, *, quoted: bool) -> WordPart:
        """Read `${NAME}`, `${#NAME}` or `${NAME operator word}`."""
        if found := _LENGTH.match(self._script, self._at):
            self._at = found.end()
            return WordPart(kind="name", text=found[1], quoted=quoted, operator="length")
        found = _BRACED.match(self._script, self._at)
        if found is None:
            end = self._script.find("}", self._at, self._at + 200)
            raise ShellSyntaxError(f"{self._script[self._at : end + 1]}: bad substitution")
        self._at = found.end()
        name, operator = found.groups()
        if operator == "}":
            return WordPart(kind="name", text=name, quoted=quoted)
        self.depth += 1
        self.check_depth()
        is_value = operator[-1] in "-=?+"
        is_replacing = operator in ("/", "//")
        operand = self._operand(quoted=quoted and is_value, ends="/}" if is_replacing else "}")
        replacement: Word = ()
        if is_replacing and self._script[self._at - 1] == "/":
            replacement = self._operand(quoted=False, ends="}")
        self.depth -= 1
        return WordPart(
            kind="name", text=name, quoted=quoted, operator=operator, operand=operand,
            replacement=replacement,
        )  # fmt: skip

    def _operand(self, *, quoted: bool, ends: str) -> Word:
        """Read the word after a parameter's operator, and the character that ends it."""
        parts: list[WordPart] = []
        while self._at < len(self._script):
            here = self._script[self._at]
            if here in ends:
                self._at += 1
                return tuple(parts)
            parts += self._parts(_PLAIN_IN_OPERAND, quoted=quoted)
        raise ShellSyntaxError("no closing '}'", is_incomplete=True)

    def _arithmetic(self) -> Word:
        """Read an expression and its closing `))`."""
        parts: list[WordPart] = []
        num_open = 0
        while self._at < len(self._script):
            here = self._script[self._at]
            if here == ")" and not num_open:
                self._at += 2
                return tuple(parts)
            if here in "$`":
                parts.append(self._expansion(quoted=True))
            elif here in "()\\":
                num_open += (here == "(") - (here == ")")
                self._at += 1
                parts.append(WordPart(kind="text", text=here, quoted=True))
            else:
                parts.append(self._plain(_PLAIN_IN_ARITHMETIC, quoted=True))
        raise ShellSyntaxError("syntax error: missing ))", is_incomplete=True)

    def _backticks(self, *, quoted: bool) -> WordPart:
        """Read a script between backticks, in which a backslash escapes `, $ and itself."""
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
            raise ShellSyntaxError("no closing quote", is_incomplete=True)
        self._at += 1
        # The added `)` ends the inner script.
        nested = self._nested(ShellLexer("".join(inner) + "\n)", self._nested, self.depth + 1))
        return WordPart(kind="script", text="", quoted=quoted, script=nested)
