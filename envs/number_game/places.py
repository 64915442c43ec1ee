"""Where a round's cards, button and words lie: in their places, or moved by seed and round."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl.envs.number_game import layout
from agentrl.envs.number_game.rules import NumberGame
from agentrl.envs.phone_game.box import Box, tap_at

_MOVABLE = (2, 3, 4)
"""The rows of the grid that are neither the score board's nor the lamps'."""
_STREAM = 1
"""Sets this chance apart from what else hangs on seed and round; never 0, which seeds ignore."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Places:
    """The boxes of what `moved` moves."""

    words: Box
    cards: tuple[Box, ...]
    """In reading order: the upper ones first, from left to right."""
    button: Box

    def taps(self) -> dict[str, Any]:
        """Where to tap, as plain values in [0, 1] of the whole screen."""
        cards = [list(tap_at(box)) for box in self.cards]
        return {"cards": cards, "button": list(tap_at(self.button))}


STILL = {
    3: Places(words=layout.WORDS, cards=layout.CARDS, button=layout.BUTTON),
    4: Places(words=layout.WORDS, cards=layout.FOUR_CARDS, button=layout.BUTTON),
}
"""The places by the number of cards, where nothing is moved."""


def places(game: NumberGame) -> Places:
    """Where they lie in the round on the screen."""
    if not game.level.moved:
        return STILL[game.level.cards]
    return _moved(game.level.cards, game.seed, game.index)


@lru_cache(maxsize=64)
def _moved(cards: int, seed: int, index: int) -> Places:
    """The words in one row, the button in two neighbouring cells of the others, the cards around.

    Every card has a cell of the grid for itself, so that nothing overlaps.
    """
    rng = np.random.default_rng((seed, index, _STREAM))
    words, row, other = (int(row) for row in rng.permutation(_MOVABLE))
    column = int(rng.integers(layout.COLUMNS - 1))
    free = [(row, 2 - 2 * column), *((other, c) for c in range(layout.COLUMNS))]
    taken = rng.choice(len(free), size=cards, replace=False)
    return Places(
        words=layout.cell(0, words, layout.COLUMNS),
        cards=tuple(layout.cell(c, r) for r, c in sorted(free[int(i)] for i in taken)),
        button=layout.cell(column, row, 2, margin=0.04),
    )
