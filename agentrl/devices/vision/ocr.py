"""Reads any text on a frame with OCR; the only file that uses RapidOCR.

RapidOCR (Apache-2.0) runs PP-OCR models that are bundled in its wheel, so nothing is downloaded.
`Glyphs` reads glyphs of known shapes faster and more reliably.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from agentrl.devices.screen_regions import WHOLE, Box, box_to_pixels, crop, pixels_to_box
from agentrl.errors import ConfigError
from agentrl.extras import NO_OCR
from agentrl.types import Image

_LEAST = 32
"""Smallest side that RapidOCR accepts, in pixels."""
_SLIM = 16
"""Largest aspect ratio that RapidOCR accepts."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TextLine:
    """One line of text."""

    text: str
    box: Box
    score: float
    """Confidence, in [0, 1]."""


class TextReader(Protocol):
    """Reads text on frames."""

    def read(self, frame: Image, box: Box = WHOLE) -> tuple[TextLine, ...]:
        """Read the lines of text in a box, from top to bottom; empty if there is no text.

        Args:
            frame: uint8[H, W, 3].
            box: where to look.

        Raises:
            ValueError: the frame or box is invalid.
        """
        ...


class OcrReader:
    """Reads text in Latin letters, digits and Chinese; see `TextReader.read`.

    Loading the models takes about a second, so keep the reader. A frame takes from 0.1 s to
    several seconds, depending on its size and number of lines.

    Args:
        min_score: lines with a lower confidence are dropped.
        threads: CPU threads.

    Raises:
        ConfigError: RapidOCR or ONNX Runtime is not installed.
    """

    def __init__(self, min_score: float = 0.5, threads: int = 1) -> None:
        try:
            import onnxruntime  # noqa: F401 - RapidOCR would only fail on first use
            from rapidocr import RapidOCR
        except ImportError as error:
            raise ConfigError(NO_OCR) from error
        parameters = {
            "Global.log_level": "critical",
            "Global.text_score": min_score,
            "Global.use_cls": False,  # text on a screen is never upside down
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
        }
        self._engine: Any = RapidOCR(params=parameters)

    def read(self, frame: Image, box: Box = WHOLE) -> tuple[TextLine, ...]:
        """See TextReader.read."""
        left, top, _, _ = box_to_pixels(frame, box)
        part = crop(frame, box)
        # RapidOCR rejects smaller and narrower pictures; padding with the last row and column adds
        # no text.
        least = max(_LEAST, -(-max(part.shape[:2]) // _SLIM))
        below, beside = (max(0, least - side) for side in part.shape[:2])
        part = np.pad(part, ((0, below), (0, beside), (0, 0)), mode="edge")
        found = self._engine(part[..., ::-1].copy())  # RapidOCR expects BGR
        if not found.txts:
            return ()
        lines = []
        for text, score, corners in zip(found.txts, found.scores, found.boxes, strict=True):
            (x, y), (wide, high) = corners.min(axis=0).tolist(), np.ptp(corners, axis=0).tolist()
            line_box = pixels_to_box(frame, left + x, top + y, wide, high)
            lines.append(TextLine(text=str(text), box=line_box, score=float(score)))
        return tuple(sorted(lines, key=lambda line: (line.box[1], line.box[0])))
