"""Terminal output shared by all commands: log records, images, findings, suggested commands."""

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
from agentrl.text.formatting import printable

if TYPE_CHECKING:
    from agentrl.check.finding import Finding
    from agentrl.types import Image

LINE_S = 10.0
"""Seconds between two progress lines if there is no terminal."""
_UPPER_HALF = "\u2580"
_LONGEST = 20_000
"""Maximum characters of a log record, which may quote environments, models and servers."""
_COLORS = {
    "ok": "green", "note": "yellow", "optional": "yellow", "wrong": "red", "missing": "red",
}  # fmt: skip


def suggest(*commands: str | Sequence[object], prefix: str = "") -> None:
    """Print what to run next, on one line.

    Args:
        commands: each a command line, or a sequence of arguments for `agentrl`.
        prefix: text to print first.
    """
    lines = [c if isinstance(c, str) else shlex.join(map(str, ("agentrl", *c))) for c in commands]
    typer.echo(printable(f"{prefix}Next: {'   or: '.join(lines)}"))


def announce(what: str) -> None:
    """Announce a step that takes seconds, if on a terminal."""
    if sys.stderr.isatty():
        typer.echo(printable(f"{what} ..."), err=True)


def output_console() -> Console:
    """Return a console on standard output that wraps only on a terminal and never highlights."""
    console = Console(emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = text_tables.UNLIMITED
    return console


def table_width() -> int:
    """Return the terminal's width in characters; unlimited if the output is not a terminal."""
    return output_console().width


def print_table(table: Table) -> None:
    """Print a table to standard output."""
    text_tables.print_table(table, Console(emoji=False))


def print_findings(
    found: "Iterable[Finding]", *, as_table: bool = False, indent: str = ""
) -> "list[Finding]":
    """Print a line per finding, followed by its fix; return all findings.

    Args:
        found: the findings; each is printed as soon as it is available.
        as_table: whether to print the names in a column, which requires short names.
        indent: text to print before each line.
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
            # Several checks often fail for the same reason, so print it once.
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
    """Handler that writes to the current `sys.stderr`, which a live display may replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        """The current `sys.stderr`."""
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """Ignore `value`: the stream is always `sys.stderr`."""


class _Formatter(logging.Formatter):
    """Escapes control characters, since messages quote environments and models."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record with control characters escaped and the length limited."""
        text = printable(super().format(record))
        cut = f"{text[:_LONGEST]}... ({len(text):,} characters)"
        return text if len(text) <= _LONGEST else cut


def set_up_logging(verbose: bool) -> None:
    """Log warnings, or with `verbose` everything, to stderr."""
    logger = logging.getLogger("agentrl")
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    # Tests and notebooks run several commands in one process, so add the handler only once.
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        handler = _Stderr()
        handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


def draw_image(image: "Image", width: int) -> Text:
    """Return an image as text; each character shows two pixels, one above the other.

    Args:
        image: uint8[H, W, 3].
        width: characters per row, at least 1.
    """
    from PIL import Image as PillowImage

    # The number of pixel rows must be even, since each character shows two.
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
