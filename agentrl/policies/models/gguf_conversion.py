"""Convert a model's GGUF file, as used by llama.cpp, to a folder in the Hugging Face format."""

import hashlib
import logging
import shutil
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl import extras
from agentrl.errors import ConfigError, boundary
from agentrl.files import move_into_place, path_of, sync
from agentrl.policies.models.model_adapter import NO_FOREIGN_CODE

log = logging.getLogger(__name__)

FOLDER = Path("~/.cache/agentrl/gguf")
SUFFIX = ".gguf"


def is_gguf(path: str) -> bool:
    """Return whether `model.path` names a GGUF file, which need not exist."""
    return path.endswith(SUFFIX)


def converted_folder(path: str) -> Path:
    """Return the folder of a converted GGUF file; the first call converts it.

    The weights are dequantized to float32, which is exact.

    Args:
        path: the file, relative to the current folder or to one on `sys.path`, where packages are
            installed.

    Raises:
        ConfigError: the file does not exist, transformers cannot read it, or a package is missing.
    """
    file = _find(path)
    stat = file.stat()
    # A different version of transformers may read a file differently.
    versions = version("transformers") if find_spec("transformers") else ""
    identity = f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns} {versions}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    folder = FOLDER.expanduser() / f"{file.stem}-{digest}"
    if folder.is_dir():
        return folder
    if find_spec("gguf") is None:
        raise ConfigError(f"model.path={path}: {extras.NO_GGUF}")
    if missing := extras.missing_for_models("local")[0]:
        raise ConfigError(". ".join(missing))
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f"{folder.name}.partial")
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():  # another process may have converted it in the meantime
            shutil.rmtree(partial, ignore_errors=True)
            _convert(file, partial)
            move_into_place(partial, folder)
    return folder


def _find(path: str) -> Path:
    given = path_of(path, "model.path")
    for folder in (Path(), *map(Path, sys.path)):
        if (folder / given).is_file():
            return folder / given
    raise ConfigError(
        f"model.path={path}: no such file in the current folder or in an installed package"
    )


def _convert(file: Path, folder: Path) -> None:
    import torch
    import transformers

    log.info("converting %s to the Hugging Face format, once, in %s", file, folder.parent)
    # Versions with this class may leave weights quantized, and then they cannot be saved.
    settings: dict[str, Any] = {}
    if (config := getattr(transformers, "GgufConfig", None)) is not None:
        settings["quantization_config"] = config(dequantize=True)
    with boundary(ConfigError, f"model.path={file} cannot be converted"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            file.parent, gguf_file=file.name, **NO_FOREIGN_CODE
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32, **settings, **NO_FOREIGN_CODE
        )
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for written in folder.iterdir():
        sync(written)
