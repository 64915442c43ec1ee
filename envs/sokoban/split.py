"""Which rooms are kept from training, so that a held-out level is new in every sense.

The room decides, its walls and its targets, and not the level: boxes and player move, so that a
level that differs in them alone would be met while another is played. Nor is a room new that is
another one turned or mirrored; all eight fall on the same side.
"""

from functools import lru_cache
from hashlib import blake2b

from agentrl.envs.sokoban.room import Room
from agentrl.errors import ConfigError

SPLITS = ("all", "train", "eval")


def check_split(split: str, held_out: float) -> None:
    """See whether there is such a split.

    Raises:
        ConfigError: there is not, or the share is none or would leave one side empty.
    """
    if split not in SPLITS:
        raise ConfigError(f"split is {split!r}; it must be one of {', '.join(SPLITS)}.")
    if not 0.0 < held_out < 1.0:
        raise ConfigError(f"held_out is {held_out}; the share must lie between 0 and 1.")


def belongs(room: Room, split: str, held_out: float) -> bool:
    """Whether a room is of this split.

    Args:
        room: its walls and targets decide.
        split: `all`, `train` or `eval`.
        held_out: the share of rooms that are `eval`.
    """
    return split == "all" or (_place(room) < held_out) == (split == "eval")


@lru_cache(maxsize=1 << 14)
def _place(room: Room) -> float:
    """A number in [0, 1) that hangs on the room alone, however it is turned."""
    digest = blake2b(canonical(room).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / (1 << 48)


def canonical(room: Room) -> str:
    """The same text for a room, its mirror images and all of them turned."""
    rows = room.plan.decode("ascii").splitlines()
    seen = []
    for _ in range(4):
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]  # a quarter turn
        seen += ["\n".join(rows), "\n".join(row[::-1] for row in rows)]
    return min(seen)
