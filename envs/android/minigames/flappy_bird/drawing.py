"""Draws Flappy Bird."""

from collections.abc import Iterator

from agentrl.envs.android.minigames import drawing_parts as parts
from agentrl.envs.android.minigames.flappy_bird.rules import (
    BIRD,
    COLUMNS,
    GAP,
    GRID,
    RADIUS,
    ROWS,
    TOP,
    UNIT,
    FlappyBird,
)
from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.boxes import Box
from agentrl.envs.android.phone_game.cached_drawing import Piece, draw
from agentrl.envs.android.phone_game.paint import Color
from agentrl.types import Image

_SKY: Color = (222, 240, 252)


def render(game: FlappyBird, width: int, height: int) -> Image:
    """Draw the app's area, uint8[height, width, 3]."""
    return draw((_ground, ()), _pieces(game), width, height)


def _ground(picture: Image) -> None:
    parts.page(picture, GRID, "FLAPPY BIRD", ("gates", "wait here", "game"))
    paint.rounded(picture, GRID.cell(0, TOP, COLUMNS, ROWS, margin=0), _SKY, 0.0)
    earth = GRID.cell(0, TOP + ROWS, COLUMNS, margin=0)
    paint.rounded(picture, earth, parts.BROWN, 0.0)
    paint.text(picture, "Tap to flap.", 0.5, earth.down(0.5), 0.042, parts.PANEL)


def _pieces(game: FlappyBird) -> Iterator[Piece]:
    shown = (f"{game.score}/{game.goal}", "", parts.outcome(game.won, game.lost))
    yield parts.values, (GRID, shown)
    for x, gap in game.gates:
        yield _gate, (x / UNIT, gap)
    yield _bird, (game.bird.y / UNIT, game.bird.speed < 0, game.lost)


def _gate(picture: Image, column: float, gap: int) -> None:
    for row, rows in ((0, gap), (gap + GAP, ROWS - gap - GAP)):
        if rows:
            post = GRID.cell(column, TOP + row, 1, rows, margin=0)
            paint.rounded(picture, parts.inset(post, 0.008), parts.GREEN, 0.01)


def _bird(picture: Image, row: float, rises: bool, lost: bool) -> None:
    cell = GRID.cell(BIRD, TOP + row - 0.5, margin=0)
    paint.disc(picture, cell, parts.RED if lost else parts.YELLOW, RADIUS / UNIT / COLUMNS)
    beak = ((0.7, 0.4), (1.0, 0.3 if rises else 0.7), (0.7, 0.62))
    parts.polygon(picture, cell, beak, parts.ORANGE)
    eye = Box(cell.across(0.5), cell.down(0.3), cell.across(0.7), cell.down(0.46))
    paint.disc(picture, eye, parts.INK, 0.012)
