"""Generated geometry questions: lengths, angles and areas of a labeled figure."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from agentrl.data.question import Question
from agentrl.envs.qa.arithmetic import product
from agentrl.envs.qa.canvas import Canvas, Point
from agentrl.envs.qa.question_split import HOLD_OUT, QuestionSplit
from agentrl.types import Image

_INK = (30, 30, 40)
_FILL = (205, 222, 245)
_MARK = (190, 60, 40)
_AREA = "What is the area of the rectangle?"
_TRIPLES = ((3, 4, 5), (6, 8, 10), (5, 12, 13), (8, 15, 17), (9, 12, 15), (7, 24, 25))

Drawn = tuple[str, int, str, tuple[str, str] | None]
"""The question, its answer, the reasoning, and a typical mistake."""


class Geometry:
    """Questions about a figure, one per seed; every answer is a whole number.

    Args:
        level: `areas`: area of a rectangle with sides from 2 to 9, labeled in large digits.
            `easy`: area or perimeter of a rectangle, third angle of a triangle. `hard`: also the
            hypotenuse of a right triangle, the area of an L shape, an exterior angle.
        pixels: width and height of the picture.
        split: `train` or `eval`, determined by the kind of figure, the question and the numbers in
            any order; None draws from all questions.
        hold_out: the share of questions that belong to `eval`.

    Raises:
        ValueError: unknown level or split, an empty split, or a picture too small or too large.
    """

    def __init__(
        self,
        level: str = "easy",
        pixels: int = 280,
        split: str | None = None,
        hold_out: float = HOLD_OUT,
    ) -> None:
        if level not in LEVELS:
            raise ValueError(f"level={level!r}: must be one of {', '.join(LEVELS)}")
        if not 112 <= pixels <= 2048:
            raise ValueError(f"pixels={pixels}: must lie in [112, 2048]")
        self._kinds = LEVELS[level]
        self._pixels = pixels
        self._part = QuestionSplit(split, hold_out, (_asked(*drawn) for drawn in self._draws(0)))

    def question(self, seed: int) -> Question:
        """Return the question of a seed."""
        draws = (drawn for drawn in self._draws(seed) if self._part.contains(_asked(*drawn)))
        kind, figure, (asked, answer, thought, slip) = next(draws)
        guesses = sorted({max(1, answer + d) for d in (-20, -10, -5, -1, 0, 1, 5, 10, 20)})
        return Question(
            name=f"geometry {seed}",
            problem=f"<image>{asked}",
            accepted=(str(answer),),
            images=(figure.picture(self._pixels),),
            guesses=tuple(map(str, guesses)),
            thought=thought,
            slip=slip,
            facts={"kind": kind},
        )

    def _draws(self, seed: int) -> Iterator[tuple[str, "_Figure", Drawn]]:
        rng = np.random.default_rng([seed, 73])
        while True:
            figure = _Figure()
            kind = self._kinds[int(rng.integers(len(self._kinds)))]
            yield kind.__name__.strip("_"), figure, kind(rng, figure)


def _asked(kind: str, figure: "_Figure", drawn: Drawn) -> str:
    """Return a string that is the same for a figure and its rotations."""
    return " ".join([kind, drawn[0], *sorted(text for text, *_ in figure.texts)])


class _Figure:
    """A polygon with lines and labels on top, on 100 by 100 units."""

    def __init__(self) -> None:
        self.corners: list[Point] = []
        self.lines: list[tuple[Point, Point]] = []
        self.texts: list[tuple[str, Point, bool, float]] = []

    def polygon(self, corners: list[Point]) -> None:
        """Set the figure's polygon, filled and outlined."""
        self.corners = corners
        for a, b in zip(corners, [*corners[1:], corners[0]], strict=True):
            self.line(a, b)

    def line(self, a: Point, b: Point) -> None:
        """Add a straight line."""
        self.lines.append((a, b))

    def write(self, text: str, at: Point, mark: bool = False, height: float = 5.5) -> None:
        """Add a label centered at a point; `mark` highlights the unknown."""
        self.texts.append((text, at, mark, height))

    def square_mark(self, corner: Point) -> None:
        """Add the mark of a right angle, up and to the right of a corner."""
        x, y = corner
        for a, b in (((x, y - 6), (x + 6, y - 6)), ((x + 6, y - 6), (x + 6, y))):
            self.line(a, b)

    def picture(self, pixels: int) -> Image:
        """Draw the figure, uint8[pixels, pixels, 3]."""
        canvas, unit = Canvas(pixels, pixels, (250, 250, 250)), pixels / 100

        def at(point: Point) -> Point:
            return point[0] * unit, point[1] * unit

        canvas.fill([at(corner) for corner in self.corners], _FILL)
        for a, b in self.lines:
            canvas.line(at(a), at(b), _INK, 0.9 * unit)
        for text, place, mark, height in self.texts:
            canvas.write(text, at(place), _MARK if mark else _INK, height * unit)
        return canvas.picture()


def _rectangle(rng: np.random.Generator, figure: _Figure) -> Drawn:
    a, b = map(int, rng.integers(2, 20, 2))
    scale = 56 / max(a, b)
    w, h = max(18.0, a * scale), max(18.0, b * scale)
    left, top = 50 - w / 2, 50 - h / 2
    figure.polygon([(left, top), (left + w, top), (left + w, top + h), (left, top + h)])
    figure.write(str(a), (50, top - 6))
    figure.write(str(b), (left - 8, 50))
    if rng.random() < 0.5:
        return _AREA, a * b, f"{a} * {b} = {a * b}", None
    around = 2 * (a + b)
    return "What is the perimeter of the rectangle?", around, f"2 * ({a} + {b}) = {around}", None


