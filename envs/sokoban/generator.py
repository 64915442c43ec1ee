"""Levels from a seed, each with the solver's proof that it can be solved, and in how many moves."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from agentrl.envs.sokoban.board import Board
from agentrl.envs.sokoban.room import Room, bits
from agentrl.envs.sokoban.solver import OutOfReach, solve
from agentrl.envs.sokoban.split import belongs, check_split, room_belongs
from agentrl.errors import ConfigError

SMALLEST, LARGEST = 3, 32
_TRIES = 2_000
"""Boards of which one must be a level of the kind that was asked for."""
_DRAWS = 50
"""Rooms that are drawn for a board, on average and at most."""
_STATES = 500
"""A level on which the solver needs more is drawn again, so that no level takes long."""
_TURN = 0.35
"""How often who carves a room turns, as in the rooms of the field (arXiv:1707.06203)."""
_WIDEN = 0.5
"""How often the cell beside the walk is opened too: boxes do not turn in narrow corridors."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Kind:
    """What levels are drawn.

    Raises:
        ConfigError: there are none of that kind, whatever is drawn.
    """

    height: int = 7
    """Rows, walls included: 5 by 5 has 9 cells inside."""
    width: int = 7
    """Columns, walls included."""
    boxes: int = 1
    min_moves: int = 1
    """Of a shortest solution."""
    max_moves: int | None = None
    """Of a shortest solution; None for no bound."""
    split: str = "all"
    """`all`, or the levels of one side: `train`, `eval`."""
    held_out: float = 0.2
    """The share that is `eval`."""
    held_out_by: str = "room"
    """What is held out as a whole: `room` or `level`."""

    def __post_init__(self) -> None:
        check_split(self.split, self.held_out, self.held_out_by)
        for name, value in (("height", self.height), ("width", self.width)):
            if not SMALLEST <= value <= LARGEST:
                raise ConfigError(
                    f"the {name} is {value}; walls included it must lie in [{SMALLEST}, {LARGEST}]."
                )
        if max(self.height, self.width) < 5:
            raise ConfigError(
                f"{self.height} by {self.width} cells, walls included, leave no room for a player, "
                "a box and a target in a row: ask for 3 by 5 at least."
            )
        inside = (self.height - 2) * (self.width - 2)
        if not 1 <= self.boxes <= inside // 3:
            raise ConfigError(
                f"boxes is {self.boxes}; on {self.height} by {self.width} cells, walls included, "
                f"it must lie in [1, {inside // 3}]."
            )
        if self.min_moves < 1 or (self.max_moves or self.min_moves) < self.min_moves:
            raise ConfigError(
                f"min_moves is {self.min_moves} and max_moves {self.max_moves}; it must be "
                "1 <= min_moves <= max_moves."
            )


@dataclass(slots=True, kw_only=True, frozen=True)
class Level:
    """A board to begin with."""

    board: Board
    optimal: int | None
    """Moves of a shortest solution; None where none was found within bounds."""
    number: int | None = None
    """Which one of those that were read; None for one that was drawn."""


def generate(seed: int, kind: Kind) -> Level:
    """The level of a seed.

    Raises:
        ConfigError: none was found; levels of that kind are too rare.
    """
    for board in islice(_boards(random.Random(seed), kind), _TRIES):
        try:
            moves = solve(board, _STATES)
        except OutOfReach:
            continue
        assert moves is not None, "what was pulled apart can be pushed together"
        if kind.min_moves <= len(moves) <= (kind.max_moves or len(moves)):
            return Level(board=board, optimal=len(moves))
    raise ConfigError(
        f"no level in {_TRIES} tries (seed {seed}) of {kind.height} by {kind.width} cells with "
        f"boxes={kind.boxes}, min_moves={kind.min_moves}, max_moves={kind.max_moves}, "
        f"split={kind.split}: ask for less moves, fewer boxes or more room"
    )


def _boards(rng: random.Random, kind: Kind) -> Iterator[Board]:
    """Boards of one split that can be solved, of any length; it ends where there are hardly any."""
    for _ in range(_DRAWS * _TRIES):
        room = _draw_room(rng, kind)
        by_room = kind.held_out_by == "room"
        if by_room and not room_belongs(room, kind.split, kind.held_out):
            continue  # sooner than a board is drawn
        board = _draw_board(rng, room)
        if board is not None and belongs(board, kind.split, kind.held_out, kind.held_out_by):
            yield board


def _draw_room(rng: random.Random, kind: Kind) -> Room:
    """Carve a connected floor and choose targets on it."""
    inside = (kind.height - 2) * (kind.width - 2)
    least = max(2 * kind.boxes + 1, 2 * inside // 5)
    floor = _carve(rng, kind.height, kind.width, rng.randint(min(least, inside), inside))
    targets = sum(1 << cell for cell in rng.sample(list(bits(floor)), kind.boxes))
    return Room(height=kind.height, width=kind.width, floor=floor, targets=targets)


def _carve(rng: random.Random, height: int, width: int, cells: int) -> int:
    """A walk that opens the cells it comes to, and now and then the one beside it."""
    inside = sum(((1 << width - 2) - 1) << row * width + 1 for row in range(1, height - 1))
    steps = (-width, width, -1, 1)
    at, ahead = rng.choice(list(bits(inside))), rng.choice(steps)
    floor = 1 << at
    while floor.bit_count() < cells:
        if rng.random() < _TURN:
            ahead = rng.choice(steps)
        if inside >> at + ahead & 1:
            at += ahead
            floor |= 1 << at
        if rng.random() < _WIDEN and floor.bit_count() < cells:
            floor |= 1 << at + rng.choice(steps) & inside
    return floor


def _draw_board(rng: random.Random, room: Room) -> Board | None:
    """Boxes pulled off the targets, so that they can be pushed back; None if one is on a target."""
    boxes = room.targets
    free = list(bits(room.floor & ~boxes))
    player = rng.choice(free)
    for _ in range(rng.randint(boxes.bit_count(), boxes.bit_count() * (room.height + room.width))):
        pulls = _pulls(room, boxes, player)
        if not pulls:
            break
        box, step = rng.choice(pulls)
        boxes ^= 1 << box | 1 << box + step
        player = box + 2 * step
    if boxes & room.targets:
        return None
    return Board(room=room, boxes=boxes, player=rng.choice(list(bits(room.reach(player, boxes)))))


def _pulls(room: Room, boxes: int, player: int) -> Sequence[tuple[int, int]]:
    """Which box the player can pull by which step."""
    reach, free = room.reach(player, boxes), room.floor & ~boxes
    return [
        (box, step)
        for box in bits(boxes)
        for step in room.steps
        if reach >> box + step & 1 and free >> box + 2 * step & 1
    ]
