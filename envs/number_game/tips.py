"""The lines that `distractor` puts on the screen: about numbers or lamps, and of no use.

They are drawn without regard to the round's lamp and cards, and none says what a lamp asks for:
the rules stay true, whatever stands there.
"""

from functools import lru_cache

import numpy as np

from agentrl.envs.number_game.rounds import LAMPS

_LINES = (
    "Tip: the largest card won last time.",
    "Tip: the smallest card is often right.",
    "Tip: {number} is a lucky number.",
    "Most players pick the first card.",
    "The last winner had picked {number}.",
    "Nobody has picked {number} for a while.",
    "The {lamp} lamp is the players' favourite.",
    "Yesterday the {lamp} lamp was lit {times} times.",
    "The number of the day is {number}.",
)
_STREAM = 2
"""Sets this chance apart from what else hangs on seed and round; never 0, which seeds ignore."""


@lru_cache(maxsize=64)
def draw_tip(seed: int, index: int, numbers: range) -> str:
    """The line of one round.

    Args:
        seed: of the game.
        index: of the round, from 0.
        numbers: that may stand on cards.
    """
    rng = np.random.default_rng((seed, index, _STREAM))
    line = _LINES[int(rng.integers(len(_LINES)))]
    return line.format(
        number=int(rng.choice(numbers)),
        lamp=LAMPS[int(rng.integers(len(LAMPS)))],
        times=int(rng.integers(2, 10)),
    )
