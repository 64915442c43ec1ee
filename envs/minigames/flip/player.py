"""Who plays Flip with a perfect memory of what was shown, and with nothing else."""

from collections.abc import Mapping
from typing import Any


def best(state: Mapping[str, Any]) -> int:
    """The partner of the open card, a pair that is known, or the first card never seen."""
    known, found = state["known"], state["found"]
    moves = state["moves"]
    if len(state["open"]) == 1:
        face = known[state["open"][0]]
        partners = [card for card in moves if known[card] == face]
        return int((partners or _unseen(known, moves) or moves)[0])
    closed = [card for card in range(len(known)) if card not in found]
    for card in moves:
        if known[card] is not None and any(
            known[other] == known[card] for other in closed if other != card
        ):
            return int(card)
    return int((_unseen(known, moves) or moves)[0])


def _unseen(known: list[int | None], cards: list[int]) -> list[int]:
    return [card for card in cards if known[card] is None]
