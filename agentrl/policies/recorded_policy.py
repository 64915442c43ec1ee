"""A player who says again what was said before."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.policies.policy import Answer, said
from agentrl.types import Message


class RecordedPolicy:
    """Says these replies, one a turn; after the last one its context is full.

    Args:
        replies: of one episode, in order.
    """

    def __init__(self, replies: Sequence[str]) -> None:
        self._replies = tuple(replies)

    def sit(self, instructions: str, seed: int) -> "RecordedSeat":
        """Take a seat; nothing is drawn."""
        return RecordedSeat(self._replies)


class RecordedSeat:
    """The replies at one episode.

    Args:
        replies: see RecordedPolicy.
    """

    def __init__(self, replies: Sequence[str]) -> None:
        self._replies = iter(replies)

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """The next reply; None when there is none left."""
        text = next(self._replies, None)
        return None if text is None else said(text, message.images)

    def leave(self) -> None:
        """Nothing to end."""
