"""Terminal output shared by all commands: log records, images, findings and the next step."""

import logging
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.style import Style
from rich.table import Table
from rich.text import Text

from agentrl import text_tables
from agentrl.text import printable

if TYPE_CHECKING:
    from agentrl.check.finding import Finding
    from agentrl.types import Image

_UPPER_HALF = "\u2580"
_LONGEST = 20_000
"""Most characters of a log record, which may quote environments, models and servers."""
_COLORS = {
    "ok": "green", "note": "yellow", "optional": "yellow", "wrong": "red", "missing": "red",
}  # fmt: skip


def suggest(*commands: str | Sequence[object], prefix: str = "") -> None:
    """Print what to run next on one line; a sequence is the arguments of an `agentrl` command."""
    lines = [c if isinstance(c, str) else shlex.join(map(str, ("agentrl", *c))) for c in commands]
    typer.echo(printable(f"{prefix}Next: {'   or: '.join(lines)}"))


def announce(what: str) -> None:
    """Say on a terminal what takes the next seconds."""
    if sys.stderr.isatty():
        typer.echo(printable(f"{what} ..."), err=True)


def output_console() -> Console:
    """The standard output; text is wrapped only on a terminal, and nothing is highlighted."""
    console = Console(emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = text_tables.UNLIMITED
    return console


def table_width() -> int:
    """Width of the terminal in characters; unlimited where the output is not a terminal."""
    return output_console().width


def print_table(table: Table) -> None:
    """Print a table on the standard output."""
    text_tables.print_table(table, Console(emoji=False))


def print_findings(
    found: "Iterable[Finding]", *, as_table: bool = False, indent: str = ""
) -> "list[Finding]":
    """Print one line per check, and below it how to fix it; return all findings.

    Args:
        found: printed as they come.
        as_table: print the names, which are short, in a column.
        indent: printed in front of each line.
    """
    console, printed, shown = Console(emoji=False, highlight=False), list["Finding"](), set[str]()
    for one in found:
        printed.append(one)
        what, detail, fix = (escape(printable(text)) for text in (one.what, one.detail, one.fix))
        label, color = f"{one.state:8}", _COLORS[one.state]
        if as_table:
            line = f"[bold]{what:19}[/] {detail}"
            fix = fix if one.state == "optional" or not fix else f"fix: {fix}"
        else:
            label = "FAILED  " if one.state == "wrong" else label
            # One cause often fails several checks.
            if one.state == "wrong" and detail in shown:
                detail, fix = "as above", ""
            elif one.state == "wrong" and detail:
                shown.add(detail)
            line = f"{what}: {detail}" if detail else what
            fix = f"fix: {fix}" if fix else ""
        gap = " " if as_table else ""
        console.print(f"{indent}[{color}]{label}[/]{gap}{line}", soft_wrap=True)
        if fix:
            console.print(f"{indent}        {gap}{fix}", soft_wrap=True)
    return printed


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`, which the live display replaces while it runs."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        """The current stderr."""
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """Ignored: the stream is always `sys.stderr`."""


class _Formatter(logging.Formatter):
    """Escapes control characters, since messages quote environments and models."""

    def format(self, record: logging.LogRecord) -> str:
        """The record with control characters escaped, at a length that a terminal can show."""
        text = printable(super().format(record))
        cut = f"{text[:_LONGEST]}... ({len(text):,} characters)"
        return text if len(text) <= _LONGEST else cut


def set_up_logging(verbose: bool) -> None:
    """Log warnings, or with `verbose` everything, to stderr."""
    logger = logging.getLogger("agentrl")
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    # Tests and notebooks run several commands in a process.
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        handler = _Stderr()
        handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


def draw_image(image: "Image", width: int) -> Text:
    """An image as text; each character shows two pixels, one above the other.

    Args:
        image: uint8[H, W, 3].
        width: characters per row, at least 1.
    """
    from PIL import Image as PillowImage

    # An even number of rows, as each character shows two.
    height = max(2, round(image.shape[0] * width / image.shape[1]))
    height += height % 2
    small = PillowImage.fromarray(image).resize((width, height), PillowImage.Resampling.BOX)
    shown = Text()
    for row in range(0, height, 2):
        for column in range(width):
            above, below = (small.getpixel((column, row + k)) for k in (0, 1))
            shown.append(_UPPER_HALF, Style(color=_hex(above), bgcolor=_hex(below)))
        shown.append("\n")
    return shown


def _hex(pixel: object) -> str:
    assert isinstance(pixel, tuple)
    return "#" + "".join(f"{value:02x}" for value in pixel)
