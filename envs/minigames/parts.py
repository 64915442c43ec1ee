"""What several of the small games draw: a score board, cells of a field, shapes with corners."""

from collections.abc import Sequence

from agentrl.envs.minigames.palette import EDGE, GREEN, INK, PAGE, PANEL, QUIET, RED
from agentrl.envs.phone_game import paint
from agentrl.envs.phone_game.box import Box, Grid
from agentrl.envs.phone_game.paint import Colour
from agentrl.types import Image


def panel(picture: Image, box: Box, face: Colour = PANEL) -> None:
    """A box with a thin edge."""
    paint.rounded(picture, box, EDGE, 0.03)
    inner = Box(box.left + 0.005, box.top + 0.003, box.right - 0.005, box.bottom - 0.003)
    paint.rounded(picture, inner, face, 0.026)


def page(picture: Image, grid: Grid, title: str, captions: Sequence[str], rows: int = 1) -> None:
    """The ground of every game: a page, and its score board in the upper rows."""
    picture[:] = PAGE
    board = _board(grid, rows)
    panel(picture, board)
    flat = _is_flat(board)
    if not flat:
        paint.text(picture, title, 0.5, board.down(0.16), 0.042, QUIET)
    for at, caption in enumerate(captions):
        y = board.down(0.72 if flat else 0.86)
        paint.text(picture, caption, _column(at, captions), y, 0.028 if flat else 0.034, QUIET)


def values(picture: Image, grid: Grid, shown: Sequence[str], rows: int = 1) -> None:
    """What stands above the captions of a score board."""
    board = _board(grid, rows)
    share, size = (0.33, 0.052) if _is_flat(board) else (0.54, 0.075)
    for at, value in enumerate(shown):
        paint.text(picture, value, _column(at, shown), board.down(share), size, _ink(value))


def outcome(won: bool, lost: bool) -> str:
    """How a game stands, for its score board."""
    return "won" if won else "lost" if lost else "-"


def block(picture: Image, box: Box, colour: Colour, margin: float = 0.008) -> None:
    """A cell of a field, filled with round corners."""
    paint.rounded(picture, inset(box, margin), colour, 0.02)


def inset(box: Box, margin: float) -> Box:
    """A box with so much, as a share of the width, free on each side."""
    tall = margin * 9 / 16
    return Box(box.left + margin, box.top + tall, box.right - margin, box.bottom - tall)


def polygon(
    picture: Image, box: Box, corners: Sequence[tuple[float, float]], colour: Colour
) -> None:
    """Fill a shape; its corners are in [0, 1] of the box."""
    paint.polygon(picture, [(box.across(x), box.down(y)) for x, y in corners], colour)


def _board(grid: Grid, rows: int) -> Box:
    return grid.cell(0, 0, grid.columns, rows)


def _is_flat(board: Box) -> bool:
    """Whether it has no room for a title."""
    return board.bottom - board.top < 0.1


def _column(at: int, of: Sequence[str]) -> float:
    return (at + 0.5) / len(of)


def _ink(value: str) -> Colour:
    return {"won": GREEN, "lost": RED, "-": QUIET}.get(value, INK)
