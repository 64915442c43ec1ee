"""The picture of Snake: a field of 6x8 cells under a score board."""

from collections.abc import Iterator

from agentrl.envs.minigames import parts
from agentrl.envs.minigames.palette import DARK_GREEN, EDGE, GREEN, INK, PANEL, RED, YELLOW
from agentrl.envs.minigames.snake.rules import COLUMNS, GRID, ROWS, STEPS, TOP, Cell, Snake
from agentrl.envs.phone_game import paint
from agentrl.envs.phone_game.box import Box
from agentrl.envs.phone_game.pieces import Piece, draw
from agentrl.types import Image


def render(game: Snake, width: int, height: int) -> Image:
    """Draw the app's area, uint8[height, width, 3]."""
    return draw((_ground, ()), _pieces(game), width, height)


def _ground(picture: Image) -> None:
    parts.page(picture, GRID, "SNAKE", ("score", "length", "game"))
    paint.rounded(picture, GRID.cell(0, TOP, COLUMNS, ROWS, margin=0), EDGE, 0.0)
    for row in range(ROWS):
        for column in range(COLUMNS):
            parts.block(picture, _box((column, row)), PANEL, 0.003)
    foot = GRID.cell(0, GRID.rows - 1)
    paint.text(picture, "Swipe to turn the head.", 0.5, foot.down(0.5), 0.042, INK)


def _pieces(game: Snake) -> Iterator[Piece]:
    shown = (str(game.score), str(len(game.body)), parts.outcome(game.won, game.lost))
    yield parts.values, (GRID, shown)
    if game.food is not None:
        yield paint.disc, (_box(game.food), RED, 0.055)
    for one, next in zip(game.body, game.body[1:], strict=False):
        yield _link, (one, next)
    for cell in game.body[1:]:
        yield parts.block, (_box(cell), GREEN, 0.024)
    yield _head, (game.body[0], game.heading, game.lost)


def _link(picture: Image, one: Cell, next: Cell) -> None:
    """What joins two parts of the body: it tells which of two neighbours is the next."""
    a, b = _box(one), _box(next)
    (x, y), (u, v) = a.centre, b.centre
    half = 0.035
    tall = half * 9 / 16
    box = Box(min(x, u) - half, min(y, v) - tall, max(x, u) + half, max(y, v) + tall)
    paint.rounded(picture, box, GREEN, 0.01)


def _head(picture: Image, cell: Cell, heading: str, lost: bool) -> None:
    box = _box(cell)
    parts.block(picture, box, RED if lost else DARK_GREEN, 0.01)
    dx, dy = STEPS[heading]
    x, y = 0.5 + dx * 0.28, 0.5 + dy * 0.28
    eye = Box(box.across(x - 0.1), box.down(y - 0.1), box.across(x + 0.1), box.down(y + 0.1))
    paint.disc(picture, eye, YELLOW, 0.026)


def _box(cell: Cell) -> Box:
    return GRID.cell(cell[0], TOP + cell[1], margin=0)
