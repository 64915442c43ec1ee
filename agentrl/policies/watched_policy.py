"""Policies for interactive use: one whose messages are watched, and a human player."""

from collections.abc import Callable, Mapping
from typing import Any

from agentrl.errors import ConfigError
from agentrl.policies.policy import Answer, Policy, PolicySession, answer_without_tokens
from agentrl.types import Message
from agentrl.worker_threads import Worker


class WatchedPolicy:
    """Wraps a policy and reports each message before it answers.

    Args:
        policy: plays.
        watch: called with each message.
    """

    def __init__(self, policy: Policy, watch: Callable[[Message], None]) -> None:
        self._policy, self._watch = policy, watch

    def start_episode(self, instructions: str, seed: int) -> "WatchedSession":
        """See Policy.sit."""
        return WatchedSession(self._policy.start_episode(instructions, seed), self._watch)


class WatchedSession:
    """One watched episode.

    Args:
        session: gives the answers.
        watch: called with each message.
    """

    def __init__(self, session: PolicySession, watch: Callable[[Message], None]) -> None:
        self._session, self._watch = session, watch

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """See PolicySession.answer."""
        self._watch(message)
        return await self._session.answer(message, info)

    def close(self) -> None:
        """See PolicySession.leave."""
        self._session.close()


class HumanPolicy:
    """A human player.

    Args:
        ask: returns the reply, and may block; None to stop.
    """

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask

    def start_episode(self, instructions: str, seed: int) -> "HumanSession":
        """Start an episode; the seed is not used."""
        return HumanSession(self._ask)


class HumanSession:
    """One episode of a human player.

    Args:
        ask: see HumanPolicy.
    """

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask
        self._has_played = False
        self._worker = Worker("human")

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """The typed reply; `info` is not shown.

        Raises:
            ConfigError: the player stopped before the first turn.
        """
        text = await self._worker.call(self._ask)
        if text is None and not self._has_played:
            raise ConfigError("nothing was played")
        self._has_played = True
        return None if text is None else answer_without_tokens(text, message.images)

    def close(self) -> None:
        """End the episode."""
        self._worker.close()
