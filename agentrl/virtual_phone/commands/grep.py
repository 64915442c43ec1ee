r"""Translates the patterns of `grep` into Python regular expressions.

In a basic pattern `+ ? | ( ) { }` are literal unless they follow a backslash; in an extended one
(-E) they are operators unless they follow a backslash.
"""

import re
from functools import lru_cache

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.text_commands import sliced_lines, split_options
from agentrl.virtual_phone.shell.interpreter import CommandContext

_SWAPPED = frozenset("+?|(){}")
_SAME = {"<": r"\b(?=\w)", ">": r"\b(?<=\w)", **{c: f"\\{c}" for c in "bBwWsSdD"}}
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "space": r"\s",
    "upper": "A-Z",
    "lower": "a-z",
    "punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "xdigit": "0-9a-fA-F",
    "blank": r" \t",
}
_TOKEN = re.compile(r"\\(.)|(\[\^?\]?(?:\[:\w+:\]|[^]])*\])|(.)", re.DOTALL)
"""An escaped character, a bracket expression, or another character."""


@lru_cache(maxsize=256)
def compile_pattern(
    text: str, kind: str, ignore_case: bool = False, whole_words: bool = False
) -> re.Pattern[str]:
    """Compile a pattern.

    Args:
        text: the pattern.
        kind: `F` for plain text, `E` for an extended pattern, empty for a basic one.
        ignore_case: whether to ignore case.
        whole_words: whether the match must start and end at word boundaries.

    Raises:
        ValueError: it is invalid, or could backtrack forever: a repetition of a repetition.
    """
    expression = re.escape(text) if kind == "F" else _translated(text, kind == "E")
    if whole_words:
        expression = rf"(?<!\w)(?:{expression})(?!\w)"
    try:
        return re.compile(expression, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"bad pattern: {error}") from error


def _translated(text: str, extended: bool) -> str:
    """The pattern in Python's syntax.

    Raises:
        ValueError: a group that contains a repetition is repeated.
    """
    pieces: list[str] = []
    repeats, last_repeats = [False], False  # for every open group, outermost first
    for escaped, bracket, plain in _TOKEN.findall(text):
        is_first = not pieces or pieces[-1] in ("(", "|", "^")
        if bracket:
            piece = _bracket(bracket)
        elif (escaped or plain) in _SWAPPED:
            is_operator = bool(plain) == extended
            piece = (escaped or plain) if is_operator else re.escape(escaped or plain)
        elif escaped:
            piece = _SAME.get(escaped, re.escape(escaped))
        elif plain in ".$" or (plain == "*" and not is_first):
            piece = plain
        else:
            piece = "^" if plain == "^" and (is_first or extended) else re.escape(plain)
        if piece in ("*", "+", "{") and last_repeats:
            raise ValueError("repetition of a repetition")
        last_repeats = False
        if piece == "(":
            repeats.append(False)
        elif piece == ")" and len(repeats) > 1:
            last_repeats = repeats.pop()
            repeats[-1] |= last_repeats
        elif piece in ("*", "+", "?", "{", "|"):
            repeats[-1] = True
        pieces.append(piece)
    return "".join(pieces)


def _bracket(text: str) -> str:
    """A bracket expression such as `[[:digit:]_]` in Python's syntax."""
    negated = text.startswith("[^")
    inner = text[2 if negated else 1 : -1].replace("\\", "\\\\")
    head = "\\]" if inner.startswith("]") else ""
    inner = re.sub(r"([\[&~|]|(?<=-)-)", r"\\\1", inner.removeprefix("]"))
    classes = re.sub(r"\\\[:(\w+):\]", lambda c: _CLASSES.get(c[1], ""), inner)
    return f"[{'^' if negated else ''}{head}{classes}]"


@command("grep", "egrep", "fgrep")
async def grep(ctx: CommandContext) -> int:
    """`grep [-i] [-v] [-c] [-q] [-o] [-n] [-w] [-F] [-E] [-e PATTERN] [-m N] pattern [files]`."""
    options, words = split_options(ctx, "emABC")
    if "e" in options:
        words.insert(0, options["e"])
    if not words:
        return ctx.fail("grep: no pattern", 2)
    kind = "F" if "F" in options or ctx.name == "fgrep" else ""
    kind = kind or ("E" if "E" in options or ctx.name == "egrep" else "")
    try:
        pattern = compile_pattern(words[0], kind, "i" in options, "w" in options)
    except ValueError as error:
        return ctx.fail(f"grep: {error}", 2)
    search = _Search(ctx, pattern, options)
    if len(words) == 1:
        await search.stream()
    for path in words[1:]:
        try:
            await search.content(ctx.phone.files.read(ctx.path(path)), path if words[2:] else "")
        except OSError as error:
            ctx.fail(f"grep: {path}: {error.strerror}")
    if "c" in options:
        ctx.print(str(search.num_found))
    return 0 if search.num_found else 1


class _Search:
    """Searches line by line, so that endless input can be searched."""

    def __init__(
        self, ctx: CommandContext, pattern: re.Pattern[str], options: dict[str, str]
    ) -> None:
        self.num_found = 0
        self._ctx = ctx
        self._pattern = pattern
        self._options = options
        self._number = 0
        most = options.get("m", "")
        self._most = int(most[-9:]) if most.isascii() and most.isdecimal() else None

    async def stream(self) -> None:
        """Search standard input."""
        pending = b""
        while not self._is_done() and (chunk := await self._ctx.io.read()):
            whole, newline, pending = (pending + chunk).rpartition(b"\n")
            await self.content(whole + newline, "", self._number)
        await self.content(pending, "", self._number)

    async def content(self, content: bytes, path: str, num_before: int = 0) -> None:
        """Search a file, or a part of one that has lines before it."""
        self._number = num_before
        async for lines in sliced_lines(content):
            for line in lines:
                self._line(line, path)
            await self._ctx.io.drain()

    def _is_done(self) -> bool:
        return self._most is not None and self.num_found >= self._most

    def _line(self, line: str, path: str) -> None:
        self._number += 1
        found = self._pattern.search(line)
        if self._is_done() or (found is None) != ("v" in self._options):
            return
        self.num_found += 1
        if "c" in self._options or "q" in self._options:
            return
        prefix = f"{path}:" if path and "h" not in self._options else ""
        prefix += f"{self._number}:" if "n" in self._options else ""
        if "o" in self._options and found is not None:
            line = found[0]
        self._ctx.print(prefix + re.sub(r"\r$", "", line))
