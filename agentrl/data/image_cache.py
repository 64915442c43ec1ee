"""Pictures that were examined before, and have not changed since, are not decoded again."""

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agentrl.data.image_loading import PictureError, source

log = logging.getLogger(__name__)

FOLDER = Path("~/.cache/agentrl/pictures")
_FEW = 500
"""Pictures that are decoded sooner than remembered."""

Cell = tuple[int, Any]
"""The place of a row, and one of its pictures."""


def examine(
    cells: Callable[[], Iterator[Cell]],
    root: Path,
    broken: Callable[[Iterator[Cell]], dict[int, str]],
) -> dict[int, str]:
    """What `broken` says of these pictures, now or the last time.

    Files are told apart by path, size and time; whatever else by all of its bytes.

    Args:
        cells: goes through the pictures as they stand in the rows; may be called twice.
        root: the folder of their files.
        broken: decodes them; why each of some rows is bad.
    """
    if sum(1 for _ in itertools.islice(cells(), _FEW)) < _FEW:
        return broken(cells())
    kept = FOLDER.expanduser() / f"{_digest(cells(), root)}.json"
    try:
        return {int(place): str(why) for place, why in json.loads(kept.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        found = broken(cells())
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(found))
        partial.replace(kept)
    except OSError as error:  # only time is lost
        log.info("what was seen of the pictures is not kept: %s", error)
    return found


def _digest(cells: Iterator[Cell], root: Path) -> str:
    digest = hashlib.sha256(str(root).encode(errors="replace"))
    for place, value in cells:
        digest.update(f"{place}\0".encode())
        try:
            found = source(value, root)
            digest.update(_stamp(found) if isinstance(found, Path) else found)
        except PictureError as error:
            digest.update(str(error).encode(errors="replace"))
    return digest.hexdigest()[:32]


def _stamp(path: Path) -> bytes:
    try:
        stat = path.stat()
    except OSError:
        return f"{path} is not there\0".encode(errors="replace")
    return f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode(errors="replace")
