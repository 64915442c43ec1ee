r"""The grammar of the phone's shell: words with quotes, pipes, lists and redirections.

::

    script   = pipeline { (";" | "&&" | "||" | "&" | newline) pipeline }
    pipeline = command { "|" command }
    command  = { word | redirection }
    word     = { literal | '...' | "..." | \x | $NAME | ${NAME} | $? | $(...) | `...` }
"""

import re
from dataclasses import dataclass, field
from typing import Literal

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
    """A quoted piece is never split at spaces."""


Word = tuple[Part, ...]


@dataclass(slots=True, kw_only=True, frozen=True)
class Redirect:
    """`fd operator target`, such as `2>/dev/null`."""

    fd: int
    operator: str
    target: Word


@dataclass(slots=True, kw_only=True)
class Command:
    """A simple command as written."""

    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """Commands joined by `|`, and what joins it to the pipeline before: `;`, `&&` or `||`."""

    joint: str
    commands: list[Command]


_OPERATOR = re.compile(r"\d?>>|\d?>&\d|\d?>|\d?<|&&|\|\||[;|&\n]")
_NAME = re.compile(r"\$(\?|[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\}|\{\?\})")
_PLAIN = re.compile(r"[^ \t\n'\"\\$`;&|<>]+")


def parse(script: str) -> list[Pipeline]:
    """Read a script.

    Raises:
        ShellSyntaxError: a quote is not closed, or an operator has nothing to join.
    """
    pipelines: list[Pipeline] = []
    joint, open_pipe, command = ";", False, Command()
    reader = _Reader(script)
    while (token := reader.token()) is not None:
        if not isinstance(token, str):
            command.words.append(token)
        elif token.lstrip("0123456789")[:1] in ("<", ">"):
            command.redirects.append(reader.redirect(token))
        else:
            empty = not (command.words or command.redirects)
            if empty and token == "\n":
                continue
            if empty:
                raise ShellSyntaxError(f"syntax error: unexpected '{token}'")
            _append(pipelines, joint, open_pipe, command)
            open_pipe, command = token == "|", Command()
            joint = token if token in ("&&", "||") else ";"
    if command.words or command.redirects:
        _append(pipelines, joint, open_pipe, command)
    elif open_pipe or joint != ";":
        raise ShellSyntaxError("syntax error: unexpected end of file")
    return pipelines


def _append(pipelines: list[Pipeline], joint: str, open_pipe: bool, command: Command) -> None:
    if open_pipe:
        pipelines[-1].commands.append(command)
    else:
        pipelines.append(Pipeline(joint=joint, commands=[command]))


class _Reader:
    """Cuts a script into words and operators."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._at = 0

    def token(self) -> Word | str | None:
        """The next operator or word; None at the end."""
        self._skip_blanks()
        if self._at >= len(self._script):
            return None
        if operator := _OPERATOR.match(self._script, self._at):
            self._at = operator.end()
            return operator.group()
        return self._word()

    def redirect(self, operator: str) -> Redirect:
        """The rest of a redirection whose operator was read."""
        digits = operator[:1] if operator[0].isdigit() else ""
        operator = operator[len(digits) :]
        fd = int(digits) if digits else 0 if operator == "<" else 1
        if operator.startswith(">&"):
            target: Word = (Part(kind="text", text=operator[2:], quoted=True),)
            return Redirect(fd=fd, operator=">&", target=target)
        word = self.token()
        if word is None or isinstance(word, str):
            raise ShellSyntaxError(f"syntax error: unexpected '{word or 'newline'}'")
        return Redirect(fd=fd, operator=operator, target=word)

    def _skip_blanks(self) -> None:
        script = self._script
        while self._at < len(script):
            if script.startswith("\\\n", self._at):
                self._at += 2
            elif script[self._at] in " \t":
                self._at += 1
            elif script[self._at] == "#":
                end = script.find("\n", self._at)
                self._at = len(script) if end < 0 else end
            else:
                return

    def _word(self) -> Word:
        parts: list[Part] = []
        script = self._script
        while self._at < len(script):
            here = script[self._at]
            if here in " \t\n;&|<>":
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
                plain = _PLAIN.match(script, self._at)
                assert plain is not None, script
                self._at = plain.end()
                parts.append(Part(kind="text", text=plain.group(), quoted=False))
        return tuple(parts)

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
            elif here == "\\" and script[self._at + 1 : self._at + 2] in ("$", "`", '"', "\\"):
                parts.append(self._escaped())
            else:
                self._at += 1
                parts.append(Part(kind="text", text=here, quoted=True))
        raise ShellSyntaxError("no closing quote")

    def _expansion(self, *, quoted: bool) -> Part:
        """A `$` or a backtick and what belongs to it."""
        script = self._script
        if name := _NAME.match(script, self._at):
            self._at = name.end()
            return Part(kind="name", text=name.group(1).strip("{}"), quoted=quoted)
        if script[self._at] == "`":
            end = script.find("`", self._at + 1)
            start, after = self._at + 1, end + 1
        elif script.startswith("$(", self._at):
            start, end = self._at + 2, self._closing(self._at + 2)
            after = end + 1
        else:
            self._at += 1
            return Part(kind="text", text="$", quoted=quoted)
        if end < 0:
            raise ShellSyntaxError("no closing quote")
        self._at = after
        return Part(kind="script", text=script[start:end], quoted=quoted)

    def _closing(self, start: int) -> int:
        """Where the `)` of a `$(` stands; -1 if nowhere. Quotes in it are skipped as a whole."""
        depth, at, script = 1, start, self._script
        while at < len(script):
            if script[at] == "\\":
                at += 1
            elif script[at] in "'\"":
                at = script.find(script[at], at + 1)
                if at < 0:
                    return -1
            elif script[at] in "()":
                depth += 1 if script[at] == "(" else -1
                if not depth:
                    return at
            at += 1
        return -1
