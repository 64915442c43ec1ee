r"""`grep`, with its patterns translated into Python regular expressions.

In a basic pattern `+ ? | ( ) { }` are literal unless they follow a backslash; in an extended
pattern (-E) they are operators unless they follow a backslash.
"""

import re
from collections import deque
from functools import lru_cache

from virtual_phone.commands.command_options import number_of, split_options
from virtual_phone.commands.command_table import command
from virtual_phone.commands.toybox.text_commands import sliced_lines
from virtual_phone.shell.command_context import CommandContext
from virtual_phone.shell.glob_patterns import CLASSES

_NO_EFFECT = {"color": "", "color=": "", "line-buffered": ""}
_SWAPPED = frozenset("+?|(){}")
_SAME = {"<": r"\b(?=\w)", ">": r"\b(?<=\w)", **{c: f"\\{c}" for c in "bBwWsSdD"}}
_TOKEN = re.compile(r"\\(.)|(\[\^?\]?+(?:\[:\w+:\]|[^]])*+(\]|\Z))|(.)", re.DOTALL)
"""An escaped character, a bracket expression, or another character."""


@lru_cache(maxsize=256)
def compile_pattern(
    text: str, kind: str, ignore_case: bool = False, whole_words: bool = False
) -> re.Pattern[str]:
    """Compile a pattern; `kind` is `F` for plain text, `E` for extended or '' for basic syntax."""
    expression = re.escape(text) if kind == "F" else _translated(text, kind == "E")
    if whole_words:
        expression = rf"(?<!\w)(?:{expression})(?!\w)"
    try:
        return re.compile(expression, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"bad pattern: {error}") from error


def _translated(text: str, extended: bool) -> str:
    """Translate a pattern into Python syntax."""
    pieces: list[str] = []
    repeats, last_repeats = [False], False  # per open group, outermost first
    for escaped, bracket, closed, plain in _TOKEN.findall(text):
        is_first = not pieces or pieces[-1] in ("(", "|", "^")
        if bracket and not closed:
            raise ValueError("brackets ([ ]) not balanced")
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
        # Nested repetitions could make Python backtrack forever.
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
    """Translate a bracket expression such as `[[:digit:]_]` into Python syntax."""
    negated = text.startswith("[^")
    inner = text[2 if negated else 1 : -1].replace("\\", "\\\\")
    head = "\\]" if inner.startswith("]") else ""
    inner = re.sub(r"([\[&~|]|(?<=-)-)", r"\\\1", inner.removeprefix("]"))
    classes = re.sub(r"\\\[:(\w+):\]", lambda c: CLASSES.get(c[1], ""), inner)
    return f"[{'^' if negated else ''}{head}{classes}]"


@command("grep", "egrep", "fgrep")
async def grep(ctx: CommandContext) -> int:
    """`grep [-EFHLRchilnoqrsvwx] [-e PATTERN] [-f FILE] [-m N] [-A|-B|-C N] pattern [files]`."""
    short = "EFHILRachilnoqrsvwxe:f:m:A:B:C:"
    options, words = split_options(ctx, short, _NO_EFFECT, joined="e")
    lines = options["e"].split("\n") if "e" in options else []
    if "f" in options:
        try:
            read = ctx.phone.files.read(ctx.path(options["f"]))
        except OSError as error:
            return ctx.fail(f"grep: {options['f']}: {error.strerror}", 2)
        lines += read.decode("utf-8", "surrogateescape").splitlines()
    elif not lines and words:
        # POSIX: each line of a pattern is a separate pattern.
        lines = words.pop(0).split("\n")
    if not lines:
        return ctx.fail("grep: no pattern", 2)
    kind = "F" if "F" in options or ctx.name == "fgrep" else ""
    kind = kind or ("E" if "E" in options or ctx.name == "egrep" else "")
    try:
        compiled = [compile_pattern(p, kind, "i" in options, "w" in options) for p in lines]
        pattern = compiled[0]
        if len(compiled) > 1:
            # A single alternation finds the leftmost match of all patterns, which `-o` prints.
            pattern = re.compile("|".join(f"(?:{p.pattern})" for p in compiled), pattern.flags)
    except ValueError as error:
        return ctx.fail(f"grep: {error}", 2)
    search = _Search(ctx, pattern, options)
    recursive = "r" in options or "R" in options
    paths = [p for word in words or ["."] for p in _below(ctx, word)] if recursive else words
    if not paths and not recursive:
        await search.stream()
    code = 0
    for path in paths:
        try:
            name = path if "H" in options or recursive or len(paths) > 1 else ""
            await search.file(
                ctx.phone.files.read(ctx.path(path)), "" if "h" in options else name, path
            )
        except OSError as error:
            code = 2
            if "s" not in options:
                ctx.fail(f"grep: {path}: {error.strerror}")
        if "q" in options and search.total:
            return 0
    return code or int(not search.total)


