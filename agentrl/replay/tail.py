"""JSON lines that somebody else is still appending to."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Tail:
    """A file of JSON lines, of which only what is new is read."""

    path: Path
    read: int = 0

    def new(self) -> Iterator[dict[str, Any]]:
        """The objects of the whole lines that were appended since.

        Raises:
            ConfigError: it is no file, or closed to us.
        """
        try:
            if self.path.is_file() and self.path.stat().st_size == self.read:
                return
            with self.path.open("rb") as file:
                file.seek(self.read)
                content = file.read()
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read: {error}") from error
        whole = content.rfind(b"\n") + 1
        self.read += whole
        for line in content[:whole].split(b"\n"):
            if not line:
                continue
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                log.debug("%s: a torn line is skipped", self.path)
                continue
            if isinstance(entry, dict):
                yield entry


class Tails:
    """The files of one folder that are appended to, also those that come later.

    Args:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[Path, Tail] = {}

    def new(self, pattern: str) -> Iterator[dict[str, Any]]:
        """The objects that were appended since to files of such a name.

        Raises:
            ConfigError: as `Tail.new`.
        """
        for path in sorted(self._folder.glob(pattern)):
            yield from self._tails.setdefault(path, Tail(path)).new()
