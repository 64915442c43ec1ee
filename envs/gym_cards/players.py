"""Scripted players of NumberLine and EZPoints."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from gymnasium import spaces

from agentrl.actions.action_calls import ActionSet
from agentrl.actions.players.random_player import RandomPlayer
from agentrl.envs.gym_cards.ez_points import MOST_PARTS, SYMBOLS, is_right, unused
from agentrl.envs.gym_cards.number_line import MOVES


class NumberLineExpert:
    """Moves towards the target.

    Args:
        names: names of the moves; this and `style` must match the translator's.
        style: `tag` or `tool`.
    """

    def __init__(self, names: Sequence[str] = MOVES, style: str = "tag") -> None:
        self._names, self._calls = names, ActionSet(names, style)

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the move to the right below the target, else the one to the left."""
        return self._calls.format(self._names[info["current"] < info["target"]])


class NumberLineRandom(RandomPlayer):
    """Makes random moves.

    Args:
        names: names of the moves; this and `style` must match the translator's.
        style: `tag` or `tool`.
    """

    def __init__(self, names: Sequence[str] = MOVES, style: str = "tag") -> None:
        super().__init__(spaces.Discrete(len(MOVES)), names, style=style)


class EZPointsExpert:
    """Completes the formula with as few parts as possible; a lost one it ends at once.

    Args:
        names: names of the actions; this and `style` must match the translator's.
        style: `tag` or `tool`.
    """

    def __init__(self, names: Sequence[str] = SYMBOLS, style: str = "tag") -> None:
        self._names, self._calls = names, ActionSet(names, style)

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the next part of the shortest right formula that begins like the present one."""
        part = next_part(tuple(info["numbers"]), tuple(info["formula"]))
        return self._calls.format(self._names[SYMBOLS.index(part)])


class EZPointsRandom(RandomPlayer):
    """Appends random numbers and operators.

    Args:
        names: names of the actions; this and `style` must match the translator's.
        style: `tag` or `tool`.
    """

    def __init__(self, names: Sequence[str] = SYMBOLS, style: str = "tag") -> None:
        super().__init__(spaces.Discrete(len(SYMBOLS)), names, style=style)


@lru_cache(maxsize=4096)
def next_part(numbers: tuple[int, ...], formula: tuple[str, ...]) -> str:
    """Return the part that a formula needs next; `=` if it is right, or cannot be completed."""
    left = unused(numbers, formula)
    for length in range(MOST_PARTS - len(formula) + 1):
        for parts in product((*map(str, left), "+", "*"), repeat=length):
            used = [int(part) for part in parts if part.isdigit()]
            if all(used.count(number) <= left.count(number) for number in used) and is_right(
                (*formula, *parts)
            ):
                return parts[0] if parts else "="
    return "="
