"""Load images from data sets: a path, bytes, base64, a data URI, PIL, or `{bytes, path}`.

Check results are cached, so unchanged images are checked only once.
"""

import base64
import binascii
import contextlib
import hashlib
import io
import itertools
import json
import logging
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import numpy as np
import PIL.Image
import PIL.ImageOps

from agentrl.text.formatting import quoted
from agentrl.types import Image

log = logging.getLogger(__name__)

FOLDER = Path("~/.cache/agentrl/pictures")
# With fewer images, decoding is faster than the cache.
_FEW = 500

_T = TypeVar("_T")
Cell = tuple[int, Any]
"""Index of a row and one of its undecoded images."""
# Maximum pixels of an image; a larger image must be a mistake or an attack.
_MAX_PIXELS = 64_000_000
# Formats to decode. Others, such as EPS, can contain programs that PIL would run.
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "PPM", "TIFF")
_DATA_URI = re.compile(r"data:image/[\w.+-]+;base64,", re.ASCII | re.IGNORECASE)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]+://", re.ASCII | re.IGNORECASE)
_FILE_URL = re.compile(r"file://(localhost)?/", re.IGNORECASE)
# Shorter text, or text with a dot, is a file name.
_BASE64 = re.compile(r"[A-Za-z0-9+/\-_\s]{64,}+={0,2}\s*", re.ASCII)


class ImageError(ValueError):
    """Raised for an image that is missing, not allowed, or cannot be decoded."""


def load_image(value: Any, root: Path) -> Image:
    """Load the image in a data set's cell, rotated upright, with transparency over white.

    Args:
        value: a path, a `file://` URL, bytes, base64, a data URI, a PIL image, an array
            uint8[H, W, 3], or a mapping with `bytes` or `path`, as in Hugging Face data sets.
        root: folder that paths are relative to and must stay within.

    Returns:
        uint8[H, W, 3].

    Raises:
        ImageError: the image cannot be loaded.
    """
    if isinstance(value, np.ndarray):
        return _checked(value)
    if isinstance(value, PIL.Image.Image):
        return _decoded(value)
    return _opened(value, root, _decoded)


def count_pixels(value: Any) -> int:
    """Return the number of pixels of an image in a data URI, without decoding the image."""
    # A client must not be able to name a path on this machine.
    if not is_data_uri(value):
        raise ImageError("an image must be a data URI")
    return _opened(value, Path(), _bounded_pixels)


def _opened(value: Any, root: Path, read: Callable[[PIL.Image.Image], _T]) -> _T:
    found = image_source(value, root)
    try:
        # Reading from a pipe or a device might never end.
        if isinstance(found, Path) and not stat.S_ISREG(found.stat().st_mode):
            raise ImageError(f"{quoted(value, 80)} is not a regular file")
        # PIL warns about broken EXIF blocks and large images; neither matters here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = found if isinstance(found, Path) else io.BytesIO(found)
            with PIL.Image.open(held, formats=_FORMATS) as opened:
                return read(opened)
    except FileNotFoundError:
        raise ImageError(f"{value}: no such file in {root}") from None
    except ImageError:
        raise
    except PIL.UnidentifiedImageError:
        raise ImageError(f"{quoted(value, 80)}: not recognized as {', '.join(_FORMATS)}") from None
    # A decoder may raise anything on a broken file; its message may contain a buffer's address.
    except Exception as error:
        why = re.sub(r"<_io\.BytesIO object at 0x[0-9a-f]+>", "the bytes", str(error))
        raise ImageError(f"{quoted(value, 80)}: {type(error).__name__}: {why}") from error


def is_data_uri(value: Any) -> bool:
    """Return whether a value is a data URI, which is never read as a path."""
    return isinstance(value, str) and _DATA_URI.match(value) is not None


