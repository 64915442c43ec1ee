"""Log records on the terminal, next to the live display."""

import logging
import sys
from typing import TextIO

from agentrl.text import printable


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


def set_up(verbose: bool) -> None:
    """Log warnings, or with `verbose` everything, to stderr."""
    logger = logging.getLogger("agentrl")
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        handler = _Stderr()
        handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
