r"""Parses shell scripts into pipelines of commands.

::

    script   = pipeline { (";" | "&&" | "||" | "&" | newline) pipeline }
    pipeline = ["!"] command { "|" command }
    command  = { word | redirection } | ("(" script ")" | "{" script ";" "}") { redirection }

The rest of a real shell's language is not supported: `if`, `for` and other keywords are rejected
rather than taken for names of commands.
"""

from functools import lru_cache

from agentrl.virtual_phone.shell.lexer import ShellLexer
from agentrl.virtual_phone.shell.syntax_tree import (
    Pipeline,
    Redirect,
    Script,
    ShellCommand,
    ShellSyntaxError,
    Word,
    WordPart,
)

_UNSUPPORTED_KEYWORDS = frozenset((
    "if", "then", "elif", "else", "fi", "for", "in", "while", "until", "do", "done", "case",
    "esac", "function", "select", "time", "[[",
))  # fmt: skip


@lru_cache(maxsize=256)
def parse(script: str) -> Script:
    """Parse a script; the same scripts come again and again.

    Raises:
        ShellSyntaxError: a quote is not closed, an operator lacks an operand, or the syntax is
            not supported.
    """
    return _Parser(ShellLexer(script, _nested)).script(None)


def _nested(reader: ShellLexer) -> Script:
    """Parse the script of a `$(`, including its `)`."""
    return _Parser(reader).script(")")


class _Parser:
    """Builds pipelines from the tokens of a reader."""

    def __init__(self, reader: ShellLexer) -> None:
        self._reader = reader
        self._pipelines: list[Pipeline] = []
        self._joint = ";"
        self._open_pipe = False
        self._negated = False
        self._command = ShellCommand()

    def script(self, end: str | None) -> Script:
        """Parse until the token `end`; None parses to the end of the text."""
        while (token := self._reader.token()) is not None:
            word = _reserved(token)
            at_start = self._is_empty()
            if (isinstance(token, str) and token == end) or (word == end and word and at_start):
                return self._ended(end)
            if not isinstance(token, str):
                self._on_word(token, word if at_start else "")
            elif token.lstrip("0123456789")[:1] in ("<", ">") or token == "&>":
                self._command.redirects += self._redirects(token)
            elif token == "(":
                self._group(")", is_subshell=True)
            else:
                self._on_joint(token)
        if end is not None:
            raise ShellSyntaxError("syntax error: unexpected end of file")
        return self._ended(None)

    def _ended(self, end: str | None) -> Script:
        if not self._is_empty():
            self._append()
        elif self._open_pipe or self._joint in ("&&", "||") or self._negated:
            raise ShellSyntaxError(f"syntax error: unexpected '{end or 'end of file'}'")
        return self._pipelines

    def _is_empty(self) -> bool:
        command = self._command
        return not (command.words or command.redirects) and command.group is None

    def _on_word(self, token: Word, reserved: str) -> None:
        if self._command.group is not None:
            raise ShellSyntaxError(f"syntax error: unexpected '{_text(token)}'")
        if reserved == "!":
            self._negated = not self._negated
        elif reserved == "{":
            self._group("}", is_subshell=False)
        elif reserved == "}" or reserved in _UNSUPPORTED_KEYWORDS:
            raise ShellSyntaxError(f"syntax error: this shell does not support '{reserved}'")
        else:
            self._command.words.append(token)

    def _on_joint(self, token: str) -> None:
        if token == ")":
            raise ShellSyntaxError("syntax error: unexpected ')'")
        if self._is_empty():
            if token == "\n" and not self._negated:
                return
            raise ShellSyntaxError(f"syntax error: unexpected '{token}'")
        self._append()
        self._open_pipe = token == "|"
        self._pipelines[-1].background = token == "&"
        self._joint = token if token in ("&&", "||") else ";"

    def _append(self) -> None:
        if self._open_pipe:
            self._pipelines[-1].commands.append(self._command)
        else:
            commands = [self._command]
            joined = Pipeline(joint=self._joint, commands=commands, negated=self._negated)
            self._pipelines.append(joined)
        self._open_pipe, self._negated, self._command = False, False, ShellCommand()

    def _group(self, end: str, *, is_subshell: bool) -> None:
        if not self._is_empty():
            raise ShellSyntaxError("syntax error: unexpected '('")
        self._reader.depth += 1
        self._reader.check_depth()
        self._command.group = _Parser(self._reader).script(end)
        self._command.is_subshell = is_subshell
        self._reader.depth -= 1
        if not self._command.group:
            raise ShellSyntaxError(f"syntax error: unexpected '{end}'")

    def _redirects(self, operator: str) -> list[Redirect]:
        """Parse a redirection whose operator has been read; `&>` stands for two."""
        digits = operator[:1] if operator[0].isdigit() else ""
        operator = operator[len(digits) :]
        fd = int(digits) if digits else 0 if operator[0] == "<" else 1
        if operator[:2] in (">&", "<&"):
            target: Word = (WordPart(kind="text", text=operator[2:], quoted=True),)
            return [Redirect(fd=fd, operator=">&", target=target)]
        word = self._reader.token()
        if word is None or isinstance(word, str):
            raise ShellSyntaxError(f"syntax error: unexpected '{word or 'newline'}'")
        if operator in ("<<", "<>"):
            raise ShellSyntaxError(f"syntax error: this shell does not support '{operator}'")
        if operator == "&>":
            both: Word = (WordPart(kind="text", text="1", quoted=True),)
            return [
                Redirect(fd=1, operator=">", target=word),
                Redirect(fd=2, operator=">&", target=both),
            ]
        return [Redirect(fd=fd, operator=operator.rstrip("|"), target=word)]


def _reserved(token: Word | str) -> str:
    """The text of an unquoted one-part word, which may be a keyword; empty for other tokens."""
    if isinstance(token, str) or len(token) != 1:
        return ""
    part = token[0]
    return part.text if part.kind == "text" and not part.quoted else ""


def _text(word: Word) -> str:
    return "".join(part.text for part in word)
