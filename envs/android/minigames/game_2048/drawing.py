"""Draws 2048: a score board above a board of 4x4 tiles."""

from collections.abc import Iterator

from agentrl.envs.android.minigames import drawing_parts
from agentrl.envs.android.minigames.drawing_parts import EDGE, INK, PANEL
from agentrl.envs.android.minigames.game_2048.rules import GRID, SIDE, TOP, Game2048
from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.cached_drawing import Piece, draw_cached
from agentrl.envs.android.phone_game.paint import Color
from agentrl.types import Image

_FACES: tuple[Color, ...] = (
    (222, 234, 250),
    (172, 210, 248),
    (112, 180, 240),
    (52, 140, 222),
    (120, 214, 178),
    (40, 160, 104),
    (252, 220, 110),
    (246, 170, 50),
    (236, 112, 50),
    (214, 56, 56),
    (150, 60, 190),
    (60, 50, 90),
)
"""Colors of the tiles 2, 4, 8 and so on; larger tiles look like the last."""
_LIGHT = (3, 5, 8, 9, 10, 11)
"""Indices of dark colors, which get light numbers."""
_SIZES = {1: 0.13, 2: 0.12, 3: 0.095, 4: 0.075, 5: 0.06}


def render(game: Game2048, width: int, height: int) -> Image:
    """Draw the app's area, uint8[height, width, 3]."""
    return draw_cached((_ground, ()), _pieces(game), width, height)


def _ground(picture: Image) -> None:
    drawing_parts.page(picture, GRID, "2048", ("score", "largest", "game"), TOP)
    for row in range(SIDE):
        for column in range(SIDE):
            drawing_parts.block(picture, GRID.cell(column, TOP + row, margin=0), EDGE)
    paint.text(picture, "Swipe to slide all tiles.", 0.5, GRID.cell(0, 6).down(0.5), 0.042, INK)


def _pieces(game: Game2048) -> Iterator[Piece]:
    largest = max(map(max, game.board))
    shown = (str(game.score), str(largest), drawing_parts.outcome(game.won, game.lost))
    yield drawing_parts.values, (GRID, shown, TOP)
    for row, tiles in enumerate(game.board):
        for column, tile in enumerate(tiles):
            if tile:
                yield _tile, (column, row, tile)


def _tile(picture: Image, column: int, row: int, tile: int) -> None:
    box = GRID.cell(column, TOP + row, margin=0)
    face = min(tile.bit_length() - 2, len(_FACES) - 1)
    drawing_parts.block(picture, box, _FACES[face])
    ink = PANEL if face in _LIGHT else INK
    paint.text(picture, str(tile), *box.center, _SIZES[len(str(tile))], ink, 0.003)
