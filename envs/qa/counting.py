"""Generated counting questions: how many shapes in a picture have certain properties?"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl.data.question import Question
from agentrl.envs.qa.canvas import Canvas, outline
from agentrl.types import Image

COLORS = {
    "red": (220, 50, 47),
    "green": (40, 170, 70),
    "blue": (45, 95, 220),
    "yellow": (240, 190, 30),
}
SHAPES = ("circle", "square", "triangle")
SIZES = {"small": 0.7, "large": 1.0}
_OFF = 0.05
"""Maximum offset of a shape from the center of its cell, in cells."""
_SEEN = 0.55
"""Minimum visible share of every shape's area."""
_TRIES = 40


@dataclass(slots=True, kw_only=True, frozen=True)
class CountingLevel:
    """The difficulty of the pictures."""

    side: int
    """Cells per row and per column."""
    least: int
    """Minimum number of shapes."""
    most: int
    """Maximum number of shapes."""
    free: bool
    """Shapes lie anywhere and may overlap; otherwise each has its own cell."""


LEVELS = {
    "easy": CountingLevel(side=3, least=1, most=9, free=False),
    "hard": CountingLevel(side=5, least=8, most=16, free=True),
}


@dataclass(slots=True, kw_only=True)
class Thing:
    """One shape; position and radius in cells, from the upper left corner."""

    shape: str
    color: str
    size: str
    x: float = 0.0
    y: float = 0.0
    radius: float = 0.0

    def fits(self, wanted: dict[str, str]) -> bool:
        """Return whether the shape has the wanted properties."""
        return all(getattr(self, name) == value for name, value in wanted.items())


class Counting:
    """Questions such as "How many red circles are there?", one per seed.

    Args:
        level: `easy`: up to 9 shapes that do not overlap. `hard`: 8 to 16 shapes anywhere, and the
            question may also name a size.
        pixels: width and height of the picture.

    Raises:
        ValueError: unknown level, or the picture is too small or too large.
    """

    def __init__(self, level: str = "easy", pixels: int = 252) -> None:
        if level not in LEVELS:
            raise ValueError(f"level={level!r}: must be one of {', '.join(LEVELS)}")
        if not 28 <= pixels <= 2048:
            raise ValueError(f"pixels={pixels}: must lie in [28, 2048]")
        self._level, self._pixels = LEVELS[level], pixels

    def question(self, seed: int) -> Question:
        """Return the question of a seed."""
        rng = np.random.default_rng([seed, 71])
        level = self._level
        wanted = _wanted(rng, level)
        total = int(rng.integers(level.least, level.most + 1))
        count = int(rng.integers(0, min(total, 9) + 1))
        things = [_thing(rng, wanted, fits=k < count) for k in range(total)]
        if level.free:  # the stacking order must not reveal the answer
            things = [things[k] for k in rng.permutation(total)]
        place = _scatter if level.free else _seat
        things = place(rng, things, level)
        picture = _draw(things, level, self._pixels)
        return Question(
            name=f"counting {seed}",
            problem=f"<image>How many {_phrase(wanted)} are there?",
            accepted=(str(sum(t.fits(wanted) for t in things)),),
            images=(picture,),
            guesses=tuple(map(str, range(10))),
            thought=_counted(things, wanted, wanted, level),
            slip=_careless(things, wanted, level),
            facts={"wanted": wanted, "things": [_facts(t) for t in things]},
        )


def _wanted(rng: np.random.Generator, level: CountingLevel) -> dict[str, str]:
    """Draw the properties to count: mostly color and shape, sometimes only one, or also a size."""
    wanted = {"color": str(rng.choice(list(COLORS))), "shape": str(rng.choice(SHAPES))}
    kind = rng.random()
    if kind < 0.1:
        del wanted["shape"]
    elif kind < 0.2:
        del wanted["color"]
    elif level.free and kind < 0.5:
        wanted["size"] = str(rng.choice(list(SIZES)))
    return wanted


def _thing(rng: np.random.Generator, wanted: dict[str, str], fits: bool) -> Thing:
    """Draw a shape that fits, or a near miss, which mostly differs in a single property."""
    named = {
        "color": str(rng.choice(list(COLORS))),
        "shape": str(rng.choice(SHAPES)),
        "size": str(rng.choice(list(SIZES))),
    }
    kept = dict(wanted)
    if not fits:
        choices: dict[str, list[str]] = {
            "color": list(COLORS),
            "shape": list(SHAPES),
            "size": list(SIZES),
        }
        # Counting by color alone should fail: most near misses have the right color.
        order = [n for n in ("shape", "size", "color") if n in wanted]
        missed = order[:1] if rng.random() < 0.6 else list(map(str, rng.permutation(order)[:2]))
        for name in missed:
            kept[name] = str(rng.choice([v for v in choices[name] if v != wanted[name]]))
    named |= kept
    return Thing(shape=named["shape"], color=named["color"], size=named["size"])


