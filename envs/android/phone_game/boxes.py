"""Rectangles and grids on a phone's screen, and the status bar above an app."""

from dataclasses import dataclass

STATUS_BAR = 1 / 26
"""Share of the screen's height that the phone's status bar takes from the app."""


@dataclass(slots=True, frozen=True)
class Box:
    """A rectangle, each coordinate in [0, 1] of the app's area."""

    left: float
    top: float
    right: float
    bottom: float

    def contains(self, x: float, y: float) -> bool:
        """Return whether (x, y) lies inside the box."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def down(self, share: float) -> float:
        """Return the y coordinate at a share of the height, from 0 (top) to 1 (bottom)."""
        return self.top + share * (self.bottom - self.top)

    def across(self, share: float) -> float:
        """Return the x coordinate at a share of the width, from 0 (left) to 1 (right)."""
        return self.left + share * (self.right - self.left)

    @property
    def center(self) -> tuple[float, float]:
        """The middle of the box, in [0, 1] of the app's area."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


@dataclass(slots=True, frozen=True)
class SwipePath:
    """A swipe from (x1, y1) to (x2, y2), each in [0, 1] of the app's area."""

    x1: float
    y1: float
    x2: float
    y2: float


def to_app(y: float) -> float:
    """Convert y from the whole screen to the app's area, both in [0, 1] from the top."""
    return (y - STATUS_BAR) / (1 - STATUS_BAR)


def to_screen(y: float) -> float:
    """Convert y from the app's area to the whole screen: the inverse of `to_app`."""
    return STATUS_BAR + y * (1 - STATUS_BAR)


def tap_at(box: Box) -> tuple[float, float]:
    """Return a box's center as a tap on the whole screen, in [0, 1], rounded to two decimals."""
    x, y = box.center
    return round(x, 2), round(to_screen(y), 2)


def swipe_along(path: SwipePath) -> tuple[float, float, float, float]:
    """Return a path as a swipe on the whole screen, in [0, 1], rounded to two decimals."""
    ends = path.x1, to_screen(path.y1), path.x2, to_screen(path.y2)
    x1, y1, x2, y2 = (round(end, 2) for end in ends)
    return x1, y1, x2, y2


@dataclass(slots=True, kw_only=True, frozen=True)
class Grid:
    """Equal cells that divide the whole screen, including the phone's status bar.

    When the screen is scaled to a multiple of `columns` x `rows` patches, each cell covers whole
    patches of the vision model: no patch mixes two cells.
    """

    columns: int
    rows: int

    def cell(
        self,
        column: float,
        row: float,
        columns: float = 1.0,
        rows: float = 1.0,
        margin: float = 0.02,
    ) -> Box:
        """Return the box of adjacent cells, counted from 0, clipped to below the status bar.

        The margin is a share of the screen's width; on a 9:16 screen the margins above and below
        have the same length.
        """
        tall = margin * 9 / 16
        return Box(
            column / self.columns + margin,
            to_app(max(row / self.rows, STATUS_BAR) + tall),
            (column + columns) / self.columns - margin,
            to_app((row + rows) / self.rows - tall),
        )
