"""Computer vision on screenshots, for games that publish no state.

Frames are RGB, uint8[H, W, 3], of any size; boxes are left, top, right and bottom in [0, 1]. Known
content is found by its shape (`find_template`, `Glyphs`) or its color (`color_fraction`,
`color_regions`, `dominant_color`), and other text by OCR (`OcrReader`). `VisionAudit` measures how
accurate the readings are.
"""

from agentrl.devices.screen_regions import WHOLE, Box, check_frame
from agentrl.devices.vision.colors import (
    Color,
    ColorRegion,
    color_fraction,
    color_regions,
    dominant_color,
)
from agentrl.devices.vision.glyphs import GlyphReading, Glyphs
from agentrl.devices.vision.ocr import OcrReader, TextLine, TextReader
from agentrl.devices.vision.template_matching import Template, TemplateMatch, find_template
from agentrl.devices.vision.vision_audit import (
    UNREAD,
    Disagreement,
    VisionAudit,
    format_audit,
)

__all__ = [
    "UNREAD",
    "WHOLE",
    "Box",
    "Color",
    "ColorRegion",
    "Disagreement",
    "GlyphReading",
    "Glyphs",
    "OcrReader",
    "Template",
    "TemplateMatch",
    "TextLine",
    "TextReader",
    "VisionAudit",
    "check_frame",
    "color_fraction",
    "color_regions",
    "dominant_color",
    "find_template",
    "format_audit",
]
