"""Pieces of equipment: what they are worth, and which of them drop from the tree."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

ATTRIBUTES = ("attack", "health", "defence", "agility", "dodge")
WEIGHTS = (4, 1, 3, 2, 2)
"""The published formula: a piece's power is 4 attack + health + 3 defence + 2 agility + 2 dodge,
and the player's power the sum over all pieces that are worn."""
SLOTS = ("sword", "helmet", "armour", "boots", "ring", "cloak")
"""One piece is worn in each."""
_LEAST, _MOST = 1, 99
_BUDGET = (150, 251)
"""Points that a piece divides among its attributes: more of one is less of another."""
_BASE = 12
"""Points that each attribute has anyway."""
_EVENNESS = 2.0
"""Of the division: the lower, the more the attributes trade off."""
_WORN, _DROPPED = 1, 2
"""Set the chances apart; never 0, which seeds ignore."""


@dataclass(slots=True, frozen=True)
class Equipment:
    """One piece."""

    slot: int
    """Index into SLOTS."""
    values: tuple[int, ...]
    """Of the attributes, each from 1 to 99."""

    @property
    def power(self) -> int:
        """What it adds to the player's power."""
        return sum(w * v for w, v in zip(WEIGHTS, self.values, strict=True))


@lru_cache(maxsize=256)
def draw_worn(seed: int) -> tuple[Equipment, ...]:
    """What the player of the game with this seed wears at first, a piece a slot."""
    rng = np.random.default_rng((seed, _WORN))
    return tuple(Equipment(slot, _draw_values(rng)) for slot in range(len(SLOTS)))


@lru_cache(maxsize=4096)
def draw_drop(seed: int, chop: int) -> Equipment:
    """What the chop of that number drops, from 0; it hangs on nothing that the player does."""
    rng = np.random.default_rng((seed, chop, _DROPPED))
    return Equipment(int(rng.integers(len(SLOTS))), _draw_values(rng))


def _draw_values(rng: np.random.Generator) -> tuple[int, ...]:
    shares = rng.dirichlet([_EVENNESS] * len(ATTRIBUTES))
    points = _BASE + shares * int(rng.integers(*_BUDGET))
    return tuple(int(value) for value in np.clip(np.rint(points), _LEAST, _MOST))


@lru_cache(maxsize=256)
def reach(seed: int, chops: int) -> tuple[int, int]:
    """The lowest and the highest power that a game of so many chops can end with.

    Slots do not hang on each other, so that the best is the best piece of each.
    """
    pieces = [[worn.power] for worn in draw_worn(seed)]
    for chop in range(chops):
        drop = draw_drop(seed, chop)
        pieces[drop.slot].append(drop.power)
    return sum(map(min, pieces)), sum(map(max, pieces))
