"""HTML for notebooks: film strips of screens, and images. All text is escaped."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST = 24
"""Maximum number of cells in a strip; of a longer strip, only the start and the end are shown."""
_WIDTH = 132
"""Width of an image in CSS pixels; its pixels are twice as many, for sharp displays."""
_LONGEST = 120
"""Maximum length of a line, in characters."""
_LONGEST_TEXT = 2000
"""Maximum length of a text screen, in characters."""
_CELL = f"flex:none;width:{_WIDTH}px;font-size:12px;overflow-wrap:anywhere"
_TEXT = "margin:0;white-space:pre;overflow-x:auto;font-family:monospace;font-size:12px"
"""Style of a text screen, which often shows a board."""
_STRIP = "display:flex;gap:8px;overflow-x:auto;padding-bottom:8px"


@dataclass(slots=True, kw_only=True, frozen=True)
class Cell:
    """A screen, as an image or text, with lines of text below it."""

    picture: "NDArray[np.uint8] | None"
    """uint8[H, W, 3], RGB."""
    lines: Sequence[str]
    text: str = ""
    """The screen of a text environment, with its line breaks."""
    tooltip: str = ""
    is_wrong: bool = False
    """True if the last line reports a mistake."""


def film_strip(heading: str, cells: Sequence[Cell]) -> str:
    """Lay out screens side by side below a heading."""
    shown = [_cell(cell) for cell in cells]
    if len(cells) > _MOST:
        half = _MOST // 2
        left_out = f'<div style="{_CELL}">{len(cells) - 2 * half} more</div>'
        shown = [*shown[:half], left_out, *shown[-half:]]
    return f'<p>{escape(heading)}</p><div style="{_STRIP}">{"".join(shown)}</div>'


def _cell(cell: Cell) -> str:
    lines = [escape(_shortened(line)) for line in cell.lines]
    if cell.is_wrong:
        lines[-1] = f'<span style="color:#b91c1c">{lines[-1]}</span>'
    screen = "" if cell.picture is None else f"{_picture(cell.picture)}<br>"
    if cell.text:
        screen += f'<pre style="{_TEXT}">{escape(_shortened(cell.text, _LONGEST_TEXT))}</pre>'
    title = escape(cell.tooltip[: 20 * _LONGEST])
    return f'<div style="{_CELL}" title="{title}">{screen}{"<br>".join(lines)}</div>'


def _picture(image: "NDArray[np.uint8]") -> str:
    import cv2

    height, width = image.shape[:2]
    scale = min(1.0, 2 * _WIDTH / width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    _, encoded = cv2.imencode(".jpg", cv2.cvtColor(small, cv2.COLOR_RGB2BGR))
    return picture_of(encoded.tobytes(), "jpeg", width=_WIDTH)


def picture_of(content: bytes, kind: str, *, width: int) -> str:
    """Embed an encoded image, `png` or `jpeg`, scaled to CSS pixels."""
    data = base64.b64encode(content).decode()
    return f'<img src="data:image/{kind};base64,{data}" style="width:{width}px" alt="">'


def _shortened(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[:longest]}..."
