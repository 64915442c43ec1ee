"""Expands the words of a script: variables, command substitution, file name patterns."""

import re
from collections.abc import Awaitable, Callable
from fnmatch import translate

from agentrl.virtual_phone.shell.syntax_tree import Word, WordPart
from agentrl.virtual_phone.system.file_system import FileSystem, normalize_path

PATTERN_CHARACTERS = frozenset("*?[")
"""Characters that make an unquoted word a pattern."""
_SPACE = " \t\n"


async def expand(word: Word, value_of: Callable[[WordPart], Awaitable[str]]) -> list["Field"]:
    """Expand a word into fields, splitting unquoted values at spaces.

    Args:
        word: as parsed.
        value_of: returns the value of a variable or the output of a script.
    """
    fields: list[Field] = []
    field: Field | None = None
    for part in word:
        if part.quoted or part.kind == "text":
            field = field or Field()
            field.add(part.text if part.kind == "text" else await value_of(part), part.quoted)
            continue
        value = await value_of(part)
        pieces = value.split()
        if field is not None and value[:1] in _SPACE and value:
            fields.append(field)
            field = None
        for number, piece in enumerate(pieces):
            field = field if field is not None and not number else Field()
            field.add(piece, quoted=False)
            if number < len(pieces) - 1 or value[-1] in _SPACE:
                fields.append(field)
                field = None
    return fields if field is None else [*fields, field]


class Field:
    """One argument of a command, assembled from pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._is_quoted: list[bool] = []

    def add(self, piece: str, quoted: bool) -> None:
        """Append a piece; a quoted piece is not a pattern."""
        self._pieces.append(piece)
        self._is_quoted.append(quoted)

    @property
    def text(self) -> str:
        """The concatenated pieces."""
        return "".join(self._pieces)

    def paths(self, files: FileSystem, folder: str) -> list[str]:
        """The paths that match the field as a pattern; the text itself if none does."""
        plain = True
        for piece, quoted in zip(self._pieces, self._is_quoted, strict=True):
            plain = plain and (quoted or PATTERN_CHARACTERS.isdisjoint(piece))
        return [self.text] if plain else _matching(self._pattern(), files, folder) or [self.text]

    def _pattern(self) -> str:
        """The text as a pattern in which quoted pieces are literal."""
        pieces = zip(self._pieces, self._is_quoted, strict=True)
        return "".join(re.sub(r"([*?\[])", r"[\1]", p) if quoted else p for p, quoted in pieces)


def _matching(pattern: str, files: FileSystem, folder: str) -> list[str]:
    """The existing paths that match, resolved component by component."""
    matches = ["/"] if pattern.startswith("/") else [""]
    for part in pattern.split("/"):
        if part:
            component = re.compile(translate(part))
            listings = [(f, _names(files, normalize_path(f or ".", folder))) for f in matches]
            matches = [
                f"{path}{'/' if path.strip('/') else ''}{name}"
                for path, names in listings
                for name in names
                if component.match(name) and (part[0] == "." or name[0] != ".")
            ]
    return sorted(matches)


def _names(files: FileSystem, folder: str) -> list[str]:
    try:
        return files.names(folder)
    except OSError:
        return []