def image_source(value: Any, root: Path) -> Path | bytes:
    """Return the image's file below the root, or its bytes."""
    if isinstance(value, Mapping):
        held = value.get("bytes")
        value = held if held is not None else value.get("path")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if is_data_uri(value):
        return _unpacked(value.partition(",")[2], value)
    if isinstance(value, Path) or (
        isinstance(value, str) and value and not _BASE64.fullmatch(value)
    ):
        return _below(root, value)
    if isinstance(value, str) and value:
        # Long text without a dot could be either: it is a file name if that file exists.
        with contextlib.suppress(ImageError, OSError):
            if (named := _below(root, value)).is_file():
                return named
        return _unpacked(value, value)
    raise ImageError(
        f"{quoted(value, 80)} is not an image; give a path, bytes, base64 or a PIL image"
    )


def _below(root: Path, value: str | Path) -> Path:
    if _FILE_URL.match(str(value)):
        value = unquote(_FILE_URL.sub("/", str(value)))
    if _ELSEWHERE.match(str(value)):
        raise ImageError(
            f"{quoted(value, 80)}: URLs are not fetched; download the image and give its path"
        )
    try:
        path = (root / value).resolve()
        inside = path.is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise ImageError(f"{quoted(value, 80)} is not a valid path: {error}") from None
    if not inside:
        raise ImageError(
            f"{quoted(value, 80)}: outside {root}; set image_root to the folder that contains all "
            "images"
        )
    return path


def _unpacked(text: str, value: Any) -> bytes:
    try:
        plain = "".join(text.split()).translate(str.maketrans("-_", "+/")).rstrip("=")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError(f"{quoted(value, 80)}: broken base64: {error}") from None


def _bounded_pixels(image: PIL.Image.Image) -> int:
    if image.width * image.height > _MAX_PIXELS:
        raise ImageError(
            f"{image.width}x{image.height} pixels exceed the maximum of {_MAX_PIXELS:,}"
        )
    return image.width * image.height


def _decoded(image: PIL.Image.Image) -> Image:
    _bounded_pixels(image)
    upright = PIL.ImageOps.exif_transpose(image)
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        shown = upright.convert("RGBA")
        ground = PIL.Image.new("RGBA", shown.size, "white")
        upright = PIL.Image.alpha_composite(ground, shown)
    # PIL would clip values above 255.
    elif upright.mode.startswith("I;16"):
        return _checked(np.stack([(np.asarray(upright) >> 8).astype(np.uint8)] * 3, axis=-1))
    return _checked(np.array(upright.convert("RGB")))


def _checked(image: Any) -> Image:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise ImageError(
            f"{image.dtype}{list(image.shape)} is not an image; it must be uint8[H, W, 3]"
        )
    return np.asarray(image, np.uint8)


def find_broken(
    cells: Callable[[], Iterator[Cell]],
    root: Path,
    broken: Callable[[Iterator[Cell]], dict[int, str]],
) -> dict[int, str]:
    """Return the result of `broken` for images, from the cache if they have not changed.

    Files are identified by path, size and modification time, and other images by their bytes.

    Args:
        cells: iterates over the images; may be called twice.
        root: folder of the image files.
        broken: decodes the images and returns, by row, why an image is broken.
    """
    if sum(1 for _ in itertools.islice(cells(), _FEW)) < _FEW:
        return broken(cells())
    kept = FOLDER.expanduser() / f"{digest_images(cells(), root)}.json"
    try:
        return {int(index): str(why) for index, why in json.loads(kept.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        found = broken(cells())
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Use a temporary file, since several processes may check the same images at the same time.
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(found))
        partial.replace(kept)
    except OSError as error:
        log.info("cannot cache the result of the image check: %s", error)
    return found


def digest_images(cells: Iterator[Cell], root: Path) -> str:
    """Hash images: their bytes, or the path, size and modification time of their files."""
    digest = hashlib.sha256(str(root).encode(errors="replace"))
    for index, value in cells:
        digest.update(f"{index}\0".encode())
        try:
            held = image_source(value, root)
        except ImageError as error:
            held = str(error).encode(errors="replace")
        if isinstance(held, Path):
            try:
                stamp = held.stat()
                key = f"{held}\0{stamp.st_size}\0{stamp.st_mtime_ns}\0"
            except OSError:
                key = f"{held} is missing\0"
            held = key.encode(errors="replace")
        digest.update(held)
    return digest.hexdigest()[:32]
