"""A scripted player at a model's place: its answers look as if a model had sampled them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.env import Player
from agentrl.policies.chat import ChatEncoder, Conversation
from agentrl.policies.policy import Answer
from agentrl.types import Message, Prompt, Reply
from agentrl.worker import Worker


class ScriptedPolicy:
    """Answers with a player that knows the truth.

    Args:
        player: what answers.
        encoder: of the model that is to learn from it; without one, answers carry no ids and
            the pictures as they came.
        window: how many screens a prompt shows; None shows all.
    """

    def __init__(
        self, player: Player, encoder: ChatEncoder | None = None, window: int | None = None
    ) -> None:
        self.player, self.encoder, self.window = player, encoder, window

    def sit(self, instructions: str, seed: int) -> "ScriptedSeat":
        """Take a seat; `seed` names the player's draws."""
        return ScriptedSeat(self, instructions, seed)


class ScriptedSeat:
    """A scripted player at one episode.

    Args:
        policy: whose player answers.
        instructions: the system's message.
        seed: names the player's draws.
    """

    def __init__(self, policy: ScriptedPolicy, instructions: str, seed: int) -> None:
        self._player, self._encoder = policy.player, policy.encoder
        self._rng = np.random.default_rng(seed)
        self._worker = Worker("player")  # a player may hang, and must not stop the others
        self._conversation = (
            Conversation(policy.encoder, instructions, policy.window) if policy.encoder else None
        )

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer:
        """The player's reply to the state in `info`, of version 0 and probability 1."""
        text = await self._worker.call(self._player.reply, info, self._rng)
        prompt = Prompt(token_ids=(), images=message.images)
        ids: tuple[int, ...] = ()
        if self._conversation is not None and self._encoder is not None:
            prompt = self._conversation.observe(message)
            ids = self._encoder.reply_ids(text)
            self._conversation.answer(ids)
        reply = Reply(token_ids=ids, logprobs=(0.0,) * len(ids), version=0)
        return Answer(prompt=prompt, reply=reply, text=text)

    def leave(self) -> None:
        """Let the player's thread end."""
        self._worker.close()
