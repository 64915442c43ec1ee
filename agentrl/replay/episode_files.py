"""Read the files of episodes, which may be damaged or hostile."""

import gzip
import json
import os
import zlib
from pathlib import Path
from typing import IO

from agentrl.errors import ConfigError
from agentrl.files import open_regular
from agentrl.replay.episode_encoding import from_json
from agentrl.runs.run_layout import episode_file, episodes_folder
from agentrl.types import Episode

_MAX_BYTES = 256 << 20
"""Largest accepted episode (uncompressed) and frame file; real ones are far smaller."""
_BOMB_BYTES, _BOMB_RATIO = 32 << 20, 200
"""An episode that unpacks to more bytes than this, and to this many times its file's size, is no
recording: the log-probabilities of real ones do not compress that well."""


class EpisodeFiles:
    """The episode files of a run. What cannot be read is refused without being read again.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._refused: dict[Path, tuple[tuple[int, int], str]] = {}
        """Size and modification time of each refused file, and why it was refused."""

    def read(self, episode_id: str) -> Episode:
        """A whole episode without its pixels.

        Raises:
            ConfigError: there is no such file, or it is damaged.
        """
        path = episodes_folder(self._run)
        try:
            path = episode_file(self._run, episode_id)
            status = path.stat()
        except (OSError, ValueError) as error:
            raise ConfigError(_unreadable(path, error)) from error
        stamp = status.st_size, status.st_mtime_ns
        if (known := self._refused.get(path)) is not None and known[0] == stamp:
            raise ConfigError(known[1])
        try:
            return from_json(json.loads(_unpacked(path)))
        except OSError as error:  # such as too many open files: the next reading may succeed
            raise ConfigError(_unreadable(path, error)) from error
        except (
            EOFError, zlib.error, AttributeError, LookupError, OverflowError, TypeError,
            ValueError, RecursionError,
        ) as error:  # fmt: skip
            self._refused[path] = stamp, _unreadable(path, error)
            raise ConfigError(self._refused[path][1]) from error


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path} cannot be read: {type(error).__name__}: {error}"


def _unpacked(path: Path) -> bytes:
    with open(path, "rb", opener=open_regular) as file, gzip.open(file) as unpacked:
        size = os.fstat(file.fileno()).st_size
        return _at_most(unpacked, min(_MAX_BYTES, max(_BOMB_BYTES, _BOMB_RATIO * size)))


def _at_most(file: IO[bytes] | gzip.GzipFile, most: int) -> bytes:
    content = bytearray()
    while piece := file.read(1 << 20):  # in pieces: `read(n)` allocates n bytes at once
        content += piece
        if len(content) > most:
            raise ValueError(f"more than {most:,} bytes")
    return bytes(content)
