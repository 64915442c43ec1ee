"""Files that are whole or not there, and folders that one process works in at a time."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrl.errors import ConfigError

_LOCK = ".lock"
_PATIENCE_S = 0.5
"""Somebody may be looking whether it is held, for an instant."""


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


def sweep(folder: Path) -> None:
    """Remove what `replacing` left in a folder, half-written, where its process was killed."""
    for partial in folder.glob(".*.*"):
        pid = partial.name[1:].partition(".")[0]
        if pid.isdigit() and not is_alive(int(pid)):
            partial.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Whether there is a process of this number on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """An opener for `open`, of files alone: a pipe that lies in their place is not waited for.

    Raises:
        OSError: it cannot be opened, or is no file.
    """
    opened = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise OSError(f"{path} is no file")


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

    lock = FileLock(folder / _LOCK, timeout=_PATIENCE_S)
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


def is_worked_in(folder: Path) -> bool | None:
    """Whether a process works in a folder now; None where none ever has."""
    try:
        held = open_regular(folder / _LOCK)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(held)
    return False
