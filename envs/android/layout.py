"""Where everything of the number game lies: one place for drawing, touch and players.

The whole screen, with the phone's status bar, is a grid of three columns and five equal rows:
score board; lamps; instruction and feedback; cards; button. A picture of it scaled to a multiple
of 3x5 patches therefore shows each lamp and each card to a vision model in patches of its own. Four
cards divide their row into four columns. What the level `moved` makes of the grid: `places`.
"""

from dataclasses import dataclass

COLUMNS, ROWS = 3, 5
STATUS_BAR = 1 / 26
"""Share of the screen's height that the phone's status bar takes from the app."""


@dataclass(slots=True, frozen=True)
class Box:
    """A rectangle, each coordinate in [0, 1] of the app's area."""

    left: float
    top: float
    right: float
    bottom: float

    def holds(self, x: float, y: float) -> bool:
        """Whether (x, y) lies in it."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    @property
    def centre(self) -> tuple[float, float]:
        """Its middle, in [0, 1] of the app's area."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


def to_app(y: float) -> float:
    """The height y of the screen as a height of the app's area, both from 0 at the top to 1."""
    return (y - STATUS_BAR) / (1 - STATUS_BAR)


def to_screen(y: float) -> float:
    """The inverse of `to_app`."""
    return STATUS_BAR + y * (1 - STATUS_BAR)


def cell(
    column: float, row: float, columns: float = 1.0, margin: float = 0.02, of: int = COLUMNS
) -> Box:
    """The box of some neighbouring cells of the screen's grid.

    Args:
        column: its left column, from 0.
        row: its row, from 0.
        columns: how many columns wide.
        margin: what stays free on each side, as a share of the screen's width; the same length
            of a 9:16 screen is free above and below.
        of: how many columns this row is divided into.
    """
    tall = margin * 9 / 16
    return Box(
        column / of + margin,
        to_app(max(row / ROWS, STATUS_BAR) + tall),
        (column + columns) / of - margin,
        to_app((row + 1) / ROWS - tall),
    )


BOARD = cell(0, 0, COLUMNS)
LAMPS = tuple(cell(column, 1, margin=0.03) for column in range(COLUMNS))
WORDS = cell(0, 2, COLUMNS)
CARDS = tuple(cell(column, 3) for column in range(COLUMNS))
FOUR_CARDS = tuple(cell(column, 3, of=4) for column in range(4))
BUTTON = cell(0, 4, COLUMNS, margin=0.04)


def tap_at(box: Box) -> tuple[float, float]:
    """The middle of a box as a tap on the whole screen, both in [0, 1], to two decimals."""
    x, y = box.centre
    return round(x, 2), round(to_screen(y), 2)
