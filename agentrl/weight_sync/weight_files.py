"""Weights as files: atomic, complete, and in shared memory for the engines."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentrl.errors import ConfigError
from agentrl.files import is_alive, replacing
from agentrl.policies.engines.weight_digest import DIGEST, digest

if TYPE_CHECKING:
    from torch import Tensor

_PREFIX = "agentrl-weights-"
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")


class SavesWeights(Protocol):
    """Something that can write its weights to a file."""

    def save_weights(self, path: Path) -> None:
        """Write a safetensors file, atomically."""


class SavesAdapters(Protocol):
    """Something that can write its adapters, and what is below them."""

    def save_base(self, path: Path) -> None:
        """Write a safetensors file, atomically."""

    def save_adapter(self, folder: Path) -> None:
        """Write a folder in PEFT's format, atomically."""


def publish(learner: SavesWeights, version: int) -> Path:
    """Write the weights where engines on this machine can map them, and remove older versions.

    Args:
        learner: whose weights.
        version: their number; names the file.

    Returns:
        A safetensors file in shared memory, or in the temporary folder where there is none. It
        lives until the next version or the end of this process.
    """
    folder = shared_folder()
    path = folder / f"version-{version:06d}.safetensors"
    learner.save_weights(path)
    for other in folder.glob("version-*.safetensors"):
        if other != path:
            other.unlink()
    return path


def publish_base(learner: SavesAdapters, version: int) -> Path:
    """Write the weights below the adapters, as `publish` does; they stay."""
    path = shared_folder() / f"base-{version:06d}.safetensors"
    learner.save_base(path)
    return path


def publish_adapter(learner: SavesAdapters, version: int) -> Path:
    """Write the adapters alone where engines on this machine find them; see `publish`."""
    folder = shared_folder() / f"adapter-{version:06d}"
    learner.save_adapter(folder)
    for other in folder.parent.glob("adapter-*"):
        if other != folder:
            shutil.rmtree(other)
    return folder


def shared_folder() -> Path:
    """In shared memory, or among temporary files; it lives until the end of this process."""
    return _shared_folder(os.getpid())


@cache
def _shared_folder(pid: int) -> Path:
    """The folder of this process; a forked child gets another one."""
    memory = Path("/dev/shm")
    root = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    _sweep(root)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{pid}-", dir=root))
    atexit.register(_remove, folder, pid)
    return folder


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(root: Path) -> None:
    """Remove what killed processes left behind: their exit handlers never ran."""
    for folder in root.glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def write(path: Path, tensors: Mapping[str, Tensor], *, checked: bool = False) -> None:
    """Write a safetensors file; it appears under its name only when it is complete.

    Args:
        path: where.
        tensors: by name.
        checked: with a checksum, which engines compare with what they have.

    Raises:
        OSError: the disk is full, or closed to us.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with replacing(path) as partial:
        told = {DIGEST: digest(contiguous)} if checked else {}
        try:
            save_file(contiguous, partial, metadata={"format": "pt", **told})
        except SafetensorError as error:
            raise OSError(f"{path}: cannot be written: {error}") from error


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of all in a folder.

    Raises:
        ConfigError: there is none, or it is broken.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    try:
        tensors = {n: tensor for file in files for n, tensor in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: cannot be read as weights: {error}") from error
    if not tensors:
        raise ConfigError(f"{path}: holds no safetensors file")
    return tensors


def export(source: Path, folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write an ordinary Hugging Face folder; it appears only when it is complete.

    Args:
        source: the folder whose configuration, tokenizer and processor files are copied.
        folder: where; replaced if it exists.
        tensors: the full weights by name.

    Raises:
        OSError: the disk is full, or closed to us.
    """
    with replacing_folder(folder) as partial:
        for file in source.iterdir():
            if file.is_file() and not file.name.endswith(_WEIGHT_SUFFIXES):
                shutil.copyfile(file, partial / file.name)
        _tell_dtype(partial / "config.json", tensors)
        write(partial / "model.safetensors", tensors)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to be filled.

    It takes its name, in place of an older one, once all of it is on the disk; where something
    fails, the older one stays.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    partial.mkdir(parents=True)
    try:
        yield partial
        _give_name(partial, folder)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)  # a full disk needs the room
        raise


def _tell_dtype(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Let a configuration say what the weights are in: engines compute in what it says."""
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    if not file.is_file() or len(dtypes) != 1:
        return
    config = json.loads(file.read_text(encoding="utf-8"))
    for part in (config, *config.values()):
        for name in ("dtype", "torch_dtype"):
            if isinstance(part, dict) and name in part:
                part[name] = next(iter(dtypes))
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _give_name(partial: Path, folder: Path) -> None:
    """To a complete folder, in place of an older one; all of it reaches the disk."""
    for path in (*partial.rglob("*"), partial):
        sync(path)
    if folder.exists():
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        partial.rename(folder)
        shutil.rmtree(old)
    else:
        partial.rename(folder)
    sync(folder.parent)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