def _area(rng: np.random.Generator, figure: _Figure) -> Drawn:
    """Draw a small rectangle somewhere below and to the right of its labels, which don't move."""
    a, b = map(int, rng.integers(2, 10, 2))
    left, top = map(float, rng.uniform(36, 44, 2))
    unit = float(rng.uniform(4, 6))
    right, bottom = left + a * unit, top + b * unit
    figure.polygon([(left, top), (right, top), (right, bottom), (left, bottom)])
    figure.write(str(a), (50, 17), height=20)
    figure.write(str(b), (17, 50), height=20)
    _, answer, thought, slip = product(a, b)
    return _AREA, answer, thought, slip


def _triangle(rng: np.random.Generator) -> tuple[list[Point], list[int]]:
    """Draw the corners of a triangle and its angles, in whole degrees."""
    while True:
        a, b = map(int, rng.integers(30, 110, 2))
        if 180 - a - b >= 30:
            break
    left, right = np.radians(a), np.radians(b)
    height = 1 / (1 / np.tan(left) + 1 / np.tan(right))
    across = height / np.tan(left)
    low, high = min(0.0, across), max(1.0, across)
    scale = min(64 / (high - low), 60 / height)
    start = 50 - scale * (low + high) / 2
    base = 50 + scale * height / 2
    corners = [
        (start, base),
        (start + scale, base),
        (start + scale * across, base - scale * height),
    ]
    return [(float(x), float(y)) for x, y in corners], [a, b, 180 - a - b]


def _inside(corners: list[Point], number: int, share: float = 0.26) -> Point:
    """Return a point near a corner, towards the center of the figure."""
    middle = np.mean(corners, axis=0)
    x, y = (1 - share) * np.array(corners[number]) + share * middle
    return float(x), float(y)


def _third_angle(rng: np.random.Generator, figure: _Figure) -> Drawn:
    corners, angles = _triangle(rng)
    figure.polygon(corners)
    asked = int(rng.integers(3))
    for number, angle in enumerate(angles):
        hidden = number == asked
        figure.write("x" if hidden else str(angle), _inside(corners, number, 0.36), hidden)
    a, b = (angle for number, angle in enumerate(angles) if number != asked)
    thought = f"180 - {a} - {b} = {angles[asked]}"
    return "The angles are in degrees. How large is x?", angles[asked], thought, None


def _longest_side(rng: np.random.Generator, figure: _Figure) -> Drawn:
    a, b, c = _TRIPLES[int(rng.integers(len(_TRIPLES)))]
    if rng.random() < 0.5:
        a, b = b, a
    scale = 60 / max(a, b)
    w, h = max(24.0, a * scale), max(24.0, b * scale)
    left, base = 50 - w / 2, 50 + h / 2
    figure.polygon([(left, base), (left + w, base), (left, base - h)])
    figure.square_mark((left, base))
    figure.write(str(a), (50, base + 7))
    figure.write(str(b), (left - 8, 50))
    figure.write("x", (50 + 6, 50 - 6), True)
    return "How long is x?", c, f"{a} * {a} + {b} * {b} = {c * c}, x = {c}", None


def _ell(rng: np.random.Generator, figure: _Figure) -> Drawn:
    """Draw an L shape: a rectangle without its upper right corner."""
    w, h = map(int, rng.integers(6, 16, 2))
    cut_w, cut_h = int(rng.integers(2, w - 2)), int(rng.integers(2, h - 2))
    scale = 60 / max(w, h)
    left, top = 50 - w * scale / 2, 50 - h * scale / 2
    corners = [(0, 0), (w - cut_w, 0), (w - cut_w, cut_h), (w, cut_h), (w, h), (0, h)]
    figure.polygon([(left + x * scale, top + y * scale) for x, y in corners])
    figure.write(str(w), (50, top + h * scale + 7))
    figure.write(str(h), (left - 8, 50))
    figure.write(str(w - cut_w), (left + (w - cut_w) * scale / 2, top - 6))
    figure.write(str(h - cut_h), (left + w * scale + 8, top + (h + cut_h) * scale / 2))
    area = w * h - cut_w * cut_h
    thought = f"{w} * {h} - {cut_w} * {cut_h} = {area}"
    return "All corners are right angles. What is the area of the figure?", area, thought, None


def _outer_angle(rng: np.random.Generator, figure: _Figure) -> Drawn:
    corners, angles = _triangle(rng)
    figure.polygon(corners)
    x, y = corners[1]
    figure.line((x, y), (min(98.0, x + 18), y))
    for number in (0, 2):
        figure.write(str(angles[number]), _inside(corners, number, 0.36))
    figure.write("x", (x + 6, y - 7), True)
    answer = angles[0] + angles[2]
    thought = f"{angles[0]} + {angles[2]} = {answer}"
    return "The angles are in degrees. How large is x?", answer, thought, None


_EASY = (_rectangle, _third_angle)
LEVELS: Mapping[str, Sequence[Callable[[np.random.Generator, _Figure], Drawn]]] = {
    "areas": (_area,),
    "easy": _EASY,
    "hard": (*_EASY, _longest_side, _ell, _outer_angle),
}