def _below(ctx: CommandContext, path: str) -> list[str]:
    """Return all files below a folder; for a file or a link, return just the path."""
    node = ctx.phone.files.find(ctx.path(path), follow=False)
    if node is None or not node.is_folder:
        return [path]
    names = ctx.phone.files.names(ctx.path(path))
    return [found for n in names for found in _below(ctx, f"{path.rstrip('/')}/{n}")]


class _Search:
    """Line-by-line search, which also works on endless input."""

    def __init__(
        self, ctx: CommandContext, pattern: re.Pattern[str], options: dict[str, str]
    ) -> None:
        self.total = 0
        """Number of matching lines in all files."""
        self._num_found = 0
        self._ctx = ctx
        self._pattern = pattern
        self._match = pattern.fullmatch if "x" in options else pattern.search
        self._options = options
        self._number = 0
        self._most, before, after = (number_of(options.get(letter)) for letter in "mBA")
        around = number_of(options.get("C")) or 0
        self._after = around if after is None else after
        self._num_left = 0
        self._last_shown = 0
        self._before: deque[str] = deque(maxlen=around if before is None else before)

    async def stream(self) -> None:
        """Search standard input."""
        pending = b""
        while not self._is_done() and (chunk := await self._ctx.io.read()):
            whole, newline, pending = (pending + chunk).rpartition(b"\n")
            await self._search(whole + newline, "", self._number)
        if pending:
            await self._search(pending, "", self._number)
        self._summarize("", "(standard input)")

    async def file(self, content: bytes, name: str, path: str) -> None:
        """Search a file; prefix its output lines with `name`."""
        self._num_found = self._num_left = self._last_shown = 0
        self._before.clear()
        await self._search(content, name)
        self._summarize(name, path)

    def _summarize(self, name: str, path: str) -> None:
        """Print the per-file output of -c, -l and -L."""
        options, prefix = self._options, f"{name}:" if name else ""
        if "c" in options:
            self._ctx.print(f"{prefix}{self._num_found}")
        elif "l" in options or "L" in options:
            if bool(self._num_found) == ("l" in options) and "q" not in options:
                self._ctx.print(path)
            self.total += "L" in options and not self._num_found
        self.total += self._num_found

    async def _search(self, content: bytes, name: str, num_before: int = 0) -> None:
        """Search a file, or a part of a file that follows `num_before` lines."""
        self._number = num_before
        async for lines in sliced_lines(content):
            for line in lines:
                self._line(line, name)
            await self._ctx.io.drain()

    def _is_done(self) -> bool:
        return self._most is not None and self._num_found >= self._most

    def _line(self, line: str, name: str) -> None:
        self._number += 1
        if self._is_done():
            return
        if (self._match(line) is None) != ("v" in self._options):
            if self._num_left:
                self._num_left -= 1
                self._show(line, name, self._number, "-")
            elif self._before.maxlen:
                self._before.append(line)
            return
        self._num_found += 1
        if not {"c", "q", "l", "L"}.isdisjoint(self._options):
            return
        if "o" in self._options:
            for found in self._pattern.finditer(line):
                if found[0]:
                    self._show(found[0], name, self._number, ":")
            return
        for offset, earlier in enumerate(self._before, -len(self._before)):
            self._show(earlier, name, self._number + offset, "-")
        self._before.clear()
        self._show(line, name, self._number, ":")
        self._num_left = self._after

    def _show(self, line: str, name: str, number: int, mark: str) -> None:
        has_gap = 0 < self._last_shown < number - 1
        if has_gap and (self._after or self._before.maxlen):
            self._ctx.print("--")
        self._last_shown = number
        prefix = f"{name}{mark}" if name else ""
        prefix += f"{number}{mark}" if "n" in self._options else ""
        self._ctx.print(prefix + line.removesuffix("\r"))
