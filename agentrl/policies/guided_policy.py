"""A policy that begins its episodes with a scripted player's turns, as context."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agentrl.actions.players.player import Player, scripted_reply
from agentrl.policies.model_policy import ModelPolicy
from agentrl.policies.policy import Answer
from agentrl.types import Message
from agentrl.worker_thread import Worker


class GuidedPolicy:
    """Plays with a model after a scripted player has made the first turns of the episode.

    Args:
        model: plays the rest; it sees the player's replies as its own, but with no sampled tokens.
        player: the guide.
        name: the player's name.
        turns: number of turns that the player makes.
        seed: seed of the player's randomness, equal for episodes that begin with the same turns.
    """

    def __init__(
        self, model: ModelPolicy, player: Player, name: str, turns: int, seed: Sequence[int]
    ) -> None:
        self.model, self.player, self.name = model, player, name
        self.turns, self.seed = turns, seed

    def start_episode(self, instructions: str, seed: int) -> "GuidedSession":
        """Start an episode, with a seed for the model's sampling."""
        return GuidedSession(self, instructions, seed)


class GuidedSession:
    """One episode of a scripted player and then a model."""

    def __init__(self, policy: GuidedPolicy, instructions: str, seed: int) -> None:
        self._model = policy.model.start_episode(instructions, seed)
        self._player, self._name, self._left = policy.player, policy.name, policy.turns
        self._rng = np.random.default_rng(policy.seed)
        # A hanging player must not block the others.
        self._worker = Worker("player")

    async def answer(
        self, message: Message, info: Mapping[str, Any], observation: Any = None
    ) -> Answer | None:
        """Return the player's reply, without token ids, or later the model's."""
        if not self._left:
            return await self._model.answer(message, info, observation)
        self._left -= 1
        text = await self._worker.call(scripted_reply, self._player, observation, info, self._rng)
        answer = self._model.insert(message, text)
        return None if answer is None else replace(answer, guide=self._name)

    def close(self) -> None:
        """End the episode and stop the player's thread."""
        self._worker.close()
        self._model.close()
