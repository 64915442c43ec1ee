"""Sharded tensors on disk: each rank writes and reads its own shards.

The folder has the format of torch.distributed.checkpoint; any number of ranks can read it. Next to
each file is its checksum, `FILE.xxh3`, which `xxhsum --check` can also verify; a file without a
checksum is not verified.
"""

import hashlib
import io
import json
import math
import os
import pickle
import shutil
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan

from agentrl.errors import ConfigError
from agentrl.files import move_into_place, write_durably
from agentrl.text.name_suggestions import did_you_mean
from agentrl.training.learner.parallel.sharding import local_shard, state_dtensor

_PLAIN = "plain.json"
_LITTLE = 1 << 20
"""A disk with fewer free bytes counts as full."""


class _Unpickler(pickle.Unpickler):
    """Loads only the classes that metadata consists of, because a pickle can run code."""

    def find_class(self, module: str, name: str) -> Any:
        # Before Python 3.11.4, enum members are pickled as `getattr` calls.
        if (module, name) == ("builtins", "getattr"):
            return _enum_member
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if name not in _KNOWN.get(module, ()) and not is_dtype:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a checkpoint")
        return super().find_class(module, name)


def _enum_member(kind: Any, name: str) -> Any:
    if not (isinstance(kind, type) and issubclass(kind, Enum) and name in kind.__members__):
        raise pickle.UnpicklingError(f"{name!r} is not a member of an enum")
    return kind[name]


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


class _Reader(FileSystemReader):
    """torch's reader with a restricted unpickler; verifies the files it reads.

    Args:
        folder: folder to read.
        known: the folder's metadata, if already read.
        verified: names of files that need not be verified again; verified files are added.
    """

    def __init__(
        self, folder: Path, known: Metadata | None = None, verified: set[str] | None = None
    ) -> None:
        super().__init__(folder)
        self._known = known
        self._verified = set[str]() if verified is None else verified

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the metadata of all ranks."""
        if self._known is not None:
            return self._known
        path = Path(self.path) / ".metadata"
        _verify(path)
        with path.open("rb") as file:
            found = _Unpickler(file).load()
        if not isinstance(found, Metadata):
            raise pickle.UnpicklingError(f"expected Metadata, got {type(found).__name__}")
        found.storage_meta = StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Verify the files that this rank reads; a failure reaches all ranks."""
        needed = {self.storage_data[item.storage_index].relative_path for item in plan.items}
        for name in sorted(needed - self._verified):
            _verify(Path(self.path) / name)
            self._verified.add(name)
        return super().prepare_local_plan(plan)


