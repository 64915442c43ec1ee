"""A scripted player at a model's place: its answers look as if a model had sampled them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from agentrl.config import History
from agentrl.env import Player
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.conversation import Conversation
from agentrl.policies.policy import Answer, answer_without_tokens
from agentrl.text import quoted
from agentrl.types import Image, Message, Reply
from agentrl.worker_threads import Worker


class ScriptedPolicy:
    """Answers with a player that knows the truth.

    Args:
        player: what answers.
        encoder: of the model that is to learn from it; without one, answers carry no ids.
        history: what of the conversation a prompt shows; None shows all.
        scale: of the pictures of a message, where there is no encoder; None keeps them.
        most_tokens: of one answer, where a model is to learn from it; None for any number.
    """

    def __init__(
        self,
        player: Player,
        encoder: ChatEncoder | None = None,
        history: History | None = None,
        scale: Callable[[Image], Image] | None = None,
        most_tokens: int | None = None,
    ) -> None:
        self.player, self.encoder = player, encoder
        self.history, self.scale, self.most_tokens = history, scale, most_tokens

    def start_episode(self, instructions: str, seed: int) -> "ScriptedSession":
        """Take a seat; `seed` names the player's draws."""
        return ScriptedSession(self, instructions, seed)


class ScriptedSession:
    """A scripted player at one episode.

    Args:
        policy: whose player answers.
        instructions: the system's message.
        seed: names the player's draws.
    """

    def __init__(self, policy: ScriptedPolicy, instructions: str, seed: int) -> None:
        self._player, self._encoder, self._scale = policy.player, policy.encoder, policy.scale
        self._most_tokens = policy.most_tokens
        self._rng = np.random.default_rng(seed)
        self._worker = Worker("player")  # a player may hang, and must not stop the others
        self._conversation = (
            Conversation(policy.encoder, instructions, policy.history) if policy.encoder else None
        )

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer:
        """The player's reply to the state in `info`, of version 0 and probability 1.

        Raises:
            ConfigError: it is longer than who learns from it may answer, and would never end.
        """
        text = await self._worker.call(self._player.reply, info, self._rng)
        if self._conversation is None or self._encoder is None:
            shown = tuple(map(self._scale, message.images)) if self._scale else message.images
            return answer_without_tokens(text, shown)
        return encode_as_sampled(
            self._conversation, self._encoder, message, text, self._most_tokens
        )

    def close(self) -> None:
        """Let the player's thread end."""
        self._worker.close()


def encode_as_sampled(
    conversation: Conversation,
    encoder: ChatEncoder,
    message: Message,
    text: str,
    most_tokens: int | None = None,
) -> Answer:
    """A reply as if a model had sampled it, of version 0 and probability 1.

    Args:
        conversation: so far; goes on with both.
        encoder: of the model that is to learn from it.
        message: what is answered.
        text: the reply.
        most_tokens: of the reply; None for any number.

    Raises:
        ConfigError: it is longer than who learns from it may answer, and would never end.
        ValueError: the message's pictures and `<image>`s do not match.
    """
    prompt = conversation.observe(message)
    ids = encoder.reply_ids(text)
    if most_tokens is not None and len(ids) > most_tokens:
        raise ConfigError(
            f"rollout.max_new_tokens={most_tokens}: {quoted(text)}, which the warm start teaches, "
            f"has {len(ids)} tokens; allow the model as many and some more"
        )
    conversation.answer(ids)
    reply = Reply(token_ids=ids, logprobs=(0.0,) * len(ids), version=0)
    return Answer(prompt=prompt, reply=reply, text=text)
