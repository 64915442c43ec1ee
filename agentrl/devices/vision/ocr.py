"""Any text on a frame, read by OCR; the only file that knows RapidOCR.

RapidOCR (Apache-2.0) runs PP-OCR models that come inside its wheel: nothing is downloaded. Signs
whose shapes are known are read faster and more surely by `Glyphs`.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from agentrl.devices.screen_regions import Box
from agentrl.devices.vision import frame_area
from agentrl.devices.vision.frame_area import WHOLE
from agentrl.errors import ConfigError
from agentrl.extras import NO_OCR
from agentrl.types import Image

_LEAST = 32
"""Sides of the smallest picture that RapidOCR takes, in pixels."""
_SLIM = 16
"""How many times as long as wide a picture may be: it raises on slimmer ones."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Line:
    """One line of text."""

    text: str
    box: Box
    score: float
    """How sure the reader is, in [0, 1]."""


class Reader(Protocol):
    """What finds text on frames."""

    def read(self, frame: Image, box: Box = WHOLE) -> tuple[Line, ...]:
        """The lines in a box, from the top down; none where there is no text.

        Args:
            frame: uint8[H, W, 3].
            box: where to look.

        Raises:
            ValueError: no frame, or no box.
        """
        ...


class OcrReader:
    """A Reader for any text in Latin letters, digits and Chinese; see `Reader.read`.

    Its models are read once, in about a second; keep it. One frame takes from a tenth of a second
    to seconds, by its size and the number of its lines.

    Args:
        min_score: lines of which it is less sure are left out.
        threads: of the CPU.

    Raises:
        ConfigError: RapidOCR or ONNX Runtime is not installed.
    """

    def __init__(self, min_score: float = 0.5, threads: int = 1) -> None:
        try:
            import onnxruntime  # noqa: F401 - RapidOCR finds out only when it is used
            from rapidocr import RapidOCR
        except ImportError as error:
            raise ConfigError(NO_OCR) from error
        given = {
            "Global.log_level": "critical",
            "Global.text_score": min_score,
            "Global.use_cls": False,  # no line of a screen stands on its head
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
        }
        self._engine: Any = RapidOCR(params=given)

    def read(self, frame: Image, box: Box = WHOLE) -> tuple[Line, ...]:
        """See Reader.read."""
        left, top, _, _ = frame_area.pixels_in(frame, box)
        found = self._engine(_widened(frame_area.cut(frame, box))[..., ::-1].copy())  # it takes BGR
        if not found.txts:
            return ()
        lines = []
        for text, score, corners in zip(found.txts, found.scores, found.boxes, strict=True):
            (x, y), (wide, high) = corners.min(axis=0).tolist(), np.ptp(corners, axis=0).tolist()
            place = frame_area.box_of(frame, left + x, top + y, wide, high)
            lines.append(Line(text=str(text), box=place, score=float(score)))
        return tuple(sorted(lines, key=lambda line: (line.box[1], line.box[0])))


def _widened(part: Image) -> Image:
    """The same with its last row and column repeated, where it is too small or too slim to read."""
    least = max(_LEAST, -(-max(part.shape[:2]) // _SLIM))
    below, beside = (max(0, least - side) for side in part.shape[:2])
    return np.pad(part, ((0, below), (0, beside), (0, 0)), mode="edge")
