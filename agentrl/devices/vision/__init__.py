"""Reading a screen by looking at it: for games that publish nothing.

Frames are uint8[H, W, 3] of any size, RGB; boxes are left, top, right and bottom in [0, 1]. What is
known is found by its shape (`find`, `Glyphs`) or its colour (`share_of`, `regions_of`, `nearest`),
any other text by OCR (`OcrReader`), and `Audit` tells how far the reading can be trusted.
"""

from agentrl.devices.screen_regions import Box
from agentrl.devices.vision.colors import Colour, Region, nearest, regions_of, share_of
from agentrl.devices.vision.frame_area import WHOLE, check_frame
from agentrl.devices.vision.glyphs import Glyphs, Row
from agentrl.devices.vision.ocr import Line, OcrReader, Reader
from agentrl.devices.vision.template_matching import Match, Template, find
from agentrl.devices.vision.vision_audit import UNREAD, Audit, Disagreement, table_of, wilson

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
