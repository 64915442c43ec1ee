"""What the words of a script become: variables, outputs of scripts, patterns of file names."""

import re
from collections.abc import Awaitable, Callable
from fnmatch import translate

from agentrl.virtual_phone.shell.lexer import Part, Word
from agentrl.virtual_phone.system.file_system import Files, normal

MAGIC = frozenset("*?[")
"""What makes a pattern of a word that is not quoted."""
_SPACE = " \t\n"


async def expand(word: Word, value_of: Callable[[Part], Awaitable[str]]) -> list["Field"]:
    """The fields that a word becomes: replaced, and split at spaces where nothing is quoted.

    Args:
        word: as written.
        value_of: gives the value of a variable, or the output of a script.
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
    """One word as a command gets it, put together from pieces."""

    def __init__(self) -> None:
        """Empty."""
        self._pieces: list[str] = []
        self._is_quoted: list[bool] = []

    def add(self, piece: str, quoted: bool) -> None:
        """Add a piece; a quoted one is no pattern."""
        self._pieces.append(piece)
        self._is_quoted.append(quoted)

    @property
    def text(self) -> str:
        """All pieces."""
        return "".join(self._pieces)

    def paths(self, files: Files, folder: str) -> list[str]:
        """The paths that it matches, as a pattern; itself, where it is none or matches none."""
        plain = True
        for piece, quoted in zip(self._pieces, self._is_quoted, strict=True):
            plain = plain and (quoted or MAGIC.isdisjoint(piece))
        return [self.text] if plain else _matching(self._pattern(), files, folder) or [self.text]

    def _pattern(self) -> str:
        """The text as a pattern, in which what is quoted stands for itself."""
        pieces = zip(self._pieces, self._is_quoted, strict=True)
        return "".join(re.sub(r"([*?\[])", r"[\1]", p) if quoted else p for p, quoted in pieces)


def _matching(pattern: str, files: Files, folder: str) -> list[str]:
    """The paths that exist and match, one part of the path after the other."""
    found = ["/"] if pattern.startswith("/") else [""]
    for part in pattern.split("/"):
        if part:
            wanted = re.compile(translate(part))
            at = [(f, _names(files, normal(f or ".", folder))) for f in found]
            found = [
                f"{path}{'/' if path.strip('/') else ''}{name}"
                for path, names in at
                for name in names
                if wanted.match(name) and (part[0] == "." or name[0] != ".")
            ]
    return sorted(found)


def _names(files: Files, folder: str) -> list[str]:
    try:
        return files.names(folder)
    except OSError:
        return []
