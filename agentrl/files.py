"""Atomic writes of files, and locks on folders that one process works in at a time."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrl.errors import ConfigError

_LOCK = ".lock"
_PATIENCE_S = 0.5
"""`is_locked` of another process may hold the lock for an instant."""


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Write to a temporary file beside `path`, which replaces `path` when the block succeeds.

    An existing file stays untouched until then. The temporary name keeps the suffix, because
    writers may choose the format by it.
    """
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def remove_partial_files(folder: Path) -> None:
    """Remove temporary files that `atomic_replace` left in a folder when its process was killed."""
    for partial in folder.glob(".*.*"):
        pid = partial.name[1:].partition(".")[0]
        if pid.isdigit() and not is_alive(int(pid)):
            partial.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Whether a process with this id runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """An opener for `open` that accepts only regular files and never blocks on a pipe.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    opened = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise OSError(f"{path} is not a regular file")


def write_durably(path: Path, text: str) -> None:
    """Write a file atomically, and return only when it is on disk."""
    with atomic_replace(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; the operating system releases it however this process ends.

    Raises:
        ConfigError: another process holds it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / _LOCK, timeout=_PATIENCE_S)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(
            f"{folder}: another process is working on this run; wait until it ends, or stop it"
        ) from None
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be locked: {error}") from error
    try:
        yield
    finally:
        lock.release()


def is_locked(folder: Path) -> bool | None:
    """Whether a process holds a folder's lock now; None if none ever has."""
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
