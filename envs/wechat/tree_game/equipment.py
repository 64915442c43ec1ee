"""Pieces of equipment: their power, and which pieces drop from the tree."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

ATTRIBUTES = ("attack", "health", "defence", "agility", "dodge")
WEIGHTS = (4, 1, 3, 2, 2)
"""The prompt's formula: a piece's power is 4 attack + health + 3 defence + 2 agility + 2 dodge, and
the player's power is the sum over all worn pieces."""
SLOTS = ("sword", "helmet", "armour", "boots", "ring", "cloak")
"""Each slot holds one worn piece."""
_LEAST, _MOST = 1, 99
_BUDGET = (150, 251)
"""Range of the points that each piece divides among its attributes, so that they trade off."""
_BASE = 12
"""Points that each attribute always has."""
_EVENNESS = 2.0
"""Dirichlet concentration of the division: the lower, the less even."""
_WORN, _DROPPED = 1, 2
"""Separate the random streams; not 0, because NumPy ignores a final 0 in a seed."""


@dataclass(slots=True, frozen=True)
class Equipment:
    """One piece of equipment."""

    slot: int
    """Index into SLOTS."""
    values: tuple[int, ...]
    """One value per attribute, each from 1 to 99."""

    @property
    def power(self) -> int:
        """The piece's contribution to the player's power."""
        return sum(w * v for w, v in zip(WEIGHTS, self.values, strict=True))


@lru_cache(maxsize=256)
def draw_worn(seed: int) -> tuple[Equipment, ...]:
    """Draw the initial equipment of the game with this seed, one piece per slot."""
    rng = np.random.default_rng((seed, _WORN))
    return tuple(Equipment(slot, _draw_values(rng)) for slot in range(len(SLOTS)))


@lru_cache(maxsize=4096)
def draw_drop(seed: int, chop: int) -> Equipment:
    """Draw the piece that a chop (counted from 0) drops, independent of the player's decisions."""
    rng = np.random.default_rng((seed, chop, _DROPPED))
    return Equipment(int(rng.integers(len(SLOTS))), _draw_values(rng))


def _draw_values(rng: np.random.Generator) -> tuple[int, ...]:
    shares = rng.dirichlet([_EVENNESS] * len(ATTRIBUTES))
    points = _BASE + shares * int(rng.integers(*_BUDGET))
    return tuple(int(value) for value in np.clip(np.rint(points), _LEAST, _MOST))


@lru_cache(maxsize=256)
def reach(seed: int, chops: int) -> tuple[int, int]:
    """Return the lowest and highest power at the end of a game with this many chops.

    Slots are independent, so the best power is the sum over each slot's best piece.
    """
    pieces = [[worn.power] for worn in draw_worn(seed)]
    for chop in range(chops):
        drop = draw_drop(seed, chop)
        pieces[drop.slot].append(drop.power)
    return sum(map(min, pieces)), sum(map(max, pieces))
