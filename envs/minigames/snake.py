"""Snake: a pure, seeded state machine.

A tick moves the snake by one cell where its head looks. A move turns the head; it never turns
back. Food makes it longer by one, and new food lies in a free cell that hangs on the seed, the
amount eaten and the snake itself. The wall, its own body and hunger end the game: it must eat
within twice as many ticks as there are cells. The end of its tail moves on, so its cell is free.
"""

from typing import Any

from agentrl.envs.minigames.chance import chance, check

STEPS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
MOVES = tuple(STEPS)
COLUMNS, ROWS = 6, 8
LENGTH = 3
"""Of the snake at the start."""
PATIENCE = 2 * COLUMNS * ROWS
"""Ticks without food that it survives."""

Cell = tuple[int, int]
"""Column and row, from the top left."""


class Snake:
    """One game.

    Args:
        seed: >= 0.
        goal: the food that wins and ends the game, from 1 to what fits on the board.

    Raises:
        ValueError: a negative seed, or a goal that cannot be reached.
    """

    ticks_per_turn = 1

    def __init__(self, seed: int = 0, goal: int = 10) -> None:
        check(seed, goal=goal)
        if goal > COLUMNS * ROWS - LENGTH:
            raise ValueError(f"goal is {goal}; at most {COLUMNS * ROWS - LENGTH} fit on the board.")
        self.seed, self.goal = seed, goal
        self.score = self.hunger = 0
        self.heading = MOVES[int(chance(seed, 0).integers(len(MOVES)))]
        self.body = _born(self.heading)
        self.food = self._new_food()
        self.lost = False

    def move(self, name: str) -> bool:
        """Turn the head `up`, `down`, `left` or `right`; False where it looks there already.

        Raises:
            ValueError: another direction.
        """
        if name not in MOVES:
            raise ValueError(f"{name!r} is no move; there are {', '.join(MOVES)}.")
        if self.done or name == self.heading or name not in self.moves():
            return False
        self.heading = name
        return True

    def tick(self) -> None:
        """Move by one cell."""
        if self.done:
            return
        head = ahead(self.body[0], self.heading)
        eats = head == self.food
        rest = self.body if eats else self.body[:-1]
        self.hunger = 0 if eats else self.hunger + 1
        if not on_board(head) or head in rest or self.hunger > PATIENCE:
            self.lost = True
            return
        self.body = (head, *rest)
        if eats:
            self.score += 1
            self.food = None if self.won else self._new_food()

    def moves(self) -> tuple[str, ...]:
        """All but the way back."""
        if self.done:
            return ()
        return tuple(name for name in MOVES if ahead(self.body[0], name) != self.body[1])

    @property
    def won(self) -> bool:
        """Whether it has eaten enough."""
        return self.score >= self.goal

    @property
    def done(self) -> bool:
        """Whether the game is over."""
        return self.lost or self.won

    def state(self) -> dict[str, Any]:
        """The truth as plain JSON values; the body from the head to the tail."""
        return {
            "seed": self.seed,
            "goal": self.goal,
            "score": self.score,
            "heading": self.heading,
            "body": [list(cell) for cell in self.body],
            "food": None if self.food is None else list(self.food),
            "hunger": self.hunger,
            "moves": list(self.moves()),
            "won": self.won,
            "lost": self.lost,
            "done": self.done,
        }

    def _new_food(self) -> Cell:
        free = [
            (column, row)
            for row in range(ROWS)
            for column in range(COLUMNS)
            if (column, row) not in self.body
        ]
        return free[int(chance(self.seed, self.score + 1).integers(len(free)))]


def ahead(cell: Cell, way: str) -> Cell:
    """The next cell in a direction, on the board or not."""
    dx, dy = STEPS[way]
    return cell[0] + dx, cell[1] + dy


def on_board(cell: Cell) -> bool:
    """Whether it is a cell of the board."""
    return 0 <= cell[0] < COLUMNS and 0 <= cell[1] < ROWS


def _born(heading: str) -> tuple[Cell, ...]:
    """A straight snake in the middle of the board."""
    dx, dy = STEPS[heading]
    column, row = COLUMNS // 2, ROWS // 2
    return tuple((column - dx * part, row - dy * part) for part in range(LENGTH))
