"""Flip, a memory game: a pure, seeded state machine.

Pairs of cards lie face down. A turned card shows its face. If the second card matches the first,
the pair stays open and adds 10 to the score; otherwise the score drops by 2, and the next touch of
a face-down card turns both back. The game is won with the last pair, and lost when the number of
turned cards reaches three times the number of cards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.envs.android.minigames.minigame_rules import MinigameRules, event_rng
from agentrl.envs.android.phone_game.boxes import Box, Grid
from agentrl.envs.android.phone_game.level_settings import LevelSettings, one_of
from agentrl.envs.android.phone_game.rules import TouchTarget

SIZES = {3: (3, 2), 6: (3, 4), 8: (4, 4)}
"""Columns and rows of the table, by the number of pairs."""
MOST = 16
"""Number of cards on the largest table."""
PAIR, MISS = 10, -2


@dataclass(slots=True, kw_only=True, frozen=True)
class FlipLevel(LevelSettings):
    """The number of cards."""

    pairs: int = one_of(6, SIZES, "3, 6 or 8 (the number of pairs)")


class Flip(MinigameRules):
    """One game. For args and errors see `MinigameRules`; settings: `FlipLevel`."""

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed = seed
        self.pairs = pairs = FlipLevel(**level).pairs
        self.boxes = table(pairs)
        """The box of each card, in reading order."""
        self.cards = tuple(int(n) // 2 for n in event_rng(seed).permutation(2 * pairs))
        """The face of each card, in reading order."""
        self.found: frozenset[int] = frozenset()
        """Matched cards."""
        self.open: tuple[int, ...] = ()
        """Cards that are temporarily face up: one, or two that do not match."""
        self.seen: frozenset[int] = frozenset()
        """Cards that have been turned at least once."""
        self.score = self.turned = 0

    def touch(self, x: float, y: float) -> bool:
        """Turn the touched card."""
        return any(box.contains(x, y) and self.flip(card) for card, box in enumerate(self.boxes))

    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the cards; cards that this table lacks map to the score board, which is inert."""
        board = grid(self.pairs).cell(0, 0, SIZES[self.pairs][0])
        return {"flip": (*self.boxes, *(board,) * (MOST - len(self.boxes)))}

    def flip(self, card: int) -> bool:
        """Turn a card, given by its index in reading order. Returns False if already face up."""
        if self.done or not 0 <= card < len(self.cards) or card in self.found:
            return False
        if card in self.open:
            return False
        first = self.open if len(self.open) == 1 else ()
        self.open = (*first, card)
        self.seen |= {card}
        self.turned += 1
        if first:
            self._compare(first[0], card)
        return True

    def moves(self) -> tuple[int, ...]:
        """Return the indices of the cards that can be turned."""
        if self.done:
            return ()
        shown = {*self.found, *self.open}
        return tuple(card for card in range(len(self.cards)) if card not in shown)

    @property
    def limit(self) -> int:
        """The number of cards that may be turned."""
        return 3 * len(self.cards)

    @property
    def won(self) -> bool:
        """Whether all pairs are found."""
        return len(self.found) == len(self.cards)

    @property
    def lost(self) -> bool:
        """Whether too many cards were turned."""
        return not self.won and self.turned >= self.limit

    @property
    def faces(self) -> tuple[int | None, ...]:
        """The face that each card shows; None for a card that lies face down."""
        shown = {*self.found, *self.open}
        return tuple(face if card in shown else None for card, face in enumerate(self.cards))

    def state(self) -> dict[str, Any]:
        """Return the true state as plain JSON values.

        `worth` is the score in pairs; `known` holds the faces seen so far, as a player would
        remember them.
        """
        known = [face if card in self.seen else None for card, face in enumerate(self.cards)]
        return {
            **super().state(),
            "score": self.score,
            "worth": self.score / PAIR,
            "faces": list(self.faces),
            "known": known,
            "open": list(self.open),
            "found": sorted(self.found),
            "turned": self.turned,
            "limit": self.limit,
        }

    def _compare(self, one: int, other: int) -> None:
        if self.cards[one] == self.cards[other]:
            self.found |= {one, other}
            self.open = ()
            self.score += PAIR
        else:
            self.score += MISS


def grid(pairs: int) -> Grid:
    """Return the grid for a number of pairs: one or two score board rows, then the cards."""
    return Grid(columns=3, rows=5) if SIZES[pairs][0] == 3 else Grid(columns=4, rows=7)


def table(pairs: int) -> tuple[Box, ...]:
    """Return the boxes of the cards below the score board, in reading order."""
    columns, rows = SIZES[pairs]
    top = 1 if columns == 3 else 2
    return tuple(
        grid(pairs).cell(column, top + row) for row in range(rows) for column in range(columns)
    )
