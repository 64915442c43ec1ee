"""The syntax tree of shell scripts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["text", "name", "script", "arithmetic"]

MAX_NESTING = 40
"""Maximum nesting depth of scripts."""


class ShellSyntaxError(Exception):
    """The script is invalid; the shell prints the message."""

    def __init__(self, message: str, *, is_incomplete: bool = False) -> None:
        super().__init__(message)
        self.is_incomplete = is_incomplete


class WordPart(NamedTuple):
    """A literal or an expansion within a word."""

    kind: Kind
    """`text` is literal; `name` is replaced by a parameter's value, `script` by a script's output
    and `arithmetic` by the value of an expression."""
    text: str
    quoted: bool
    """Whether the part is quoted: neither split at spaces nor used as a pattern."""
    script: "Script" = ()
    operator: str = ""
    """Operator on a parameter, such as `:-`, `##` or `length`."""
    operand: "Word" = ()
    """Word after the operator, or the expression."""
    replacement: "Word" = ()
    """Replacement text of the operators `/` and `//`."""


Word = tuple[WordPart, ...]


@dataclass(slots=True, kw_only=True)
class Redirect:
    """`fd operator target`, such as `2>/dev/null`; the target of `<<` is the document."""

    fd: int
    operator: str
    target: Word


@dataclass(slots=True, kw_only=True, frozen=True)
class Assignment:
    """`name=value`, or `name+=value`."""

    name: str
    appends: bool
    value: Word


@dataclass(slots=True, kw_only=True, frozen=True)
class Group:
    """`{ body; }`, or `( body )` in a subshell."""

    body: "Script"
    is_subshell: bool = False


@dataclass(slots=True, kw_only=True, frozen=True)
class If:
    """`if condition; then body; elif ...; else ...; fi`; `else` has an empty condition."""

    branches: "Sequence[tuple[Script, Script]]"


@dataclass(slots=True, kw_only=True, frozen=True)
class Loop:
    """`while condition; do body; done`, or `until`."""

    condition: "Script"
    body: "Script"
    is_until: bool


@dataclass(slots=True, kw_only=True, frozen=True)
class For:
    """`for name in words; do body; done`; without words, loops over the positional parameters."""

    name: str
    words: Sequence[Word] | None
    body: "Script"


@dataclass(slots=True, kw_only=True, frozen=True)
class Case:
    """`case word in pattern | pattern) body ;; esac`."""

    word: Word
    arms: "Sequence[tuple[Sequence[Word], Script]]"


@dataclass(slots=True, kw_only=True, frozen=True)
class FunctionDefinition:
    """`name() body`, or `function name body`."""

    name: str
    body: "ShellCommand"


@dataclass(slots=True, kw_only=True, frozen=True)
class Conditional:
    """`[[ words ]]`, with operators as strings."""

    tokens: Sequence[Word | str]


@dataclass(slots=True, kw_only=True, frozen=True)
class Arithmetic:
    """`(( expression ))`."""

    expression: Word


Compound = Group | If | Loop | For | Case | FunctionDefinition | Conditional | Arithmetic


@dataclass(slots=True, kw_only=True)
class ShellCommand:
    """A parsed command: assignments and words, or a compound command."""

    assignments: list[Assignment] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    texts: list[str] | None = None
    """The words as text if none of them needs expansion, else None."""
    redirects: list[Redirect] = field(default_factory=list)
    compound: Compound | None = None


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """Commands joined by `|`, and the operator that joins them to the previous pipeline."""

    joint: str
    commands: list[ShellCommand]
    negated: bool = False
    background: bool = False
    never_waits: bool | None = None
    """Whether the commands wait only for each other; None until determined."""


Script = Sequence[Pipeline]
