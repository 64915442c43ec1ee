"""Generate levels from a seed; the solver finds each level's shortest solution."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from agentrl.envs.sokoban.board import Board
from agentrl.envs.sokoban.level_split import belongs, check_split, room_belongs
from agentrl.envs.sokoban.room import Room, bits
from agentrl.envs.sokoban.solver import SearchLimitReached, solve
from agentrl.errors import ConfigError

SMALLEST, LARGEST = 3, 32
_TRIES = 2_000
"""Boards to try until one matches the requested kind."""
_DRAWS = 50
"""Maximum number of rooms drawn per board, on average."""
_STATES = 500
"""Maximum solver states per level; harder levels are redrawn, so that generation stays fast."""
_TURN = 0.35
"""Probability that the carving walk turns, as in the usual generator (arXiv:1707.06203)."""
_WIDEN = 0.5
"""Probability of also opening a cell next to the walk: boxes cannot turn in narrow corridors."""


@dataclass(slots=True, kw_only=True, frozen=True)
class LevelKind:
    """The kind of levels to generate.

    Raises:
        ConfigError: no level of this kind can exist.
    """

    height: int = 7
    """Rows including walls: 5 by 5 has 9 cells inside."""
    width: int = 7
    """Columns including walls."""
    boxes: int = 1
    min_moves: int = 1
    """Minimum length of a shortest solution."""
    max_moves: int | None = None
    """Maximum length of a shortest solution; None for no limit."""
    split: str = "all"
    """`all`, `train` or `eval`."""
    held_out: float = 0.2
    """The share that belongs to `eval`."""
    held_out_by: str = "room"
    """The unit that is held out: `room` or `level`."""

    def __post_init__(self) -> None:
        check_split(self.split, self.held_out, self.held_out_by)
        for name, value in (("height", self.height), ("width", self.width)):
            if not SMALLEST <= value <= LARGEST:
                raise ConfigError(
                    f"the {name} is {value}; including walls it must be in [{SMALLEST}, {LARGEST}]."
                )
        if max(self.height, self.width) < 5:
            raise ConfigError(
                f"{self.height} by {self.width} cells including walls have no room for a player, "
                "a box and a target in a row; use at least 3 by 5."
            )
        inside = (self.height - 2) * (self.width - 2)
        if not 1 <= self.boxes <= inside // 3:
            raise ConfigError(
                f"boxes is {self.boxes}; on {self.height} by {self.width} cells including walls "
                f"it must be in [1, {inside // 3}]."
            )
        if self.min_moves < 1 or (self.max_moves or self.min_moves) < self.min_moves:
            raise ConfigError(
                f"min_moves is {self.min_moves} and max_moves {self.max_moves}; they must satisfy "
                "1 <= min_moves <= max_moves."
            )


@dataclass(slots=True, kw_only=True, frozen=True)
class SokobanLevel:
    """An initial board."""

    board: Board
    optimal: int | None
    """Length of a shortest solution, in moves; None if the search limit was reached."""
    number: int | None = None
    """Index in the level files; None for a generated level."""


def generate(seed: int, kind: LevelKind) -> SokobanLevel:
    """Generate the level of a seed.

    Raises:
        ConfigError: levels of this kind are so rare that none was found.
    """
    for board in islice(_boards(random.Random(seed), kind), _TRIES):
        try:
            moves = solve(board, _STATES)
        except SearchLimitReached:
            continue
        assert moves is not None, "boards made by pulling boxes off targets are solvable"
        if kind.min_moves <= len(moves) <= (kind.max_moves or len(moves)):
            return SokobanLevel(board=board, optimal=len(moves))
    raise ConfigError(
        f"no level found in {_TRIES} tries (seed {seed}) of {kind.height} by {kind.width} cells "
        f"with boxes={kind.boxes}, min_moves={kind.min_moves}, max_moves={kind.max_moves}, "
        f"split={kind.split}; use fewer moves, fewer boxes or a larger room"
    )


def _boards(rng: random.Random, kind: LevelKind) -> Iterator[Board]:
    """Yield solvable boards of a split, of any solution length; give up if they are too rare."""
    for _ in range(_DRAWS * _TRIES):
        room = _draw_room(rng, kind)
        by_room = kind.held_out_by == "room"
        if by_room and not room_belongs(room, kind.split, kind.held_out):
            continue  # cheaper than drawing a board first
        board = _draw_board(rng, room)
        if board is not None and belongs(board, kind.split, kind.held_out, kind.held_out_by):
            yield board


def _draw_room(rng: random.Random, kind: LevelKind) -> Room:
    """Carve a connected floor and choose targets on it."""
    # Leave room for every box and a cell to push it from, and avoid rooms that are mostly walls.
    inside = (kind.height - 2) * (kind.width - 2)
    least = max(2 * kind.boxes + 1, 2 * inside // 5)
    floor = _carve(rng, kind.height, kind.width, rng.randint(min(least, inside), inside))
    targets = sum(1 << cell for cell in rng.sample(list(bits(floor)), kind.boxes))
    return Room(height=kind.height, width=kind.width, floor=floor, targets=targets)


def _carve(rng: random.Random, height: int, width: int, cells: int) -> int:
    """Carve a floor by a random walk that sometimes also opens an adjacent cell."""
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
    """Pull boxes off their targets, so that they can be pushed back; None if any is on a target."""
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
    # Start the player anywhere it can reach: its last cell would reveal the first push.
    return Board(room=room, boxes=boxes, player=rng.choice(list(bits(room.reach(player, boxes)))))


def _pulls(room: Room, boxes: int, player: int) -> Sequence[tuple[int, int]]:
    """Return the possible pulls as (cell of the box, step)."""
    reach, free = room.reach(player, boxes), room.floor & ~boxes
    return [
        (box, step)
        for box in bits(boxes)
        for step in room.steps
        if reach >> box + step & 1 and free >> box + 2 * step & 1
    ]
