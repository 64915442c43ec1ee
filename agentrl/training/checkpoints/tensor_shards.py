"""Tensors that ranks hold shards of, as a folder on disk: each rank writes and reads its own.

The folder is one of torch.distributed.checkpoint; it is read by any number of ranks.
"""

import json
import pickle
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from agentrl.errors import ConfigError
from agentrl.text import did_you_mean

_PLAIN = "plain.json"
_LITTLE = 1 << 20
"""Bytes: a disk with less room is full."""


class _Unpickler(pickle.Unpickler):
    """Knows what the format's metadata are made of, and nothing else: a pickle can run code."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _KNOWN.get(module, ()) and not (module == "torch" and _is_dtype(name)):
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a checkpoint")
        return super().find_class(module, name)


_PATHS = ("PosixPath", "WindowsPath")
_KNOWN = {
    "torch": ("Size",),
    "torch.serialization": ("_get_layout",),
    "torch.distributed.checkpoint.metadata": (
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
        "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "pathlib": _PATHS,
    "pathlib._local": _PATHS,
}  # fmt: skip


def _is_dtype(name: str) -> bool:
    """Whether torch calls one of its types so."""
    return isinstance(getattr(torch, name, None), torch.dtype)


class _Reader(FileSystemReader):
    """As torch's, but for what it unpickles."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The metadata of all ranks."""
        with (Path(self.path) / ".metadata").open("rb") as file:
            found = _Unpickler(file).load()
        if not isinstance(found, Metadata):
            raise pickle.UnpicklingError(f"{type(found).__name__} are no metadata")
        found.storage_meta = StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


def write(
    folder: Path, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], main: bool
) -> None:
    """Write tensors and plain values; a collective call.

    Args:
        folder: made if need be.
        tensors: by name, sharded or the same on every rank.
        plain: JSON values.
        main: True on the rank that writes what all have.

    Raises:
        OSError: the disk is full, or closed to us.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if main:
        (folder / _PLAIN).write_text(json.dumps(dict(plain), indent=1))
    try:
        state_dict_saver.save(
            dict(tensors), storage_writer=FileSystemWriter(folder, sync_files=True)
        )
    except CheckpointException as error:
        # torch tells of a full disk in words of its archive's layout.
        full = shutil.disk_usage(folder).free < _LITTLE
        why = "the disk is full" if full else _first(error)
        raise OSError(f"{folder}: cannot be written: {why}") from error


def plain(folder: Path) -> dict[str, Any]:
    """The plain values.

    Raises:
        ConfigError: the folder is none of these, or broken.
    """
    try:
        found = json.loads((folder / _PLAIN).read_text())
    except (OSError, ValueError) as error:
        raise _broken(folder, error) from error
    if not isinstance(found, dict):
        raise _broken(folder, "it holds no values")
    return found


def read_into(folder: Path, tensors: Mapping[str, Tensor], whole: str) -> None:
    """Read tensors in place, each rank its shards; a collective call.

    Args:
        folder: as it was written, by any number of ranks.
        tensors: what is to be overwritten; names that are not asked for are passed over.
        whole: the beginning of names that are not passed over.

    Raises:
        ConfigError: one is missing, of another shape or too many, or the folder is broken.
    """
    asked = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    check_fit(folder, stored(folder), asked, whole)
    try:
        state_dict_loader.load(dict(tensors), storage_reader=_Reader(folder))
    except (CheckpointException, OSError, RuntimeError, ValueError, EOFError) as error:
        raise _broken(folder, error) from error


def read(folder: Path, prefix: str) -> dict[str, Tensor]:
    """All tensors whose names begin so, whole, without the prefix; by one process alone.

    Raises:
        ConfigError: the folder is broken.
    """
    found = {
        name: torch.empty(shape, dtype=dtype)
        for name, (shape, dtype) in _types(folder).items()
        if name.startswith(prefix)
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that nobody else reads along
            state_dict_loader.load(found, storage_reader=_Reader(folder), no_dist=True)
    except (CheckpointException, OSError, RuntimeError, ValueError, EOFError) as error:
        raise _broken(folder, error) from error
    return {name.removeprefix(prefix): tensor for name, tensor in found.items()}


def stored(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of what is stored, by name; only that is read.

    Raises:
        ConfigError: the folder is broken.
    """
    return {name: shape for name, (shape, _) in _types(folder).items()}


def _types(folder: Path) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and type of what is stored, by name."""
    try:
        metadata = _Reader(folder).read_metadata().state_dict_metadata
    except Exception as error:  # a pickle of a broken file fails in any way
        raise _broken(folder, error) from error
    return {
        name: (tuple(about.size), about.properties.dtype)
        for name, about in metadata.items()
        if isinstance(about, TensorStorageMetadata)
    }


def check_fit(
    folder: Path,
    found: Mapping[str, tuple[int, ...]],
    asked: Mapping[str, tuple[int, ...]],
    whole: str,
) -> None:
    """See whether a folder holds what is asked of it, by names and shapes.

    Args:
        folder: where it was found, for the message.
        found: the shapes that it holds.
        asked: those that it should hold.
        whole: the beginning of names of which it should hold no other.

    Raises:
        ConfigError: the first that is missing, of another shape or too many.
    """
    for name, shape in asked.items():
        if name not in found:
            raise ConfigError(
                f"{folder}: belongs to another model or job: {name} is missing"
                f"{did_you_mean(name, found)}"
            )
        if found[name] != shape:
            raise ConfigError(
                f"{folder}: belongs to another model: {name} has shape {found[name]}, here it "
                f"is {shape}"
            )
    for name in found:
        if name.startswith(whole) and name not in asked:
            raise ConfigError(
                f"{folder}: belongs to another model: it has {name}, which is not here"
            )


def _broken(folder: Path, why: BaseException | str) -> ConfigError:
    told = why if isinstance(why, str) else _first(why)
    return ConfigError(
        f"{folder}: cannot be read: {told}. Remove this checkpoint to use an earlier one."
    )


def _first(error: BaseException) -> str:
    """What went wrong, in a line: on the first rank where something did."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()), (error, None))[0]
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
