"""Split levels into training and evaluation.

By default the room (walls and targets) decides: boxes and player move, so a level that differs only
in them may occur while another level is played. Rotations and mirror images are not new rooms: all
eight fall into the same split.

If there are only a few rooms, the whole level including boxes and player can decide. With 5 by 5
cells there are about forty rooms, up to symmetry, that take more than one move, and one of them
accounts for half of all levels, so results on the held-out rooms would mean little. With
`held_out_by=level` no training game starts with a held-out level, but it may pass through one, or
start with its mirror image.
"""

from functools import lru_cache

from agentrl.envs.sokoban.board import Board
from agentrl.envs.sokoban.room import Room
from agentrl.errors import ConfigError
from agentrl.text.formatting import hash_fraction

SPLITS = ("all", "train", "eval")
WHOLES = ("room", "level")
"""The units that can be held out."""


def check_split(split: str, held_out: float, held_out_by: str) -> None:
    """Check the arguments of a split.

    Raises:
        ConfigError: unknown split or unit, or a share that leaves one split empty.
    """
    if held_out_by not in WHOLES:
        raise ConfigError(f"held_out_by is {held_out_by!r}; it must be one of {', '.join(WHOLES)}.")
    if split not in SPLITS:
        raise ConfigError(f"split is {split!r}; it must be one of {', '.join(SPLITS)}.")
    if not 0.0 < held_out < 1.0:
        raise ConfigError(f"held_out is {held_out}; the share must lie between 0 and 1.")


def belongs(board: Board, split: str, held_out: float, held_out_by: str) -> bool:
    """Return whether a level belongs to a split, given the share that is held out."""
    if held_out_by == "room":
        return room_belongs(board.room, split, held_out)
    return split == "all" or (hash_fraction(board.text()) < held_out) == (split == "eval")


def room_belongs(room: Room, split: str, held_out: float) -> bool:
    """Return whether a room belongs to a split, for `held_out_by=room`."""
    return split == "all" or (_place_of(room) < held_out) == (split == "eval")


@lru_cache(maxsize=1 << 14)
def _place_of(room: Room) -> float:
    return hash_fraction(canonical(room))


def canonical(room: Room) -> str:
    """Return a string that is the same for a room, its rotations and its mirror images."""
    rows = room.plan.decode("ascii").splitlines()
    seen = []
    for _ in range(4):
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]  # a quarter turn
        seen += ["\n".join(rows), "\n".join(row[::-1] for row in rows)]
    return min(seen)