def _seat(rng: np.random.Generator, things: list[Thing], level: CountingLevel) -> list[Thing]:
    """Place each shape in its own cell, slightly off center."""
    cells = rng.permutation(level.side**2)[: len(things)]
    for thing, cell in zip(things, cells.tolist(), strict=True):
        thing.radius = 0.31 * SIZES[thing.size]
        dx, dy = rng.uniform(-_OFF, _OFF, 2)
        thing.x, thing.y = cell % level.side + 0.5 + dx, cell // level.side + 0.5 + dy
    return things


def _scatter(rng: np.random.Generator, things: list[Thing], level: CountingLevel) -> list[Thing]:
    """Place shapes anywhere, back to front; drop one if it would hide another too much."""
    fine = 16
    owner = np.full((level.side * fine, level.side * fine), -1)
    kept: list[Thing] = []
    areas: list[int] = []
    for thing in things:
        thing.radius = 0.5 * SIZES[thing.size]
        for _ in range(_TRIES):
            thing.x, thing.y = rng.uniform(0.8, level.side - 0.8, 2)
            covered = _covers(thing, owner.shape[0], fine)
            after = np.where(covered, len(kept), owner)
            # The still visible area of each earlier shape, measured on a coarse raster.
            left = [int((after == k).sum()) for k in range(len(kept))]
            if all(now >= _SEEN * area for now, area in zip(left, areas, strict=True)):
                owner = after
                areas.append(int(covered.sum()))
                kept.append(thing)
                break
    return kept


def _covers(thing: Thing, side: int, fine: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    canvas = Canvas(side, side, (0, 0, 0))
    center = (thing.x * fine, thing.y * fine)
    canvas.fill(outline(thing.shape, center, thing.radius * fine), (255, 255, 255))
    return canvas.picture()[..., 0] > 127


def _draw(things: list[Thing], level: CountingLevel, pixels: int) -> Image:
    canvas, cell = Canvas(pixels, pixels), pixels / level.side
    for thing in things:
        center = (thing.x * cell, thing.y * cell)
        if level.free:  # an outline separates overlapping shapes of the same color
            canvas.fill(outline(thing.shape, center, thing.radius * cell * 1.08), (60, 60, 60))
        canvas.fill(outline(thing.shape, center, thing.radius * cell), COLORS[thing.color])
    return canvas.picture()


def _phrase(wanted: dict[str, str]) -> str:
    """Phrase the wanted properties, as in `small red circles` or `red shapes`."""
    words = [wanted[name] for name in ("size", "color") if name in wanted]
    return " ".join([*words, f"{wanted.get('shape', 'shape')}s"])


def _counted(
    things: list[Thing], wanted: dict[str, str], asked: dict[str, str], level: CountingLevel
) -> str:
    """Write the reasoning: each position in reading order, its shape, and the running count.

    Only properties that the question asks for are named: each word follows from one position in the
    picture or from the few words before it, so that a small model learns to count. Shapes that lie
    anywhere are listed row by row.
    """
    words, count = [], 0
    for thing in _in_order(things, level):
        count += int(thing is not None and thing.fits(wanted))
        words.append(f" {_named(thing, asked)} {count}")
    return "".join(words)


def _in_order(things: list[Thing], level: CountingLevel) -> list[Thing | None]:
    if level.free:
        return [*sorted(things, key=lambda thing: (int(thing.y), thing.x))]
    cells: list[Thing | None] = [None] * level.side**2
    for thing in things:
        cells[int(thing.y) * level.side + int(thing.x)] = thing
    return cells


def _named(thing: Thing | None, asked: dict[str, str]) -> str:
    if thing is None:
        return "none"
    # If the question names no shape, call each of them a "shape", too.
    words = [getattr(thing, name) for name in ("size", "color") if name in asked]
    return " ".join([*words, thing.shape if "shape" in asked else "shape"])


def _careless(
    things: list[Thing], wanted: dict[str, str], level: CountingLevel
) -> tuple[str, str] | None:
    """Make the habitual mistake: count by color alone if the question names more than a color."""
    if len(wanted) < 2:
        return None
    loose = {"color": wanted["color"]}
    return _counted(things, loose, wanted, level), str(sum(t.fits(loose) for t in things))


def _facts(thing: Thing) -> dict[str, Any]:
    return {
        "shape": thing.shape,
        "color": thing.color,
        "size": thing.size,
        "at": [round(float(thing.x), 2), round(float(thing.y), 2)],
    }
