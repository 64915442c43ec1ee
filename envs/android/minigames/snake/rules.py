"""Snake: a pure, seeded state machine.

A tick moves the snake by one cell in the direction of its head. A move turns the head, but cannot
reverse it. Food makes the snake one cell longer; the next food appears in a free cell that depends
on the seed, the amount eaten and the snake itself. The snake dies if it hits the wall or its own
body, or if it does not eat within twice as many ticks as there are cells. The tail moves on, so its
cell counts as free.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.envs.android.minigames.minigame_rules import (
    SWIPES,
    MinigameRules,
    direction,
    event_rng,
)
from agentrl.envs.android.phone_game.boxes import Grid
from agentrl.envs.android.phone_game.level_settings import PacedSettings, one_of
from agentrl.envs.android.phone_game.rules import TouchTarget

STEPS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
MOVES = tuple(STEPS)
COLUMNS, ROWS = 6, 8
GRID = Grid(columns=COLUMNS, rows=ROWS + 2)
"""One row for the score board, then the field, then one free row."""
TOP = 1
"""The field's first row."""
LENGTH = 3
"""Initial length of the snake."""
PATIENCE = 2 * COLUMNS * ROWS
"""Ticks that the snake survives without food."""

Cell = tuple[int, int]
"""Column and row, from the top left."""


@dataclass(slots=True, kw_only=True, frozen=True)
class SnakeLevel(PacedSettings):
    """The length and pace of a game."""

    goal: int = one_of(
        10, range(1, COLUMNS * ROWS - LENGTH + 1), "an integer from 1 to 45 (food needed to win)"
    )
    ticks: int = one_of(1, range(1, 1001), "an integer from 1 to 1000 (ticks per action)")


class Snake(MinigameRules):
    """One game. For args and errors see `MinigameRules`; settings: `SnakeLevel`."""

    pace_ms = 500
    lost = False

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed, self.goal = seed, SnakeLevel(**level).goal
        self.score = self.hunger = 0
        self.heading = MOVES[int(event_rng(seed, 0).integers(len(MOVES)))]
        self.body = _born(self.heading)
        self.food: Cell | None = self._new_food()

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """Turn the head in the direction of the swipe."""
        return self.move(direction(x1, y1, x2, y2))

    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the four swipes."""
        return SWIPES

    def move(self, name: str) -> bool:
        """Turn the head `up`, `down`, `left` or `right`. Returns False if that changes nothing.

        Raises:
            ValueError: unknown direction.
        """
        if name not in MOVES:
            raise ValueError(f"{name!r} is not a move; it must be one of {', '.join(MOVES)}.")
        if self.done or name == self.heading or name not in self.moves():
            return False
        self.heading = name
        return True

    def tick(self) -> bool:
        """Move by one cell."""
        if self.done:
            return False
        head = ahead(self.body[0], self.heading)
        eats = head == self.food
        rest = self.body if eats else self.body[:-1]
        self.hunger = 0 if eats else self.hunger + 1
        if not on_board(head) or head in rest or self.hunger > PATIENCE:
            self.lost = True
            return True
        self.body = (head, *rest)
        if eats:
            self.score += 1
            self.food = None if self.won else self._new_food()
        return True

    def moves(self) -> tuple[str, ...]:
        """Return every direction except reverse; empty once the game is over."""
        if self.done:
            return ()
        return tuple(name for name in MOVES if ahead(self.body[0], name) != self.body[1])

    @property
    def won(self) -> bool:
        """Whether the snake has eaten enough."""
        return self.score >= self.goal

    def state(self) -> dict[str, Any]:
        """Return the true state as plain JSON values, with the body from head to tail.

        `worth` is the score, less 1 if the game is lost.
        """
        return {
            **super().state(),
            "score": self.score,
            "worth": self.score - self.lost,
            "heading": self.heading,
            "body": [list(cell) for cell in self.body],
            "food": None if self.food is None else list(self.food),
            "hunger": self.hunger,
        }

    def _new_food(self) -> Cell:
        free = [
            (column, row)
            for row in range(ROWS)
            for column in range(COLUMNS)
            if (column, row) not in self.body
        ]
        return free[int(event_rng(self.seed, self.score + 1).integers(len(free)))]


def ahead(cell: Cell, way: str) -> Cell:
    """Return the next cell in a direction, on the board or not."""
    dx, dy = STEPS[way]
    return cell[0] + dx, cell[1] + dy


def on_board(cell: Cell) -> bool:
    """Return whether a cell is on the board."""
    return 0 <= cell[0] < COLUMNS and 0 <= cell[1] < ROWS


def _born(heading: str) -> tuple[Cell, ...]:
    """Return a straight snake in the middle of the board."""
    dx, dy = STEPS[heading]
    column, row = COLUMNS // 2, ROWS // 2
    return tuple((column - dx * part, row - dy * part) for part in range(LENGTH))
