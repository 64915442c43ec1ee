"""Draws the pictures of gym-cards: the same layout, fonts and colors, but our own playing cards."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from agentrl import extras
from agentrl.errors import ConfigError
from agentrl.types import Image

SIDE = 300
"""Width and height of every picture, in pixels."""
SUITS = {"H": "♥", "S": "♠", "D": "♦", "C": "♣"}
RANKS = "A23456789TJQK"
"""Ranks in the order of their numbers, from 1."""
BOLD, REGULAR = "DejaVuSans-Bold.ttf", "DejaVuSans.ttf"

_TABLE = "#35654d"
_CARD_WIDTH, _CARD_HEIGHT = 135, 189
_RED, _BLACK, _EDGE = "#c8102e", "#101010", "#808080"


@lru_cache
def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Load a DejaVu font from matplotlib, or else from the system.

    Raises:
        ConfigError: neither has the font.
    """
    # Read only the file, because importing matplotlib takes half a second.
    spec = find_spec("matplotlib")
    folder = Path() if spec is None else Path(str(spec.origin)).parent / "mpl-data/fonts/ttf"
    try:
        return ImageFont.truetype(str(folder / name), size)
    except OSError as error:
        raise ConfigError(
            f"the picture needs the font {name}, which comes with matplotlib; run: "
            f"{extras.installation_of('matplotlib')}"
        ) from error


@lru_cache(maxsize=1024)
def draw_number_line(target: int, current: int) -> Image:
    """Draw the two numbers of NumberLine; shared by all callers, uint8[300, 300, 3]."""
    picture = Pillow.new("RGB", (SIDE, SIDE), "white")
    canvas = ImageDraw.Draw(picture)
    for y, text in ((60, f"Target: {target}"), (180, f"Current: {current}")):
        canvas.text((30, y), text, fill="black", font=font(BOLD, 36))
    return np.array(picture)


def draw_points(cards: tuple[str, ...], formula: str) -> Image:
    """Draw the cards of EZPoints on a green table, above the formula, uint8[300, 300, 3]."""
    picture = _table(cards).copy()
    ImageDraw.Draw(picture).text(
        (10, SIDE * 0.86), f"Formula: {formula}", fill="white", font=font(REGULAR, 20)
    )
    return np.array(picture)


@lru_cache(maxsize=1024)
def _table(cards: tuple[str, ...]) -> Pillow.Image:
    picture = Pillow.new("RGB", (SIDE, SIDE), _TABLE)
    for index, card in enumerate(cards):
        place = (5 + int(index * _CARD_WIDTH * 1.1), (SIDE - _CARD_HEIGHT) // 2)
        picture.paste(_card(card), place)
    return picture


@lru_cache(maxsize=52)
def _card(card: str) -> Pillow.Image:
    """Draw a card: rank and suit in two corners, upright and upside down, and a large suit."""
    suit, rank = SUITS[card[0]], card[1].replace("T", "10")
    color = _RED if card[0] in "HD" else _BLACK
    width, height = _CARD_WIDTH, _CARD_HEIGHT
    picture = Pillow.new("RGB", (width, height), "white")
    canvas = ImageDraw.Draw(picture)
    canvas.text((8, 4), rank, fill=color, font=font(BOLD, 36))
    canvas.text((8, 42), suit, fill=color, font=font(REGULAR, 32))
    # The lower half is the upper half turned by half a turn, as on real cards.
    upper = picture.crop((0, 0, width, height // 2))
    picture.paste(upper.transpose(Pillow.Transpose.ROTATE_180), (0, height - height // 2))
    center = (width / 2, height / 2)
    canvas.text(center, suit, fill=color, font=font(REGULAR, 72), anchor="mm")
    canvas.rectangle((0, 0, width - 1, height - 1), outline=_EDGE, width=2)
    return picture
