"""Which levels are kept from training.

By default the room decides, its walls and its targets: boxes and player move, so that a level that
differs in them alone may be met while another is played. Nor is a room new that is another one
turned or mirrored; all eight fall on the same side.

Where rooms are few, the level itself may decide, boxes and player included. On 5 by 5 cells there
are some forty rooms that take more than a move, however they are turned, and one of them is half of
all levels: what is learned of the others says little. No game of training then begins with a
held-out level, though one may come by it, or begin with its mirror image.
"""

from functools import lru_cache
from hashlib import blake2b

from agentrl.envs.sokoban.board import Board
from agentrl.envs.sokoban.room import Room
from agentrl.errors import ConfigError

SPLITS = ("all", "train", "eval")
WHOLES = ("room", "level")
"""What is held out as a whole."""


def check_split(split: str, held_out: float, held_out_by: str) -> None:
    """See whether there is such a split.

    Raises:
        ConfigError: there is not, or the share is none or would leave one side empty.
    """
    if held_out_by not in WHOLES:
        raise ConfigError(f"held_out_by is {held_out_by!r}; it must be one of {', '.join(WHOLES)}.")
    if split not in SPLITS:
        raise ConfigError(f"split is {split!r}; it must be one of {', '.join(SPLITS)}.")
    if not 0.0 < held_out < 1.0:
        raise ConfigError(f"held_out is {held_out}; the share must lie between 0 and 1.")


def belongs(board: Board, split: str, held_out: float, held_out_by: str) -> bool:
    """Whether a level is of this split.

    Args:
        board: it begins with.
        split: `all`, `train` or `eval`.
        held_out: the share that is `eval`.
        held_out_by: what is held out as a whole: `room` or `level`.
    """
    if held_out_by == "room":
        return room_belongs(board.room, split, held_out)
    return split == "all" or (_place(board.text()) < held_out) == (split == "eval")


def room_belongs(room: Room, split: str, held_out: float) -> bool:
    """Whether a room is of this split, where rooms are held out."""
    return split == "all" or (_place_of(room) < held_out) == (split == "eval")


@lru_cache(maxsize=1 << 14)
def _place_of(room: Room) -> float:
    return _place(canonical(room))


def _place(text: str) -> float:
    """A number in [0, 1) that hangs on the text alone."""
    digest = blake2b(text.encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / (1 << 48)


def canonical(room: Room) -> str:
    """The same text for a room, its mirror images and all of them turned."""
    rows = room.plan.decode("ascii").splitlines()
    seen = []
    for _ in range(4):
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]  # a quarter turn
        seen += ["\n".join(rows), "\n".join(row[::-1] for row in rows)]
    return min(seen)
