"""Split expanded words into fields, the arguments of a command."""

import re
from collections.abc import Iterable
from functools import lru_cache

from virtual_phone.shell.glob_patterns import matching_paths
from virtual_phone.shell.syntax_tree import WordPart
from virtual_phone.system.file_system import FileSystem

PATTERN_CHARACTERS = frozenset("*?[")
"""Characters that turn an unquoted word into a pattern."""
BRACES = re.compile(r"\{[^{},]*,[^{}]*\}")
"""`{a,b}`, which mksh would expand but this shell rejects."""
_SPECIAL = re.compile(r"[*?\[{~]")
DEFAULT_IFS = " \t\n"
MAX_LENGTH = 1 << 20
"""Maximum length of a word or of a variable's value."""
Piece = tuple[str, bool, bool]
"""Text, whether it is quoted, and whether to split it into fields."""


def is_literal(part: WordPart) -> bool:
    """Return whether a part of a word needs no expansion."""
    return part.kind == "text" and (part.quoted or not _SPECIAL.search(part.text))


class Field:
    """An argument of a command, assembled from pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._is_quoted: list[bool] = []
        self._length = 0

    def add(self, piece: str, quoted: bool) -> None:
        """Append a piece; quoted pieces are literal in patterns."""
        self._pieces.append(piece)
        self._is_quoted.append(quoted)
        self._length += len(piece)
        if self._length > MAX_LENGTH:
            raise OSError(12, "Cannot allocate memory", self._pieces[0][:50])

    @property
    def text(self) -> str:
        """Concatenated pieces."""
        return "".join(self._pieces)

    def paths(self, files: FileSystem, folder: str) -> list[str]:
        """Return the paths that match the field as a pattern, or its text if no path matches."""
        plain = True
        for piece, quoted in zip(self._pieces, self._is_quoted, strict=True):
            plain = plain and (quoted or PATTERN_CHARACTERS.isdisjoint(piece))
        return [self.text] if plain else matching_paths(self.pattern, files, folder) or [self.text]

    @property
    def pattern(self) -> str:
        """Text as a pattern in which quoted pieces are literal."""
        pieces = zip(self._pieces, self._is_quoted, strict=True)
        return "".join(re.sub(r"([*?\[\\])", r"\\\1", p) if quoted else p for p, quoted in pieces)


def fields_of(pieces: Iterable[Piece | None], ifs: str) -> list[Field]:
    """Assemble pieces into fields, splitting as marked; None separates two fields."""
    fields: list[Field] = []
    field: Field | None = None
    for piece in pieces:
        if piece is None:
            fields += [field] if field is not None else []
            field = None
            continue
        text, quoted, splits = piece
        if not splits:
            field = field or Field()
            field.add(text, quoted)
            continue
        starts, parts, ends = _split(text, ifs)
        if starts and field is not None:
            fields.append(field)
            field = None
        for number, part in enumerate(parts):
            field = field if field is not None and not number else Field()
            field.add(part, quoted=False)
            if number < len(parts) - 1 or ends:
                fields.append(field)
                field = None
    return fields if field is None else [*fields, field]


def _split(value: str, ifs: str) -> tuple[bool, list[str], bool]:
    """Split at the separators; also return whether the value starts and ends with a separator."""
    if ifs == DEFAULT_IFS:
        return value[:1].isspace(), value.split(), value[-1:].isspace()
    if not ifs or not value:
        return False, [value] if value else [], False
    blanks, separator = field_separator(ifs)
    parts = separator.split(value.strip(blanks) if blanks else value)
    ends = value[-1] in ifs
    if ends and parts and not parts[-1]:
        parts.pop()
    return bool(blanks) and value[0] in blanks, parts, ends


@lru_cache(maxsize=64)
def field_separator(ifs: str) -> tuple[str, re.Pattern[str]]:
    """Return the blanks of a non-empty `$IFS`, and the pattern of what separates two fields."""
    blanks = "".join(c for c in ifs if c.isspace())
    blank = f"[{re.escape(blanks)}]*" if blanks else ""
    return blanks, re.compile(f"{blank}[{re.escape(ifs)}]{blank}")
