"""Policy that repeats recorded replies."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.policies.policy import Answer, answer_without_tokens
from agentrl.types import Message


class RecordedPolicy:
    """Gives one recorded reply per turn; after the last one its context counts as full.

    Args:
        replies: of one episode, in order.
    """

    def __init__(self, replies: Sequence[str]) -> None:
        self._replies = tuple(replies)

    def start_episode(self, instructions: str, seed: int) -> "RecordedSession":
        """Start an episode; the seed is not used."""
        return RecordedSession(self._replies)


class RecordedSession:
    """One episode with recorded replies.

    Args:
        replies: see RecordedPolicy.
    """

    def __init__(self, replies: Sequence[str]) -> None:
        self._replies = iter(replies)

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """The next reply; None after the last."""
        text = next(self._replies, None)
        return None if text is None else answer_without_tokens(text, message.images)

    def close(self) -> None:
        """No-op."""
