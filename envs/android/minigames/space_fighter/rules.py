"""A space fighter: a pure, seeded state machine.

A ship at the bottom of the screen flies to its target column, one column per tick, and fires
upwards every second tick. Enemies and rocks come down by one row per tick, at most one per row. A
shot that hits an enemy destroys it and adds 10 to the score; rocks absorb shots. Whatever hits the
ship costs 10 points and one life; whatever passes it has no effect. The game is lost with the last
life and won at the end of its time, which is counted in ticks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.envs.android.minigames.minigame_rules import MinigameRules, event_rng
from agentrl.envs.android.phone_game.boxes import Grid
from agentrl.envs.android.phone_game.level_settings import PacedSettings, one_of
from agentrl.envs.android.phone_game.rules import TouchTarget

COLUMNS, ROWS = 5, 8
GRID = Grid(columns=COLUMNS, rows=ROWS + 1)
"""One row for the score board, then the field."""
TOP = 1
"""The field's first row."""
_LANES = tuple(GRID.cell(column, TOP, 1, ROWS, margin=0) for column in range(COLUMNS))
LIVES = 3
STAKE = 10
MOVES = ("left", "stay", "right")
_SHOT = 2
"""Number of rows that a shot rises per tick."""
_SOMETHING, _ROCK = 0.55, 0.35
"""Probability that something appears in a tick, and probability that it is then a rock."""

Thing = tuple[str, int, int]
"""`enemy` or `rock`, its column, and its row from the top."""
Shot = tuple[int, int]
"""Column and row."""


@dataclass(slots=True, kw_only=True, frozen=True)
class SpaceFighterLevel(PacedSettings):
    """The length and pace of a game."""

    length: int = one_of(60, range(1, 1001), "an integer from 1 to 1000 (ticks to survive)")
    ticks: int = one_of(1, range(1, 1001), "an integer from 1 to 1000 (ticks per action)")


class SpaceFighter(MinigameRules):
    """One game. For args and errors see `MinigameRules`; settings: `SpaceFighterLevel`."""

    pace_ms = 500

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed, self.length = seed, SpaceFighterLevel(**level).length
        self.time = self.score = 0
        self.lives = LIVES
        self.ship = self.target = COLUMNS // 2
        self.things: tuple[Thing, ...] = ()
        self.shots: tuple[Shot, ...] = ()
        for start in range(ROWS // 2):
            self._come_down(start)

    def touch(self, x: float, y: float) -> bool:
        """Send the ship to the touched column."""
        return any(lane.contains(x, y) and self.send(column) for column, lane in enumerate(_LANES))

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """Drag the ship to the column where the finger leaves the screen."""
        return self.touch(x2, y2)

    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the ship's own column and the columns to its left and right."""
        return {name: _LANES[self._beside(name)] for name in MOVES}

    def send(self, column: int) -> bool:
        """Set the ship's target column. Returns False if it is already the target."""
        if self.done or not 0 <= column < COLUMNS or column == self.target:
            return False
        self.target = column
        return True

    def move(self, name: str) -> bool:
        """Make the move `left`, `right` or `stay`. Returns whether the target changed.

        Raises:
            ValueError: unknown move.
        """
        if name not in MOVES:
            raise ValueError(f"{name!r} is not a move; it must be one of {', '.join(MOVES)}.")
        return self.send(self._beside(name))

    def tick(self) -> bool:
        """Advance by one tick."""
        if self.done:
            return False
        self.ship += (self.target > self.ship) - (self.target < self.ship)
        self._rise()
        self.time += 1
        self._come_down(ROWS // 2 + self.time)
        self._collide()
        if self.time % 2 == 0:
            self.shots = (*self.shots, (self.ship, ROWS - 1))
        return True

    def moves(self) -> tuple[str, ...]:
        """Return all moves that stay on the field."""
        if self.done:
            return ()
        return MOVES[self.ship == 0 : 2 + (self.ship < COLUMNS - 1)]

    @property
    def lost(self) -> bool:
        """Whether no life is left."""
        return self.lives <= 0

    @property
    def won(self) -> bool:
        """Whether the ship survived until the end."""
        return self.time >= self.length and not self.lost

    def state(self) -> dict[str, Any]:
        """Return the true state as plain JSON values; `worth` is the score in enemies."""
        return {
            **super().state(),
            "score": self.score,
            "worth": self.score / STAKE,
            "time": self.time,
            "lives": self.lives,
            "ship": self.ship,
            "target": self.target,
            "things": [list(thing) for thing in self.things],
            "shots": [list(shot) for shot in self.shots],
        }

    def _beside(self, name: str) -> int:
        """Return the column that a move leads to, clipped to the field."""
        return min(max(self.ship + MOVES.index(name) - 1, 0), COLUMNS - 1)

    def _rise(self) -> None:
        """Move the shots up; each disappears at the first thing it hits."""
        left = []
        for column, row in self.shots:
            for _ in range(_SHOT):
                row -= 1
                if self._meets(column, row):
                    break
            else:
                if row >= 0:
                    left.append((column, row))
        self.shots = tuple(left)

    def _come_down(self, event: int) -> None:
        self.things = tuple((kind, x, y + 1) for kind, x, y in self.things if y + 1 < ROWS)
        self.shots = tuple((x, y) for x, y in self.shots if not self._meets(x, y))
        new = draw_thing(self.seed, event)
        if new is not None:
            self.things = (*self.things, new)

    def _meets(self, column: int, row: int) -> bool:
        """Return whether a shot hits something here; destroy an enemy that is hit."""
        for thing in self.things:
            if thing[1:] == (column, row):
                if thing[0] == "enemy":
                    self.things = tuple(other for other in self.things if other != thing)
                    self.score += STAKE
                return True
        return False

    def _collide(self) -> None:
        place = (self.ship, ROWS - 1)
        left = tuple(thing for thing in self.things if thing[1:] != place)
        if len(left) < len(self.things):
            self.things = left
            self.lives -= 1
            self.score -= STAKE


def draw_thing(seed: int, event: int) -> Thing | None:
    """Draw the thing that appears in the top row at one event of a game, if any."""
    rng = event_rng(seed, event)
    if rng.random() >= _SOMETHING:
        return None
    column = int(rng.integers(COLUMNS))
    return ("rock" if rng.random() < _ROCK else "enemy", column, 0)