class _Files(FileSystem):
    """torch's file system for disks that cannot rename files; computes checksums while writing."""

    def __init__(self) -> None:
        self._digests = dict[Path, xxhash.xxh3_128]()

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        """Open a file."""
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        with _DigestedFile(io.FileIO(path, mode)) as file:
            yield file
        self._digests[Path(path)] = file.digest

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Give a file its final name."""
        move_into_place(Path(path), Path(new_path))
        self._digests[Path(new_path)] = self._digests.pop(Path(path))

    def write_checksums(self) -> None:
        """Write the checksums of all written files."""
        for path, digest in self._digests.items():
            _write_checksum(path, digest.hexdigest())


class _DigestedFile(io.BufferedWriter):
    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(raw)
        self.digest = xxhash.xxh3_128()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return super().write(data)


def _checksum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.xxh3")


def _write_checksum(path: Path, digest: str) -> None:
    write_durably(_checksum_of(path), f"{digest}  {path.name}\n")


def _verify(path: Path) -> None:
    """Compare a file with its checksum, if any.

    Raises:
        OSError: the file or its checksum cannot be read.
        ValueError: the file is damaged.
    """
    if (stored := _checksum_of(path)).is_file():
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()
        if stored.read_text().split()[:1] != [digest]:
            raise ValueError(f"{path.name} is damaged: its checksum does not match")


class BackgroundWrite:
    """Writes a copy of tensors in a thread while the originals change; create it on every rank.

    Args:
        folder: see `write`.
        tensors: see `write`; copied to CPU memory before the constructor returns.
        plain: see `write`.
        main: see `write`.
        group: CPU process group of all ranks that nothing else uses in the meantime.
    """

    def __init__(
        self,
        folder: Path,
        tensors: Mapping[str, Tensor],
        plain: Mapping[str, Any],
        main: bool,
        group: ProcessGroup,
    ) -> None:
        self._written: Future[None] = Future()
        copies = {name: _copy(tensor) for name, tensor in tensors.items()}

        def work() -> None:
            try:
                write(folder, copies, plain, main, group)
            # `is_done` raises the error again.
            except BaseException as error:
                self._written.set_exception(error)
            else:
                self._written.set_result(None)
            copies.clear()

        threading.Thread(target=work, name="checkpoint", daemon=True).start()

    def is_done(self, wait_s: float = 0.0) -> bool:
        """Whether everything is on disk.

        Raises:
            OSError: see `write`.
        """
        try:
            self._written.result(wait_s)
        except TimeoutError:
            return False
        return True


def _copy(tensor: Tensor) -> Tensor:
    """Copy a tensor to CPU memory, sharded in the same way."""
    shard = local_shard(tensor).detach()
    return state_dtensor(torch.empty_like(shard, device="cpu").copy_(shard), tensor)


def write(
    folder: Path,
    tensors: Mapping[str, Tensor],
    plain: Mapping[str, Any],
    main: bool,
    group: ProcessGroup | None = None,
) -> None:
    """Write tensors and plain values; a collective call.

    Args:
        folder: output folder; created if needed.
        tensors: tensors by name, sharded or the same on every rank.
        plain: JSON values.
        main: True on the rank that writes the plain values.
        group: process group of all ranks; None for the default group.

    Raises:
        OSError: the disk is full or not writable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if main:
        text = json.dumps(dict(plain), indent=1)
        (folder / _PLAIN).write_text(text)
        _write_checksum(folder / _PLAIN, xxhash.xxh3_128_hexdigest(text.encode()))
    # Copying ahead would pin memory for all written tensors, and torch would keep it.
    writer = FileSystemWriter(folder, sync_files=True, per_thread_copy_ahead=0)
    writer.fs = files = _Files()
    try:
        state_dict_saver.save(dict(tensors), storage_writer=writer, process_group=group)
        files.write_checksums()
    except CheckpointException as error:
        # torch reports a full disk as a malformed archive.
        full = shutil.disk_usage(folder).free < _LITTLE
        why = "the disk is full" if full else _first(error)
        raise OSError(f"{folder}: cannot be written: {why}") from error


def read_plain(folder: Path) -> dict[str, Any]:
    """Read the plain values.

    Raises:
        ConfigError: the folder was not written by `write`, or is broken.
    """
    try:
        _verify(folder / _PLAIN)
        found = json.loads((folder / _PLAIN).read_text())
    except (OSError, ValueError) as error:
        raise _broken(folder, error) from error
    if not isinstance(found, dict):
        raise _broken(folder, f"{_PLAIN} is not a JSON object")
    return found


def check_files(folder: Path) -> None:
    """Check that the files are complete, from their sizes and the metadata alone.

    Raises:
        ConfigError: a file is missing, damaged or truncated.
    """
    read_plain(folder)
    needed: dict[str, int] = {}
    for part in (_metadata(folder).storage_data or {}).values():
        end = part.offset + part.length
        needed[part.relative_path] = max(end, needed.get(part.relative_path, 0))
    for name, size in needed.items():
        file = folder / name
        found = file.stat().st_size if file.is_file() else None
        if found is None:
            raise _broken(folder, f"{name} is missing")
        if found < size:
            raise _broken(folder, f"{name} is truncated: {found:,} bytes of {size:,}")


