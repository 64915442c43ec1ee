"""Draws Snake: a field of 6x8 cells below a score board."""

from collections.abc import Iterator

from agentrl.envs.android.minigames import drawing_parts as parts
from agentrl.envs.android.minigames.snake.rules import COLUMNS, GRID, ROWS, STEPS, TOP, Cell, Snake
from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.boxes import Box
from agentrl.envs.android.phone_game.cached_drawing import Piece, draw
from agentrl.types import Image


def render(game: Snake, width: int, height: int) -> Image:
    """Draw the app's area, uint8[height, width, 3]."""
    return draw((_ground, ()), _pieces(game), width, height)


def _ground(picture: Image) -> None:
    parts.page(picture, GRID, "SNAKE", ("score", "length", "game"))
    paint.rounded(picture, GRID.cell(0, TOP, COLUMNS, ROWS, margin=0), parts.EDGE, 0.0)
    for row in range(ROWS):
        for column in range(COLUMNS):
            parts.block(picture, _box((column, row)), parts.PANEL, 0.003)
    foot = GRID.cell(0, GRID.rows - 1)
    paint.text(picture, "Swipe to turn the head.", 0.5, foot.down(0.5), 0.042, parts.INK)


def _pieces(game: Snake) -> Iterator[Piece]:
    shown = (str(game.score), str(len(game.body)), parts.outcome(game.won, game.lost))
    yield parts.values, (GRID, shown)
    if game.food is not None:
        yield paint.disc, (_box(game.food), parts.RED, 0.055)
    for a, b in zip(game.body, game.body[1:], strict=False):
        yield _link, (a, b)
    for cell in game.body[1:]:
        yield parts.block, (_box(cell), parts.GREEN, 0.024)
    yield _head, (game.body[0], game.heading, game.lost)


def _link(picture: Image, a: Cell, b: Cell) -> None:
    """Connect two segments of the body, so that their order is visible."""
    (x, y), (u, v) = _box(a).center, _box(b).center
    half = 0.035
    tall = half * 9 / 16
    box = Box(min(x, u) - half, min(y, v) - tall, max(x, u) + half, max(y, v) + tall)
    paint.rounded(picture, box, parts.GREEN, 0.01)


def _head(picture: Image, cell: Cell, heading: str, lost: bool) -> None:
    box = _box(cell)
    parts.block(picture, box, parts.RED if lost else parts.DARK_GREEN, 0.01)
    dx, dy = STEPS[heading]
    x, y = 0.5 + dx * 0.28, 0.5 + dy * 0.28
    eye = Box(box.across(x - 0.1), box.down(y - 0.1), box.across(x + 0.1), box.down(y + 0.1))
    paint.disc(picture, eye, parts.YELLOW, 0.026)


def _box(cell: Cell) -> Box:
    return GRID.cell(cell[0], TOP + cell[1], margin=0)
