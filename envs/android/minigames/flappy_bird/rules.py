"""Flappy Bird: a pure, seeded state machine.

A bird flies through gates that come from the right. A flap lifts it; otherwise it falls. Ground,
ceiling and the posts of a gate end the game; each passed gate adds one to the score. Time is
counted in ticks, lengths in eighths of a cell: after four ticks with one flap the bird is exactly
one cell higher, after four without any one cell lower, and the gates are one column nearer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.envs.android.minigames.minigame_rules import MinigameRules, event_rng
from agentrl.envs.android.phone_game.boxes import Grid
from agentrl.envs.android.phone_game.level_settings import PacedSettings, one_of
from agentrl.envs.android.phone_game.rules import TouchTarget

COLUMNS, ROWS = 6, 8
GRID = Grid(columns=COLUMNS, rows=ROWS + 2)
"""One row for the score board, then the field, then the ground."""
TOP = 1
"""The field's first row."""
BOARD = GRID.cell(0, 0, COLUMNS, margin=0)
FIELD = GRID.cell(0, TOP, COLUMNS, ROWS + 1, margin=0)
UNIT = 8
"""Length units per cell."""
FLAP, GRAVITY, FALL = -5, 2, 2
"""Speed after a flap, acceleration per tick, and maximum fall speed; downwards, in length units."""
PACE = 2
"""Length units that the gates move per tick."""
GAP = 3
"""Height of a gate's gap, in rows."""
SPACING = 4
"""Columns from gate to gate."""
BIRD = 1
"""The bird's column."""
RADIUS = 2.8
"""The bird's radius, in length units."""


@dataclass(slots=True, frozen=True)
class Bird:
    """The bird: its center, in length units below the ceiling, and its downward speed."""

    y: int
    speed: int = 0

    def after(self, flaps: bool) -> "Bird":
        """Return the bird one tick later."""
        speed = FLAP if flaps else min(self.speed + GRAVITY, FALL)
        return Bird(self.y + speed, speed)


@dataclass(slots=True, kw_only=True, frozen=True)
class FlappyBirdLevel(PacedSettings):
    """The length and pace of a game."""

    goal: int = one_of(10, range(1, 1001), "an integer from 1 to 1000 (gates to pass to win)")


class FlappyBird(MinigameRules):
    """One game. For args and errors see `MinigameRules`; settings: `FlappyBirdLevel`."""

    pace_ms = 125
    lost = False

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed, self.goal = seed, FlappyBirdLevel(**level).goal
        self.time = 0
        self.bird = Bird(ROWS * UNIT // 2 + UNIT // 2)
        self._flaps = False
        self._gaps = draw_gaps(seed, self.goal)

    def touch(self, x: float, y: float) -> bool:
        """Flap for a touch anywhere below the score board; on the score board, do nothing."""
        return FIELD.contains(x, y) and self.move("flap")

    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the field and the score board; touching the latter only lets time pass."""
        return {"flap": FIELD, "wait": BOARD}

    def move(self, name: str) -> bool:
        """Make the move `flap` or `wait`. Returns whether anything changed.

        Raises:
            ValueError: unknown move.
        """
        if name not in ("flap", "wait"):
            raise ValueError(f"{name!r} is not a move; it must be flap or wait.")
        if self.done or name == "wait":
            return False
        self._flaps = True
        return True

    def tick(self) -> bool:
        """Advance by one tick."""
        if self.done:
            return False
        self.bird, self._flaps = self.bird.after(self._flaps), False
        self.time += 1
        self.lost = hits(self.bird, self.gates)
        return True

    def moves(self) -> tuple[str, ...]:
        """Return the legal moves: both while the bird flies."""
        return () if self.done else ("flap", "wait")

    @property
    def gates(self) -> tuple[tuple[int, int], ...]:
        """Left edge, in length units, and first row of the gap of each visible gate."""
        start = (COLUMNS - 1) * UNIT - PACE * self.time
        gates = ((start + i * SPACING * UNIT, gap) for i, gap in enumerate(self._gaps))
        return tuple((x, gap) for x, gap in gates if -UNIT < x < COLUMNS * UNIT)

    @property
    def score(self) -> int:
        """Number of passed gates."""
        start = (COLUMNS - 1) * UNIT - PACE * self.time
        passed = (BIRD * UNIT - UNIT - start) // (SPACING * UNIT) + 1
        return max(0, min(passed, self.goal))

    @property
    def won(self) -> bool:
        """Whether the last gate is passed."""
        return self.score >= self.goal and not self.lost

    def state(self) -> dict[str, Any]:
        """Return the true state as plain JSON values; `worth` is the score, less 1 if lost."""
        return {
            **super().state(),
            "score": self.score,
            "worth": self.score - self.lost,
            "time": self.time,
            "y": self.bird.y,
            "speed": self.bird.speed,
            "flaps": self._flaps,
            "gates": [list(gate) for gate in self.gates],
        }


def hits(bird: Bird, gates: tuple[tuple[int, int], ...]) -> bool:
    """Return whether the bird touches the ceiling, the ground or a post."""
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
    """Draw the first row of each gate's gap; adjacent gaps differ by at most two rows."""
    gaps = [int(event_rng(seed, 0).integers(1, ROWS - GAP))]
    for gate in range(1, gates):
        low, high = max(gaps[-1] - 2, 0), min(gaps[-1] + 2, ROWS - GAP)
        gaps.append(int(event_rng(seed, gate).integers(low, high + 1)))
    return tuple(gaps)
