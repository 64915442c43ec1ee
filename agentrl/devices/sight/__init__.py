"""Reading a screen by looking at it: for games that publish nothing.

Frames are uint8[H, W, 3] of any size, RGB; boxes are left, top, right and bottom in [0, 1]. What is
known is found by its shape (`find`, `Glyphs`) or its colour (`share_of`, `regions_of`, `nearest`),
any other text by OCR (`OcrReader`), and `Audit` tells how far the reading can be trusted.
"""

from agentrl.devices.regions import Box
from agentrl.devices.sight.area import WHOLE, check_frame
from agentrl.devices.sight.audit import UNREAD, Audit, Disagreement, table_of, wilson
from agentrl.devices.sight.colours import Colour, Region, nearest, regions_of, share_of
from agentrl.devices.sight.glyphs import Glyphs, Row
from agentrl.devices.sight.templates import Match, Template, find
from agentrl.devices.sight.text import Line, OcrReader, Reader

__all__ = [
    "UNREAD",
    "WHOLE",
    "Audit",
    "Box",
    "Colour",
    "Disagreement",
    "Glyphs",
    "Line",
    "Match",
    "OcrReader",
    "Reader",
    "Region",
    "Row",
    "Template",
    "check_frame",
    "find",
    "nearest",
    "regions_of",
    "share_of",
    "table_of",
    "wilson",
]
