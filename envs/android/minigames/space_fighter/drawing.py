"""Draws the space fighter: enemies and rocks, shots, and the ship."""

from collections.abc import Iterator

from agentrl.envs.android.minigames import drawing_parts
from agentrl.envs.android.minigames.drawing_parts import BLUE, EDGE, GRAY, INK, ORANGE, PANEL, RED
from agentrl.envs.android.minigames.space_fighter.rules import (
    COLUMNS,
    GRID,
    ROWS,
    TOP,
    SpaceFighter,
)
from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.boxes import Box
from agentrl.envs.android.phone_game.cached_drawing import Piece, draw
from agentrl.types import Image

_SHIP = ((0.5, 0.05), (0.95, 0.9), (0.5, 0.72), (0.05, 0.9))
_ENEMY = ((0.1, 0.15), (0.9, 0.15), (0.68, 0.6), (0.5, 0.9), (0.32, 0.6))


def render(game: SpaceFighter, width: int, height: int) -> Image:
    """Draw the app's area, uint8[height, width, 3]."""
    return draw((_ground, ()), _pieces(game), width, height)


def _ground(picture: Image) -> None:
    drawing_parts.page(picture, GRID, "SPACE FIGHTER", ("score", "lives", "time", "game"))
    paint.rounded(picture, GRID.cell(0, TOP, COLUMNS, ROWS, margin=0), PANEL, 0.0)
    for column in range(1, COLUMNS):
        lane = GRID.cell(column, TOP, 1, ROWS, margin=0)
        edge = Box(lane.left - 0.002, lane.top, lane.left + 0.002, lane.bottom)
        paint.rounded(picture, edge, EDGE, 0.0)


def _pieces(game: SpaceFighter) -> Iterator[Piece]:
    shown = (str(game.score), str(game.lives), str(game.length - game.time))
    yield drawing_parts.values, (GRID, (*shown, drawing_parts.outcome(game.won, game.lost)))
    for column, row in game.shots:
        yield _shot, (column, row)
    for kind, column, row in game.things:
        yield _thing, (kind, column, row)
    yield _ship, (game.ship, game.target - game.ship, game.lost)


def _shot(picture: Image, column: int, row: int) -> None:
    box = _box(column, row)
    flash = Box(box.across(0.44), box.down(0.2), box.across(0.56), box.down(0.8))
    paint.rounded(picture, flash, ORANGE, 0.01)


def _thing(picture: Image, kind: str, column: int, row: int) -> None:
    if kind == "rock":
        paint.disc(picture, _box(column, row), GRAY, 0.075)
    else:
        drawing_parts.polygon(picture, _box(column, row), _ENEMY, RED)


def _ship(picture: Image, column: int, way: int, lost: bool) -> None:
    box = _box(column, ROWS - 1)
    drawing_parts.polygon(picture, box, _SHIP, RED if lost else BLUE)
    if way:  # marks the direction of its target
        mark = (
            ((0.9, 0.4), (1.0, 0.5), (0.9, 0.6)) if way > 0 else ((0.1, 0.4), (0, 0.5), (0.1, 0.6))
        )
        drawing_parts.polygon(picture, box, mark, INK)


def _box(column: int, row: int) -> Box:
    return GRID.cell(column, TOP + row, margin=0)