def read_into(folder: Path, tensors: Mapping[str, Tensor], required_prefix: str) -> None:
    """Read tensors in place, each rank its shards; a collective call.

    Args:
        folder: written by any number of ranks.
        tensors: tensors to overwrite; stored tensors with other names are ignored.
        required_prefix: stored tensors with this prefix must not be ignored.

    Raises:
        ConfigError: a tensor is missing, unexpected or has a different shape, or the folder is
            broken.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    check_shapes(folder, stored_shapes(folder), expected, required_prefix)
    try:
        state_dict_loader.load(dict(tensors), storage_reader=_Reader(folder))
    except (CheckpointException, OSError, RuntimeError, ValueError, EOFError) as error:
        raise _broken(folder, error) from error


class TensorReader:
    """Reads full tensors from a folder by name, in a single process.

    Args:
        folder: written by any number of ranks.
        prefix: reads only tensors with this prefix, which is removed from their names.

    Raises:
        ConfigError: the folder is broken.
    """

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder, self._prefix = folder, prefix
        self._metadata, self._verified = _metadata(folder), set[str]()
        found = {n: about for n, about in _types(self._metadata).items() if n.startswith(prefix)}
        stored_bytes = sum(file.stat().st_size for file in folder.iterdir())
        # The metadata may be malicious, and the sizes it claims must not exhaust memory.
        for name, (shape, dtype) in found.items():
            if math.prod(shape) * dtype.itemsize > stored_bytes:
                raise _broken(
                    folder,
                    f"{name} claims {math.prod(shape):,} elements, but all files together have "
                    f"{stored_bytes:,} bytes",
                )
        self.layout = {
            name.removeprefix(prefix): torch.empty(shape, dtype=dtype, device="meta")
            for name, (shape, dtype) in found.items()
        }
        """A meta tensor for each readable tensor, by name."""

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Read some tensors, by name.

        Raises:
            ConfigError: the folder is broken.
        """
        found = {
            f"{self._prefix}{name}": torch.empty_like(self.layout[name], device="cpu")
            for name in names
        }
        reader = _Reader(self._folder, self._metadata, self._verified)
        try:
            with warnings.catch_warnings():
                # torch warns that no process group is initialized.
                warnings.simplefilter("ignore", UserWarning)
                state_dict_loader.load(found, storage_reader=reader, no_dist=True)
        except (CheckpointException, OSError, RuntimeError, ValueError, EOFError) as error:
            raise _broken(self._folder, error) from error
        return {name.removeprefix(self._prefix): tensor for name, tensor in found.items()}


def read(folder: Path, prefix: str) -> dict[str, Tensor]:
    """Read all tensors that a `TensorReader` can read."""
    reader = TensorReader(folder, prefix)
    return reader.read(reader.layout)


def stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the stored tensors by name, from the metadata alone.

    Raises:
        ConfigError: the folder is broken.
    """
    return {name: shape for name, (shape, _) in _types(_metadata(folder)).items()}


def _types(metadata: Metadata) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Return the shapes and dtypes of the stored tensors by name."""
    return {
        name: (tuple(about.size), about.properties.dtype)
        for name, about in metadata.state_dict_metadata.items()
        if isinstance(about, TensorStorageMetadata)
    }


def _metadata(folder: Path) -> Metadata:
    try:
        return _Reader(folder).read_metadata()
    # Unpickling a broken file can raise anything.
    except Exception as error:
        raise _broken(folder, error) from error


def check_shapes(
    folder: Path,
    stored: Mapping[str, tuple[int, ...]],
    expected: Mapping[str, tuple[int, ...]],
    required_prefix: str,
) -> None:
    """Compare stored tensors with expected ones, by name and shape.

    Raises:
        ConfigError: a tensor is missing, unexpected or has a different shape.
    """
    for name, shape in expected.items():
        if name not in stored:
            raise ConfigError(
                f"{folder}: belongs to a different model or job: {name} is missing"
                f"{did_you_mean(name, stored)}"
            )
        if stored[name] != shape:
            raise ConfigError(
                f"{folder}: belongs to a different model: {name} has shape {stored[name]}, "
                f"expected {shape}"
            )
    for name in stored:
        if name.startswith(required_prefix) and name not in expected:
            raise ConfigError(f"{folder}: belongs to a different model: {name} is unexpected")


def _broken(folder: Path, why: BaseException | str) -> ConfigError:
    reason = why if isinstance(why, str) else _first(why)
    return ConfigError(
        f"{folder}: cannot be read: {reason}. Remove this checkpoint to use an earlier one."
    )


def _first(error: BaseException) -> str:
    """Describe an error in one line; a collective failure by its first failed rank's error."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()), (error, None))[0]
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
