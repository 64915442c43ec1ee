"""User-given paths, atomic file writes, and folder locks."""

import errno
import fcntl
import glob
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError

StrPath = str | os.PathLike[str]
"""A path given by a user; a `Run` also counts as a path."""
_LOCK = ".lock"
_PATIENCE_S = 0.5
"""Seconds to wait for a lock, which `is_locked` in another process may hold for an instant."""
_CANNOT_RENAME = {errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EPERM}
"""Error codes of file systems that cannot rename files or folders, such as mounted buckets."""


def path_of(text: str, what: str) -> Path:
    """Return a user's path with `~` expanded; it need not exist.

    Args:
        text: the path.
        what: the setting it comes from, for the message.

    Raises:
        ConfigError: the path is unusable because its user is unknown, it is too long or has invalid
            characters, or a parent folder cannot be entered.
    """
    try:
        path = Path(text).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{what}={text!r}: cannot be used as a path: {error}") from error
    return path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add a file name to an `OSError` that lacks one, such as from a write to an open file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Write to a temporary file next to `path`, which replaces `path` when the block succeeds.

    An existing file stays untouched until then. The temporary name keeps the suffix, because
    writers may derive the format from it.
    """
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with naming(path):
            yield partial
        move_into_place(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def move_into_place(partial: Path, path: Path) -> None:
    """Give a complete file or folder its final name.

    The move is atomic, except on file systems that cannot rename, where it is a copy.

    Args:
        partial: file or folder already synced to disk (`sync`).
        path: final path; an existing file is replaced, a folder must not exist.
    """
    try:
        partial.replace(path)
    except OSError as error:
        if error.errno not in _CANNOT_RENAME:
            raise
        if partial.is_dir():
            shutil.copytree(partial, path)
            shutil.rmtree(partial)
        else:
            shutil.copyfile(partial, path)
            partial.unlink()
        # A rename of synced files is durable by itself; a copy is not.
        for copy in (path, *path.rglob("*")):
            sync(copy)


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill, which replaces `folder` once all of it is on disk.

    If something fails, an existing folder is left unchanged.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    partial.mkdir(parents=True)
    old = folder.with_name(f".{folder.name}.old")
    try:
        yield partial
        # Sync before renaming: after a power cut the folder is either complete or missing.
        for path in (*partial.rglob("*"), partial):
            sync(path)
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            move_into_place(folder, old)
        move_into_place(partial, folder)
        shutil.rmtree(old, ignore_errors=True)
        sync(folder.parent)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)  # to free space if the disk is full
        raise


def remove_partial_files(folder: Path, name: str | None = None) -> None:
    """Remove temporary files that `atomic_replace` left in a folder when its process was killed.

    Args:
        folder: folder that contains them.
        name: name of the file that was to be replaced; None for all files.
    """
    for partial in folder.glob(f".*.{'*' if name is None else glob.escape(name)}"):
        pid = partial.name[1:].partition(".")[0]
        if pid.isdigit() and not is_alive(int(pid)):
            partial.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Return whether a process with this id is running on this machine."""
    try:
        # Signal 0 only asks; another user's process answers with PermissionError.
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open only regular files and never block on a pipe; an opener for `open`.

    Raises:
        OSError: the path cannot be opened, or is not a regular file.
    """
    opened = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise OSError(f"{path} is not a regular file")


def write_durably(path: Path, text: str) -> None:
    """Write a file atomically, and return once it is on disk."""
    with atomic_replace(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, atomically, and return once it is on disk."""
    write_durably(path, json.dumps(value, indent=1) + "\n")


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; the operating system releases it even if this process is killed.

    Raises:
        ConfigError: another process holds the lock.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / _LOCK, timeout=_PATIENCE_S)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(
            f"{folder}: another process is working on this run; wait until it finishes, or stop it"
        ) from None
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be locked: {error}") from error
    try:
        yield
    finally:
        lock.release()


def is_locked(folder: Path) -> bool | None:
    """Return whether a process holds a folder's lock; None if the folder was never locked."""
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
