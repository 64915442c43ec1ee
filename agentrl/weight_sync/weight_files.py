"""Weight files: written atomically, on disk or in shared memory for the engines."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentrl.errors import ConfigError
from agentrl.files import atomic_replace, is_alive, move_into_place, sync
from agentrl.policies.engines.weight_checks import (
    DIGEST,
    join_digests,
    raw_bytes,
    tensor_digest,
)
from agentrl.policies.models.model_loading import SCORE
from agentrl.policies.models.stored_weights import DTYPES

if TYPE_CHECKING:
    from torch import Tensor

_PREFIX = "agentrl-weights-"
_MAX_BYTES = 5 * 10**9
"""Maximum file size of an exported model, as is usual on the Hugging Face Hub."""
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")


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


def write(path: Path, tensors: Mapping[str, Tensor], *, checked: bool = False) -> None:
    """Write a safetensors file atomically; see `write_stream`."""
    write_stream(path, tensors, tensors.items(), checked=checked)


def write_stream(
    path: Path,
    layout: Mapping[str, Tensor],
    tensors: Iterable[tuple[str, Tensor]],
    *,
    checked: bool = False,
) -> None:
    """Write a safetensors file atomically, holding one tensor at a time.

    Args:
        path: path of the file; its folder is created if needed.
        layout: for each tensor to write, in order, its name and a tensor of the same shape and
            dtype, which may be on the meta device.
        tensors: the tensors with their names.
        checked: whether to add a checksum, which engines verify.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The checksum is known only at the end, but its length, and thus the header's, is known now.
    about = {"format": "pt"} | ({DIGEST: join_digests({})} if checked else {})
    digests: dict[str, str] = {}
    with atomic_replace(path) as partial:
        try:
            with partial.open("wb") as file:
                file.write(_header(layout, about))
                for name, (expected, tensor) in zip(layout, tensors, strict=True):
                    plain = tensor.detach().cpu().contiguous()
                    like = layout[name]
                    assert (name, like.shape, like.dtype) == (expected, plain.shape, plain.dtype)
                    if checked:
                        digests[name] = tensor_digest(plain)
                    file.write(raw_bytes(plain))
                if checked:
                    file.seek(0)
                    file.write(_header(layout, about | {DIGEST: join_digests(digests)}))
        except OSError as error:
            raise OSError(f"{path}: cannot be written: {error}") from error


def _header(layout: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
    """Return the start of a safetensors file: the length of a JSON object, and the object."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    entries: dict[str, Any] = {"__metadata__": about}
    end = 0
    for name, like in layout.items():
        start, end = end, end + like.numel() * like.element_size()
        dtype = names[str(like.dtype).removeprefix("torch.")]
        entries[name] = {"dtype": dtype, "shape": [*like.shape], "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors are aligned in memory
    return len(text).to_bytes(8, "little") + text


def read(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, or of all safetensors files in a folder."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    try:
        tensors = {n: tensor for file in files for n, tensor in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: cannot be read as weights: {error}") from error
    if not tensors:
        raise ConfigError(f"{path} contains no weights (*.safetensors)")
    return tensors


def export(
    source: Path,
    folder: Path,
    layout: Mapping[str, Tensor],
    tensors: Iterable[tuple[str, Tensor]],
    *,
    max_bytes: int = _MAX_BYTES,
) -> None:
    """Write an ordinary Hugging Face folder atomically, holding one tensor at a time.

    Args:
        source: the folder whose configuration, tokenizer and processor files are copied.
        folder: folder to write; replaced if it exists.
        layout: see `write_stream`.
        tensors: the full weights, with their names.
        max_bytes: maximum file size, above which a model is written as several files with an
            index; a single tensor may be larger.
    """
    with replacing_folder(folder) as partial:
        for file in source.iterdir():
            if file.is_file() and not file.name.endswith(_WEIGHT_SUFFIXES):
                shutil.copyfile(file, partial / file.name)
        _update_config(partial / "config.json", layout)
        parts = _split(layout, max_bytes)
        # Use the file names of transformers.
        if len(parts) == 1:
            write_stream(partial / "model.safetensors", layout, tensors)
            return
        left = iter(tensors)
        of_file = {
            f"model-{k:05}-of-{len(parts):05}.safetensors": p for k, p in enumerate(parts, 1)
        }
        for name, part in of_file.items():
            write_stream(partial / name, part, islice(left, len(part)))
        assert next(left, None) is None, "the layout has all tensors"
        sizes = (like.numel() * like.element_size() for like in layout.values())
        index = {
            "metadata": {"total_size": sum(sizes)},
            "weight_map": {name: file for file, part in of_file.items() for name in part},
        }
        (partial / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def _split(layout: Mapping[str, Tensor], max_bytes: int) -> list[dict[str, Tensor]]:
    """Split a layout into the layouts of successive files."""
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, like in layout.items():
        own = like.numel() * like.element_size()
        if parts[-1] and size + own > max_bytes:
            parts.append({})
            size = 0
        parts[-1][name] = like
        size += own
    return parts


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


def _update_config(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Set the dtype in a model's configuration to that of its weights, which engines compute in.

    A reward model becomes a sequence classification model, as transformers calls it.
    """
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    if not file.is_file() or len(dtypes) != 1:
        return
    config = json.loads(file.read_text(encoding="utf-8"))
    # Multi-part models (text_config, vision_config) name the dtype in each part, older models as
    # torch_dtype.
    for part in (config, *config.values()):
        for name in ("dtype", "torch_dtype"):
            if isinstance(part, dict) and name in part:
                part[name] = next(iter(dtypes))
    if SCORE in tensors:
        config |= {"id2label": {"0": "reward"}, "label2id": {"reward": 0}}
        config["architectures"] = [
            re.sub("For[A-Z].*", "ForSequenceClassification", name)
            for name in config.get("architectures") or ()
        ]
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
