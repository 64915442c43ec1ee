"""The layout of the number game, shared by drawing, touches and players.

The whole screen, including the phone's status bar, is a grid of three columns and five equal rows:
score board; lamps; instruction and feedback; cards; button. Scaled to a multiple of 3x5 patches,
each lamp and each card covers whole patches of the vision model. Four cards divide their row into
four columns. See `_moved` for the layout of levels with `moved`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl.envs.android.number_game.game_state import NumberGameState
from agentrl.envs.android.phone_game.boxes import Box, Grid, tap_at

COLUMNS, ROWS = 3, 5


def cell(
    column: float, row: float, columns: float = 1.0, margin: float = 0.02, of: int = COLUMNS
) -> Box:
    """Return the box of adjacent cells of the screen's grid, in a row of `of` columns."""
    return Grid(columns=of, rows=ROWS).cell(column, row, columns, margin=margin)


BOARD = cell(0, 0, COLUMNS)
LAMPS = tuple(cell(column, 1, margin=0.03) for column in range(COLUMNS))
WORDS = cell(0, 2, COLUMNS)
CARDS = tuple(cell(column, 3) for column in range(COLUMNS))
FOUR_CARDS = tuple(cell(column, 3, of=4) for column in range(4))
BUTTON = cell(0, 4, COLUMNS, margin=0.04)


_MOVABLE = (2, 3, 4)
"""The rows of the grid below the score board and the lamps."""
_STREAM = 1
"""Separates this random stream from others with the same seed; NumPy would ignore a final 0."""


@dataclass(slots=True, kw_only=True, frozen=True)
class RoundLayout:
    """The boxes of everything that `moved` moves."""

    words: Box
    cards: tuple[Box, ...]
    """Boxes of the cards in reading order: from top to bottom, then from left to right."""
    button: Box

    def taps(self) -> dict[str, Any]:
        """Return the positions to tap, as plain values in [0, 1] of the whole screen."""
        cards = [list(tap_at(box)) for box in self.cards]
        return {"cards": cards, "button": list(tap_at(self.button))}


FIXED_LAYOUTS = {
    3: RoundLayout(words=WORDS, cards=CARDS, button=BUTTON),
    4: RoundLayout(words=WORDS, cards=FOUR_CARDS, button=BUTTON),
}
"""The fixed layout, by the number of cards."""


def round_layout(game: NumberGameState) -> RoundLayout:
    """Return the layout of the current round."""
    if not game.level.moved:
        return FIXED_LAYOUTS[game.level.cards]
    return _moved(game.level.cards, game.seed, game.index)


@lru_cache(maxsize=64)
def _moved(cards: int, seed: int, index: int) -> RoundLayout:
    """Draw a layout: text in one row, the button in two adjacent cells, cards in free cells.

    Every card has its own cell of the grid, so nothing overlaps.
    """
    rng = np.random.default_rng((seed, index, _STREAM))
    words, row, other = (int(row) for row in rng.permutation(_MOVABLE))
    column = int(rng.integers(COLUMNS - 1))
    free = [(row, 2 - 2 * column), *((other, c) for c in range(COLUMNS))]
    taken = rng.choice(len(free), size=cards, replace=False)
    return RoundLayout(
        words=cell(0, words, COLUMNS),
        cards=tuple(cell(c, r) for r, c in sorted(free[int(i)] for i in taken)),
        button=cell(column, row, 2, margin=0.04),
    )
