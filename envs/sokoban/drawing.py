"""Draws a board: one square tile per cell, for any cell size."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agentrl.envs.sokoban.board import CHARACTERS, Board
from agentrl.types import Image

_FLOOR = (240, 240, 236)
_WALL, _MORTAR = (84, 88, 98), (110, 114, 124)
_TARGET = (220, 60, 70)
_BOX, _EDGE = (214, 150, 60), (120, 76, 20)
_DONE, _DONE_EDGE = (70, 170, 90), (20, 90, 40)
_PLAYER = (40, 90, 210)

_TILE_OF = np.zeros(256, np.uint8)
for _place, _character in enumerate(CHARACTERS):
    _TILE_OF[ord(_character)] = _place


def draw(board: Board, cell: int) -> Image:
    """Draw the board, walls included, uint8[height * cell, width * cell, 3]."""
    height, width = board.room.height, board.room.width
    text = np.frombuffer(f"{board.text()}\n".encode("ascii"), np.uint8)
    kinds = _TILE_OF[text.reshape(height, width + 1)[:, :width]]
    shown = _tiles(cell)[kinds].transpose(0, 2, 1, 3, 4)
    return shown.reshape(height * cell, width * cell, 3)


@lru_cache(maxsize=8)
def _tiles(cell: int) -> NDArray[np.uint8]:
    """Draw all tiles in the order of `CHARACTERS`, uint8[7, cell, cell, 3]."""
    return np.stack([_tile(character, cell) for character in CHARACTERS])


def _tile(character: str, cell: int) -> Image:
    """Draw a cell; shapes keep away from its edges, so that neighbors do not touch."""
    # Pixel centers, in [-1, 1] of the cell.
    x = (2 * np.arange(cell) + 1) / cell - 1
    across, down = np.abs(x)[None, :], np.abs(x)[:, None]
    far, square = np.hypot(across, down), np.maximum(across, down)
    tile = np.full((cell, cell, 3), _FLOOR, np.uint8)
    if character == "#":
        tile[:] = _MORTAR
        tile[square < 0.9] = _WALL
    if character in ".+":
        tile[(across + down > 0.55) & (across + down < 1.02)] = _TARGET
    if character in "$*":
        face, edge = (_DONE, _DONE_EDGE) if character == "*" else (_BOX, _EDGE)
        tile[square < 0.8] = edge
        tile[square < 0.55] = face
    if character in "@+":
        tile[far < (0.45 if character == "+" else 0.7)] = _PLAYER
    return tile
