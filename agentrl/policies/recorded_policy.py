"""A player who says again what was said before."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.policies.policy import Answer, answer_without_tokens
from agentrl.types import Message


class RecordedPolicy:
    """Says these replies, one a turn; after the last one its context is full.

    Args:
        replies: of one episode, in order.
    """

    def __init__(self, replies: Sequence[str]) -> None:
        self._replies = tuple(replies)

    def start_episode(self, instructions: str, seed: int) -> "RecordedSession":
        """Take a seat; nothing is drawn."""
        return RecordedSession(self._replies)


class RecordedSession:
    """The replies at one episode.

    Args:
        replies: see RecordedPolicy.
    """

    def __init__(self, replies: Sequence[str]) -> None:
        self._replies = iter(replies)

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """The next reply; None when there is none left."""
        text = next(self._replies, None)
        return None if text is None else answer_without_tokens(text, message.images)

    def close(self) -> None:
        """Nothing to end."""
