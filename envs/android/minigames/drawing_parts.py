"""Drawing code shared by the minigames: colors, score board, cells of a field, polygons."""

from collections.abc import Sequence

from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.boxes import Box, Grid
from agentrl.envs.android.phone_game.paint import Color
from agentrl.types import Image

PAGE: Color = (238, 241, 246)
PANEL: Color = (255, 255, 255)
EDGE: Color = (206, 213, 224)
INK: Color = (28, 36, 52)
QUIET: Color = (122, 132, 150)
GREEN: Color = (34, 160, 84)
DARK_GREEN: Color = (16, 92, 52)
RED: Color = (214, 56, 56)
BLUE: Color = (38, 99, 235)
YELLOW: Color = (250, 196, 20)
ORANGE: Color = (240, 130, 30)
PURPLE: Color = (140, 70, 190)
BROWN: Color = (140, 92, 52)
GRAY: Color = (120, 126, 138)


def page(picture: Image, grid: Grid, title: str, captions: Sequence[str], rows: int = 1) -> None:
    """Draw the background of every game: a page with its score board in the upper rows."""
    picture[:] = PAGE
    board = _board(grid, rows)
    paint.panel(picture, board, PANEL, EDGE)
    flat = _is_flat(board)
    if not flat:
        paint.text(picture, title, 0.5, board.down(0.16), 0.042, QUIET)
    for at, caption in enumerate(captions):
        y = board.down(0.72 if flat else 0.86)
        paint.text(picture, caption, _column(at, captions), y, 0.028 if flat else 0.034, QUIET)


def values(picture: Image, grid: Grid, shown: Sequence[str], rows: int = 1) -> None:
    """Draw the values above the captions of a score board."""
    board = _board(grid, rows)
    share, size = (0.33, 0.052) if _is_flat(board) else (0.54, 0.075)
    for at, value in enumerate(shown):
        paint.text(picture, value, _column(at, shown), board.down(share), size, _ink(value))


def outcome(won: bool, lost: bool) -> str:
    """Return the result of a game for its score board."""
    return "won" if won else "lost" if lost else "-"


def block(picture: Image, box: Box, color: Color, margin: float = 0.008) -> None:
    """Fill a cell of a field, with rounded corners."""
    paint.rounded(picture, inset(box, margin), color, 0.02)


def inset(box: Box, margin: float) -> Box:
    """Return a box shrunk on each side by a margin, given as a share of the screen's width."""
    tall = margin * 9 / 16
    return Box(box.left + margin, box.top + tall, box.right - margin, box.bottom - tall)


def polygon(picture: Image, box: Box, corners: Sequence[tuple[float, float]], color: Color) -> None:
    """Fill a polygon with corners in [0, 1] of the box."""
    paint.polygon(picture, [(box.across(x), box.down(y)) for x, y in corners], color)


def _board(grid: Grid, rows: int) -> Box:
    return grid.cell(0, 0, grid.columns, rows)


def _is_flat(board: Box) -> bool:
    """Return whether the board is too low for a title."""
    return board.bottom - board.top < 0.1


def _column(at: int, of: Sequence[str]) -> float:
    return (at + 0.5) / len(of)


def _ink(value: str) -> Color:
    return {"won": GREEN, "lost": RED, "-": QUIET}.get(value, INK)
