"""Tracks the phones used by jobs running on this machine, so that phone tests leave them alone.

Each pool writes the serials of its phones to a file that it keeps locked. The operating system
releases the lock however the process ends, so a file without a lock is out of date.
"""

import fcntl
import logging
import os
import tempfile
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from agentrl.files import open_regular

log = logging.getLogger(__name__)

_SUFFIX = ".serials"


class PhonesInUse:
    """Announces the phones of one pool, until it is closed."""

    def __init__(self, serials: Iterable[str]) -> None:
        """Announce phones; failing to announce them affects only phone tests."""
        self._file: int | None = None
        self._path = _folder() / f"{uuid.uuid4().hex}{_SUFFIX}"
        partial = self._path.with_suffix(".partial")
        try:
            partial.parent.mkdir(mode=0o700, exist_ok=True)
            self._file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            partial.rename(self._path)  # readers see the file only once it is locked
        except OSError as error:
            log.info("cannot announce the phones in use: %s", error)
        for serial in serials:
            self.add(serial)

    def add(self, serial: str) -> None:
        """Announce another phone."""
        if self._file is not None:
            with suppress(OSError):
                os.write(self._file, f"{serial}\n".encode(errors="surrogateescape"))

    def close(self) -> None:
        """Announce that the phones are free; may be called twice."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                self._path.unlink()
            os.close(file)


def phones_in_use() -> set[str]:
    """Return the serials of the phones that this user's pools on this machine have open."""
    serials: set[str] = set()
    for path in _folder().glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            file = open_regular(path)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink()  # the owning process was killed
            except BlockingIOError:  # the owning process is alive
                text = os.read(file, os.fstat(file).st_size)
                serials.update(text.decode(errors="surrogateescape").splitlines())
            finally:
                os.close(file)
    return serials


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"agentrl-phones-{os.getuid()}"
