"""Draws Timberman: a tree between two sides, a man at its foot, the time bar above."""

from collections.abc import Iterator

from agentrl.envs.android.minigames import drawing_parts as parts
from agentrl.envs.android.minigames.timberman.rules import BAR, GRID, SHOWN, Timberman
from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.boxes import Box
from agentrl.envs.android.phone_game.cached_drawing import Piece, draw
from agentrl.types import Image

_COLUMNS = {"left": 0, "right": 2}
_FOOT = GRID.rows - 1
"""The row where the man stands."""


def render(game: Timberman, width: int, height: int) -> Image:
    """Draw the app's area, uint8[height, width, 3]."""
    return draw((_ground, ()), _pieces(game), width, height)


def _ground(picture: Image) -> None:
    parts.page(picture, GRID, "TIMBERMAN", ("chops", "time", "game"))
    for row in range(_FOOT - SHOWN + 1, _FOOT + 1):
        trunk = GRID.cell(1, row, margin=0)
        wood = Box(trunk.across(0.2), trunk.top, trunk.across(0.8), trunk.bottom)
        paint.rounded(picture, wood, parts.BROWN, 0.01)
        cut = Box(wood.left, wood.bottom - 0.004, wood.right, wood.bottom)
        paint.rounded(picture, cut, parts.PAGE, 0.0)


def _pieces(game: Timberman) -> Iterator[Piece]:
    yield (
        parts.values,
        (GRID, (str(game.score), "", parts.outcome(game.won, game.lost))),
    )
    yield _bar, (max(game.time_left, 0) / BAR,)
    for level, side in enumerate(game.pieces):
        if side:
            yield _branch, (_COLUMNS[side], _FOOT - level)
    yield _man, (_COLUMNS[game.side], game.side == "left", game.lost)


def _bar(picture: Image, share: float) -> None:
    board = GRID.cell(0, 0, GRID.columns)
    whole = Box(0.37, board.down(0.45), 0.63, board.down(0.63))
    paint.rounded(picture, whole, parts.EDGE, 0.01)
    if share:
        left = Box(whole.left, whole.top, whole.across(share), whole.bottom)
        paint.rounded(picture, left, parts.GREEN if share > 0.3 else parts.RED, 0.01)


def _branch(picture: Image, column: int, row: int) -> None:
    cell = GRID.cell(column, row, margin=0)
    inner, outer = (0.05, 1.25) if column == 0 else (-0.25, 0.95)
    wood = Box(cell.across(inner), cell.down(0.4), cell.across(outer), cell.down(0.6))
    paint.rounded(picture, wood, parts.BROWN, 0.02)
    leaf = 0.1 if column == 0 else 0.3
    leaves = Box(cell.across(leaf), cell.down(0.2), cell.across(leaf + 0.6), cell.down(0.8))
    paint.rounded(picture, leaves, parts.DARK_GREEN, 0.05)


def _man(picture: Image, column: int, faces_right: bool, lost: bool) -> None:
    cell = GRID.cell(column, _FOOT, margin=0)
    shirt = parts.RED if lost else parts.BLUE
    body = Box(cell.across(0.36), cell.down(0.42), cell.across(0.64), cell.down(0.95))
    paint.rounded(picture, body, shirt, 0.03)
    paint.disc(
        picture, Box(cell.left, cell.down(0.1), cell.right, cell.down(0.46)), parts.ORANGE, 0.05
    )
    near, far = (0.6, 0.95) if faces_right else (0.05, 0.4)
    paint.rounded(
        picture,
        Box(cell.across(near), cell.down(0.52), cell.across(far), cell.down(0.6)),
        parts.INK,
        0.005,
    )
