"""Files that are whole or not there, and folders that one process works in at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrl.errors import ConfigError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, which becomes `path` when the block ends well.

    What stood there before stays until then. The suffix is kept, as writers may judge by it.
    """
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_durably(path: Path, text: str) -> None:
    """Write a file whole or not at all, and have it on disk before anything follows."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; the system opens it again however this one ends.

    Raises:
        ConfigError: another process works there.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(
            f"{folder}: another process works on this run; wait for its end, or stop it"
        ) from None
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be locked: {error}") from error
    try:
        yield
    finally:
        lock.release()
