"""The syntax tree of shell scripts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["text", "name", "script"]

MAX_NESTING = 40
"""Deepest nesting of scripts."""


class ShellSyntaxError(Exception):
    """The script is invalid; the message is what the shell prints."""


@dataclass(slots=True, kw_only=True, frozen=True)
class WordPart:
    """A piece of a word."""

    kind: Kind
    """`text` is literal, `name` stands for a variable's value, `script` for a script's output."""
    text: str
    quoted: bool
    """A quoted part is neither split at spaces nor used as a pattern."""
    script: "Script" = ()


Word = tuple[WordPart, ...]


@dataclass(slots=True, kw_only=True, frozen=True)
class Redirect:
    """`fd operator target`, such as `2>/dev/null`."""

    fd: int
    operator: str
    target: Word


@dataclass(slots=True, kw_only=True)
class ShellCommand:
    """A parsed command: words, or a script in parentheses or braces."""

    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    group: "Script | None" = None
    is_subshell: bool = False


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """Commands joined by `|`, and the operator that joins it to the previous pipeline."""

    joint: str
    commands: list[ShellCommand]
    negated: bool = False
    background: bool = False
    never_waits: bool | None = None
    """Whether the commands wait for nothing but each other, once that has been found out."""


Script = Sequence[Pipeline]
