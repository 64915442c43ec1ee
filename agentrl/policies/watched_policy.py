"""A policy that somebody watches, and a person at a model's place."""

from collections.abc import Callable, Mapping
from typing import Any

from agentrl.errors import ConfigError
from agentrl.policies.policy import Answer, Policy, PolicySession, answer_without_tokens
from agentrl.types import Message
from agentrl.worker_threads import Worker


class WatchedPolicy:
    """Another policy; what it is shown is told before it answers.

    Args:
        policy: who plays.
        watch: told of each message.
    """

    def __init__(self, policy: Policy, watch: Callable[[Message], None]) -> None:
        self._policy, self._watch = policy, watch

    def start_episode(self, instructions: str, seed: int) -> "WatchedSession":
        """See Policy.sit."""
        return WatchedSession(self._policy.start_episode(instructions, seed), self._watch)


class WatchedSession:
    """A seat whose messages are told.

    Args:
        seat: who answers.
        watch: told of each message.
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
    """Somebody who is asked.

    Args:
        ask: gives the reply, and may take its time; None when nobody wants to go on.
    """

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask

    def start_episode(self, instructions: str, seed: int) -> "HumanSession":
        """Take a seat."""
        return HumanSession(self._ask)


class HumanSession:
    """Somebody at one episode.

    Args:
        ask: see HumanPolicy.
    """

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask
        self._has_played = False
        self._worker = Worker("human")

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """What is typed; the truth in `info` is not told.

        Raises:
            ConfigError: nobody wanted to begin.
        """
        text = await self._worker.call(self._ask)
        if text is None and not self._has_played:
            raise ConfigError("nothing was played")
        self._has_played = True
        return None if text is None else answer_without_tokens(text, message.images)

    def close(self) -> None:
        """The episode is over."""
        self._worker.close()
