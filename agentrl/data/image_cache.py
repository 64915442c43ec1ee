"""Cache of image checks, so that unchanged images of a data set are decoded only once."""

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agentrl.data.image_loading import ImageError, image_source

log = logging.getLogger(__name__)

FOLDER = Path("~/.cache/agentrl/pictures")
_FEW = 500
"""Below this many images, decoding them is faster than the cache."""

Cell = tuple[int, Any]
"""The index of a row, and one of its undecoded images."""


def find_broken(
    cells: Callable[[], Iterator[Cell]],
    root: Path,
    broken: Callable[[Iterator[Cell]], dict[int, str]],
) -> dict[int, str]:
    """The result of `broken` for some images, from the cache if they have not changed.

    Files are identified by path, size and modification time, other images by their bytes.

    Args:
        cells: iterates over the images; may be called twice.
        root: the folder of image files.
        broken: decodes the images and returns, by row, why one is broken.
    """
    if sum(1 for _ in itertools.islice(cells(), _FEW)) < _FEW:
        return broken(cells())
    kept = FOLDER.expanduser() / f"{_digest(cells(), root)}.json"
    try:
        return {int(index): str(why) for index, why in json.loads(kept.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        found = broken(cells())
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(found))
        partial.replace(kept)
    except OSError as error:  # only time is lost
        log.info("the result of the image check is not cached: %s", error)
    return found


def _digest(cells: Iterator[Cell], root: Path) -> str:
    digest = hashlib.sha256(str(root).encode(errors="replace"))
    for index, value in cells:
        digest.update(f"{index}\0".encode())
        try:
            found = image_source(value, root)
            digest.update(_stamp(found) if isinstance(found, Path) else found)
        except ImageError as error:
            digest.update(str(error).encode(errors="replace"))
    return digest.hexdigest()[:32]


def _stamp(path: Path) -> bytes:
    try:
        stat = path.stat()
    except OSError:
        return f"{path} is missing\0".encode(errors="replace")
    return f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode(errors="replace")
