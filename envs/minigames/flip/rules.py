"""Flip, a game of memory: a pure, seeded state machine.

Pairs of pictures lie face down. A turned card shows its picture; the second one of a turn either
makes a pair, which stays and adds 10 to the score, or takes 2 away, and both are turned back by the
next touch of a card that lies face down. The game is won with the last pair; it is lost when
three times as many cards have been turned as there are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.envs.minigames.chance import chance
from agentrl.envs.phone_game.box import Box, Grid
from agentrl.envs.phone_game.rules import Place, Rules
from agentrl.envs.phone_game.settings import Settings, one_of

SIZES = {3: (3, 2), 6: (3, 4), 8: (4, 4)}
"""Columns and rows of a table with so many pairs."""
MOST = 16
"""Cards of the largest table."""
PAIR, MISS = 10, -2


@dataclass(slots=True, kw_only=True, frozen=True)
class Level(Settings):
    """How many cards there are.

    Raises:
        ValueError: so many pairs have no table.
    """

    pairs: int = one_of(6, SIZES, "how many pairs there are, one of 3, 6 and 8")


class Flip(Rules):
    """One game.

    Args:
        seed: >= 0.
        **level: settings of `Level`.

    Raises:
        ValueError: a negative seed, or a level that does not exist.
    """

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed = seed
        self.pairs = pairs = Level(**level).pairs
        self.boxes = table(pairs)
        """Where each card lies, in reading order."""
        self.cards = tuple(int(n) // 2 for n in chance(seed).permutation(2 * pairs))
        """The picture of each card, in reading order."""
        self.found: frozenset[int] = frozenset()
        """Cards of the pairs that were found."""
        self.open: tuple[int, ...] = ()
        """Cards that show their picture for now: one, or two that do not match."""
        self.seen: frozenset[int] = frozenset()
        """Cards that have been turned at least once."""
        self.score = self.turned = 0

    def touch(self, x: float, y: float) -> bool:
        """Turn the card that is touched."""
        return any(box.holds(x, y) and self.flip(card) for card, box in enumerate(self.boxes))

    def places(self) -> Mapping[str, Place]:
        """The cards; of those that this table lacks, the score board, where nothing happens."""
        board = grid(self.pairs).cell(0, 0, SIZES[self.pairs][0])
        return {"flip": (*self.boxes, *(board,) * (MOST - len(self.boxes)))}

    def flip(self, card: int) -> bool:
        """Turn a card, counted from 0 in reading order; False where it shows its picture."""
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
        """The numbers of the cards that can be turned."""
        if self.done:
            return ()
        shown = {*self.found, *self.open}
        return tuple(card for card in range(len(self.cards)) if card not in shown)

    @property
    def limit(self) -> int:
        """How many cards may be turned."""
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
    def done(self) -> bool:
        """Whether the game is over."""
        return self.won or self.lost

    @property
    def faces(self) -> tuple[int | None, ...]:
        """The picture that each card shows; None where it lies face down."""
        shown = {*self.found, *self.open}
        return tuple(face if card in shown else None for card, face in enumerate(self.cards))

    def state(self) -> dict[str, Any]:
        """The truth as plain JSON values.

        `worth` is the score, a pair for 1; `known` holds the pictures that have been seen, as a
        player would remember them.
        """
        known = [face if card in self.seen else None for card, face in enumerate(self.cards)]
        return {
            "score": self.score,
            "worth": self.score / PAIR,
            "faces": list(self.faces),
            "known": known,
            "open": list(self.open),
            "found": sorted(self.found),
            "turned": self.turned,
            "limit": self.limit,
            "moves": list(self.moves()),
            "won": self.won,
            "lost": self.lost,
            "done": self.done,
        }

    def _compare(self, one: int, other: int) -> None:
        if self.cards[one] == self.cards[other]:
            self.found |= {one, other}
            self.open = ()
            self.score += PAIR
        else:
            self.score += MISS


def grid(pairs: int) -> Grid:
    """Of a table with so many pairs: a row or two of a score board, then the cards."""
    return Grid(columns=3, rows=5) if SIZES[pairs][0] == 3 else Grid(columns=4, rows=7)


def table(pairs: int) -> tuple[Box, ...]:
    """Where the cards lie, in reading order, below the score board."""
    columns, rows = SIZES[pairs]
    top = 1 if columns == 3 else 2
    return tuple(
        grid(pairs).cell(column, top + row) for row in range(rows) for column in range(columns)
    )
