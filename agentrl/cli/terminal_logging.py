"""Log records on the terminal, beside the live display."""

import logging
import sys
from typing import TextIO

from agentrl.text import printable


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever stderr is now: the live display puts itself in its place."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        """The present stderr."""
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """Stays what `sys.stderr` is."""


class _Formatter(logging.Formatter):
    """Messages quote what environments and models say."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line, with control characters spelt out."""
        return printable(super().format(record))


def set_up(verbose: bool) -> None:
    """Warnings, or everything that agentrl says."""
    logger = logging.getLogger("agentrl")
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        handler = _Stderr()
        handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
