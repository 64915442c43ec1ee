"""What commands share on the terminal: log records, images, findings and the next step."""

import logging
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import typer
from rich.markup import escape
from rich.style import Style
from rich.text import Text

from agentrl.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from agentrl.findings import Finding
    from agentrl.types import Image

_UPPER_HALF = "\u2580"
_COLORS = {"ok": "green", "note": "yellow", "wrong": "red"}


def suggest(*commands: str | Sequence[object], prefix: str = "") -> None:
    """Print what to run next on one line; a sequence is the arguments of an `agentrl` command."""
    lines = [c if isinstance(c, str) else shlex.join(map(str, ("agentrl", *c))) for c in commands]
    typer.echo(printable(f"{prefix}Next: {'   or: '.join(lines)}"))


def print_finding(console: "Console", found: "Finding", indent: str = "") -> None:
    """One check on a line, and below it how to fix it."""
    state = f"[{_COLORS[found.state]}]{found.state:5}[/]"
    detail = escape(printable(found.detail))
    console.print(f"{indent}{state} [bold]{escape(found.what):19}[/] {detail}", soft_wrap=True)
    if found.fix:
        console.print(f"{indent}      fix: {escape(printable(found.fix))}", soft_wrap=True)


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
        """The record as one line, with control characters escaped."""
        return printable(super().format(record))


def set_up_logging(verbose: bool) -> None:
    """Log warnings, or with `verbose` everything, to stderr."""
    logger = logging.getLogger("agentrl")
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
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
