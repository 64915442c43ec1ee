"""Flip, a game of memory: a pure, seeded state machine.

Pairs of pictures lie face down. A turned card shows its picture; the second one of a turn either
makes a pair, which stays and adds 10 to the score, or takes 2 away, and both are turned back by the
next touch of a card that lies face down. The game is won with the last pair; it is lost when
three times as many cards have been turned as there are.
"""

from typing import Any

from agentrl.envs.minigames.chance import chance, check

SIZES = {3: (3, 2), 6: (3, 4), 8: (4, 4)}
"""Columns and rows of a table with so many pairs."""
PAIR, MISS = 10, -2


class Flip:
    """One game.

    Args:
        seed: >= 0.
        pairs: 3, 6 or 8.

    Raises:
        ValueError: a negative seed, or so many pairs have no table.
    """

    ticks_per_turn = 0

    def __init__(self, seed: int = 0, pairs: int = 6) -> None:
        check(seed)
        if pairs not in SIZES:
            raise ValueError(f"pairs is {pairs}; it must be one of {', '.join(map(str, SIZES))}.")
        self.seed, self.pairs = seed, pairs
        self.cards = tuple(int(n) // 2 for n in chance(seed).permutation(2 * pairs))
        """The picture of each card, in reading order."""
        self.found: frozenset[int] = frozenset()
        """Cards of the pairs that were found."""
        self.open: tuple[int, ...] = ()
        """Cards that show their picture for now: one, or two that do not match."""
        self.seen: frozenset[int] = frozenset()
        """Cards that have been turned at least once."""
        self.score = self.turned = 0

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

    def move(self, name: str) -> bool:
        """Turn the card of this number."""
        return name.isdecimal() and self.flip(int(name))

    def moves(self) -> tuple[str, ...]:
        """The numbers of the cards that can be turned."""
        if self.done:
            return ()
        shown = {*self.found, *self.open}
        return tuple(str(card) for card in range(len(self.cards)) if card not in shown)

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

        `known` holds the pictures that have been seen, as a player would remember them.
        """
        known = [face if card in self.seen else None for card, face in enumerate(self.cards)]
        return {
            "seed": self.seed,
            "pairs": self.pairs,
            "score": self.score,
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
