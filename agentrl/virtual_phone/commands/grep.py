"""`grep`: lines of files or of standard input that match a pattern."""

import re

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.grep_patterns import compile_pattern
from agentrl.virtual_phone.commands.text_commands import split_options
from agentrl.virtual_phone.shell.command_context import CommandContext


@command("grep", "egrep", "fgrep")
async def grep(call: CommandContext) -> int:
    """`grep [-i] [-v] [-c] [-q] [-o] [-n] [-w] [-F] [-E] [-e PATTERN] [-m N] pattern [files]`."""
    options, words = split_options(call, "emABC")
    if "e" in options:
        words.insert(0, options["e"])
    if not words:
        return call.fail("grep: no pattern", 2)
    kind = "F" if "F" in options or call.name == "fgrep" else ""
    kind = kind or ("E" if "E" in options or call.name == "egrep" else "")
    try:
        pattern = compile_pattern(words[0], kind, "i" in options, "w" in options)
    except ValueError as error:
        return call.fail(f"grep: {error}", 2)
    search = _Search(call, pattern, options)
    if len(words) == 1:
        await search.stream()
    for path in words[1:]:
        try:
            search.content(call.phone.files.read(call.path(path)), path if words[2:] else "")
        except OSError as error:
            call.fail(f"grep: {path}: {error.strerror}")
    if "c" in options:
        call.say(str(search.num_found))
    return 0 if search.num_found else 1


class _Search:
    """Searches line by line, so that endless input can be searched."""

    def __init__(
        self, call: CommandContext, pattern: re.Pattern[str], options: dict[str, str]
    ) -> None:
        self.num_found = 0
        self._call = call
        self._pattern = pattern
        self._options = options
        self._number = 0
        most = options.get("m", "")
        self._most = int(most[-9:]) if most.isascii() and most.isdecimal() else None

    async def stream(self) -> None:
        """Search standard input."""
        pending = b""
        while not self._is_done() and (chunk := await self._call.io.read()):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._line(line, "")
            await self._call.io.drained()
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
        self._call.say(prefix + re.sub(r"\r$", "", line))
