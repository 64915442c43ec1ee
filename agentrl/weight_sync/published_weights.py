"""Publish weights where engines on this machine can map them: on disk or in shared memory."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Protocol

from agentrl.files import is_alive

_PREFIX = "agentrl-weights-"


class SavesWeights(Protocol):
    """An object that can write its weights to a file."""

    def save_weights(self, path: Path) -> None:
        """Write a safetensors file, atomically."""


class SavesAdapters(Protocol):
    """An object that can write its adapters and its base weights."""

    def save_base(self, path: Path) -> None:
        """Write a safetensors file, atomically."""

    def save_adapter(self, folder: Path) -> None:
        """Write a folder in PEFT's format, atomically."""


def publish(learner: SavesWeights, version: int) -> Path:
    """Write the weights where engines on this machine can map them, and remove older versions.

    Returns:
        A safetensors file in shared memory, or in the temporary folder without shared memory.
        It exists until the next version is published or this process ends.
    """
    folder = shared_folder()
    path = folder / f"version-{version:06d}.safetensors"
    learner.save_weights(path)
    # An engine that still maps an older file keeps that memory until it unmaps the file.
    for other in folder.glob("version-*.safetensors"):
        if other != path:
            other.unlink()
    return path


def publish_base(learner: SavesAdapters, version: int) -> Path:
    """Write the adapters' base weights like `publish`, but keep older versions."""
    path = shared_folder() / f"base-{version:06d}.safetensors"
    learner.save_base(path)
    return path


def publish_adapter(learner: SavesAdapters, version: int) -> Path:
    """Write only the adapters, like `publish`."""
    folder = shared_folder() / f"adapter-{version:06d}"
    learner.save_adapter(folder)
    for other in folder.parent.glob("adapter-*"):
        if other != folder:
            shutil.rmtree(other)
    return folder


_root: Path | None = None


def use_folder(root: Path | None) -> None:
    """Publish below this folder; None means shared memory."""
    global _root
    _root = root


def shared_folder() -> Path:
    """Return a folder in shared memory or for temporary files, removed when this process exits."""
    return _shared_folder(os.getpid(), _root)


@cache
def _shared_folder(pid: int, root: Path | None) -> Path:
    """Return this process's folder; a forked child gets its own."""
    root = root or _default_root()
    # Exit handlers do not run after kill -9, and shared memory outlives processes.
    remove_stale_folders(root)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{pid}-", dir=root))
    atexit.register(_remove, folder, pid)
    return folder


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child inherits the exit handler
        shutil.rmtree(folder, ignore_errors=True)


def _default_root() -> Path:
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def remove_stale_folders(root: Path | None = None) -> None:
    """Remove folders of killed processes, whose exit handlers never ran."""
    for folder in (root or _default_root()).glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
