r"""Translates the patterns of `grep` into Python regular expressions.

In a basic pattern `+ ? | ( ) { }` are literal unless they follow a backslash; in an extended one
(-E) they are operators unless they follow a backslash.
"""

import re

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.text_commands import split_options
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
_BRACKET = re.compile(r"\[\^?\]?(?:\[:\w+:\]|[^]])*\]")
_COUNT = re.compile(r"\d{0,3}(,\d{0,3})?")


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
    expression = re.escape(text) if kind == "F" else _Translator(text, kind == "E").translate()
    if whole_words:
        expression = rf"(?<!\w)(?:{expression})(?!\w)"
    try:
        return re.compile(expression, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"bad pattern: {error}") from error


class _Translator:
    """Reads a pattern once, tracking which groups contain a repetition."""

    def __init__(self, text: str, extended: bool) -> None:
        self._text = text
        self._extended = extended
        self._at = 0
        self._pieces: list[str] = []
        self._repeats = [False]
        """For every open group, outermost first: whether it contains a repetition."""
        self._last_repeats = False
        """Whether the last piece is a repetition or a group that contains one."""

    def translate(self) -> str:
        while self._at < len(self._text):
            self._piece()
        return "".join(self._pieces)

    def _piece(self) -> None:
        here = self._text[self._at]
        after = self._text[self._at + 1 : self._at + 2]
        is_first = not self._pieces or self._pieces[-1] in ("(", "|", "^")
        if here == "[" and (bracket := _BRACKET.match(self._text, self._at)):
            self._add(_bracket(bracket[0]), len(bracket[0]))
        elif here == "\\" and after in _SWAPPED and after:
            self._special(after, 2) if not self._extended else self._add(re.escape(after), 2)
        elif here in _SWAPPED:
            self._special(here, 1) if self._extended else self._add(re.escape(here), 1)
        elif here == "\\":
            self._add(_SAME.get(after, re.escape(after or "\\")), 2)
        elif here == "*" and not is_first:
            self._repeat("*", 1)
        elif here in ".$" or (here == "^" and (is_first or self._extended)):
            self._add(here, 1)
        else:
            self._add(re.escape(here), 1)

    def _special(self, letter: str, length: int) -> None:
        if letter in "+?":
            self._repeat(letter, length)
        elif letter == "{":
            count = _COUNT.match(self._text, self._at + length)
            close = "}" if self._extended else "\\}"
            if not count or not count[0] or not self._text.startswith(close, count.end()):
                raise ValueError("Invalid content of {}")
            self._repeat(f"{{{count[0]}}}", count.end() + len(close) - self._at)
        elif letter == "(":
            self._add("(", length)
            self._repeats.append(False)
        elif letter == ")" and len(self._repeats) > 1:
            repeats = self._repeats.pop()
            self._add(")", length)
            self._last_repeats = repeats
            self._repeats[-1] |= repeats
        else:
            self._repeats[-1] |= letter == "|"
            self._add(letter, length)

    def _repeat(self, how: str, length: int) -> None:
        if self._last_repeats and how != "?":
            raise ValueError("repetition of a repetition")
        self._repeats[-1] = True
        self._add(how, length)
        self._last_repeats = True

    def _add(self, piece: str, length: int) -> None:
        self._pieces.append(piece)
        self._at += length
        self._last_repeats = False


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
            search.content(ctx.phone.files.read(ctx.path(path)), path if words[2:] else "")
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
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._line(line, "")
            await self._ctx.io.drain()
        if pending:
            self._line(pending, "")

    def content(self, content: bytes, path: str) -> None:
        """Search a file."""
        self._number = 0
        for line in content.removesuffix(b"\n").split(b"\n"):
            self._line(line, path)

    def _is_done(self) -> bool:
        return self._most is not None and self.num_found >= self._most

    def _line(self, raw: bytes, path: str) -> None:
        self._number += 1
        line = raw.decode("utf-8", "surrogateescape")
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
