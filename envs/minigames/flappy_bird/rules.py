"""Flappy Bird: a pure, seeded state machine.

A bird flies through gates that come from the right. A flap throws it up, and it falls else. Ground,
ceiling and the posts of a gate end the game; each gate behind it adds one to the score. Time is
counted in ticks, lengths in eighths of a cell: whoever flaps every fourth tick, or never, finds the
bird exactly one cell higher, or lower, after four of them, and the gates one column nearer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.envs.minigames.chance import chance
from agentrl.envs.phone_game.box import Grid
from agentrl.envs.phone_game.rules import Place, Rules
from agentrl.envs.phone_game.settings import Paced, one_of

COLUMNS, ROWS = 6, 8
GRID = Grid(columns=COLUMNS, rows=ROWS + 2)
"""A row of a score board, the field, and the ground."""
TOP = 1
"""The field's first row."""
BOARD = GRID.cell(0, 0, COLUMNS, margin=0)
FIELD = GRID.cell(0, TOP, COLUMNS, ROWS + 1, margin=0)
UNIT = 8
"""Lengths in a cell."""
FLAP, GRAVITY, FALL = -5, 2, 2
"""Speed after a flap, what a tick adds to it, and the fastest fall; lengths a tick, downwards."""
PACE = 2
"""Lengths that the gates come nearer in a tick."""
GAP = 3
"""Rows that a gate leaves free."""
SPACING = 4
"""Columns from gate to gate."""
BIRD = 1
"""The column in which the bird flies."""
RADIUS = 2.8
"""Half of the bird's height and width, in lengths."""


@dataclass(slots=True, frozen=True)
class Bird:
    """Where the bird is: its middle, in lengths below the ceiling, and its speed downwards."""

    y: int
    speed: int = 0

    def after(self, flaps: bool) -> "Bird":
        """One tick later."""
        speed = FLAP if flaps else min(self.speed + GRAVITY, FALL)
        return Bird(self.y + speed, speed)


@dataclass(slots=True, kw_only=True, frozen=True)
class Level(Paced):
    """How long a game is, and how it is paced.

    Raises:
        ValueError: a value that its setting cannot have.
    """

    goal: int = one_of(10, range(1, 1001), "the gates that win, from 1 to 1000")


class FlappyBird(Rules):
    """One game.

    Args:
        seed: >= 0.
        **level: settings of `Level`.

    Raises:
        ValueError: a negative seed, or a level that does not exist.
    """

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed, self.goal = seed, Level(**level).goal
        self.time = 0
        self.bird = Bird(ROWS * UNIT // 2 + UNIT // 2)
        self.lost = False
        self._flaps = False
        self._gaps = draw_gaps(seed, self.goal)

    def touch(self, x: float, y: float) -> bool:
        """Flap, wherever below the score board; upon it nothing happens."""
        return FIELD.holds(x, y) and self.move("flap")

    def places(self) -> Mapping[str, Place]:
        """The field, and the score board, where only time passes."""
        return {"flap": FIELD, "wait": BOARD}

    def move(self, name: str) -> bool:
        """`flap`, or `wait` and let time pass.

        Raises:
            ValueError: another move.
        """
        if name not in ("flap", "wait"):
            raise ValueError(f"{name!r} is no move; there are flap, wait.")
        if self.done or name == "wait":
            return False
        self._flaps = True
        return True

    @property
    def tick_ms(self) -> int:
        """An eighth of a second."""
        return 0 if self.done else 125

    def tick(self) -> bool:
        """Let a moment pass."""
        if self.done:
            return False
        self.bird, self._flaps = self.bird.after(self._flaps), False
        self.time += 1
        self.lost = hits(self.bird, self.gates)
        return True

    def moves(self) -> tuple[str, ...]:
        """Both, while the bird flies."""
        return () if self.done else ("flap", "wait")

    @property
    def gates(self) -> tuple[tuple[int, int], ...]:
        """Each gate that is seen: its left edge in lengths, and the first of its free rows."""
        start = (COLUMNS - 1) * UNIT - PACE * self.time
        gates = ((start + i * SPACING * UNIT, gap) for i, gap in enumerate(self._gaps))
        return tuple((x, gap) for x, gap in gates if -UNIT < x < COLUMNS * UNIT)

    @property
    def score(self) -> int:
        """Gates behind the bird."""
        start = (COLUMNS - 1) * UNIT - PACE * self.time
        passed = (BIRD * UNIT - UNIT - start) // (SPACING * UNIT) + 1
        return max(0, min(passed, self.goal))

    @property
    def won(self) -> bool:
        """Whether the last gate is behind it."""
        return self.score >= self.goal and not self.lost

    @property
    def done(self) -> bool:
        """Whether the game is over."""
        return self.lost or self.won

    def state(self) -> dict[str, Any]:
        """The truth as plain JSON values; `worth` is the score, less 1 for a game that is lost."""
        return {
            "score": self.score,
            "worth": self.score - self.lost,
            "time": self.time,
            "y": self.bird.y,
            "speed": self.bird.speed,
            "flaps": self._flaps,
            "gates": [list(gate) for gate in self.gates],
            "moves": list(self.moves()),
            "won": self.won,
            "lost": self.lost,
            "done": self.done,
        }


def hits(bird: Bird, gates: tuple[tuple[int, int], ...]) -> bool:
    """Whether the bird touches the ceiling, the ground or a post."""
    top, bottom = bird.y - RADIUS, bird.y + RADIUS
    if top < 0 or bottom > ROWS * UNIT:
        return True
    middle = BIRD * UNIT + UNIT // 2
    return any(
        x < middle + RADIUS
        and x + UNIT > middle - RADIUS
        and not gap * UNIT <= top <= bottom <= (gap + GAP) * UNIT
        for x, gap in gates
    )


def draw_gaps(seed: int, gates: int) -> tuple[int, ...]:
    """The first free row of each gate; from one to the next it moves by at most two."""
    gaps = [int(chance(seed, 0).integers(1, ROWS - GAP))]
    for gate in range(1, gates):
        low, high = max(gaps[-1] - 2, 0), min(gaps[-1] + 2, ROWS - GAP)
        gaps.append(int(chance(seed, gate).integers(low, high + 1)))
    return tuple(gaps)
