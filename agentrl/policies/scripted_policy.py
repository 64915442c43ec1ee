"""A policy that plays with a scripted player, whose replies can be encoded as if sampled."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from agentrl.actions.players.player import Player, scripted_reply
from agentrl.config import History
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.policy import Answer, answer_without_tokens
from agentrl.text.formatting import quoted
from agentrl.types import Image, Message, Reply
from agentrl.worker_thread import Worker


class ScriptedPolicy:
    """Plays with a scripted player, which knows the true state.

    Args:
        player: provides the replies.
        encoder: encoder of the model to train on the replies; without an encoder, answers have no
            token ids.
        history: part of the conversation to include in each prompt; None includes all.
        scale: resizes images if there is no encoder; None keeps their size.
        max_tokens: maximum number of tokens in a reply; None for no limit.
    """

    def __init__(
        self,
        player: Player,
        encoder: ChatEncoder | None = None,
        history: History | None = None,
        scale: Callable[[Image], Image] | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.player, self.encoder = player, encoder
        self.history, self.scale, self.max_tokens = history, scale, max_tokens

    def start_episode(self, instructions: str, seed: int) -> "ScriptedSession":
        """Start an episode, with a seed for the player's randomness."""
        return ScriptedSession(self, instructions, seed)


class ScriptedSession:
    """One episode of a scripted player."""

    def __init__(self, policy: ScriptedPolicy, instructions: str, seed: int) -> None:
        self._player, self._encoder, self._scale = policy.player, policy.encoder, policy.scale
        self._max_tokens = policy.max_tokens
        self._rng = np.random.default_rng(seed)
        # A hanging player must not block the others.
        self._worker = Worker("player")
        self._conversation = (
            Conversation(policy.encoder, instructions, policy.history) if policy.encoder else None
        )

    async def answer(
        self, message: Message, info: Mapping[str, Any], observation: Any = None
    ) -> Answer:
        """Return the player's reply to a state, with version 0 and probability 1."""
        text = await self._worker.call(scripted_reply, self._player, observation, info, self._rng)
        if self._conversation is None or self._encoder is None:
            images = message.all_images
            shown = tuple(map(self._scale, images)) if self._scale else images
            return answer_without_tokens(text, shown)
        return encode_as_sampled(self._conversation, self._encoder, message, text, self._max_tokens)

    def close(self) -> None:
        """Stop the player's thread."""
        self._worker.close()


def encode_as_sampled(
    conversation: Conversation,
    encoder: ChatEncoder,
    message: Message,
    text: str,
    max_tokens: int | None = None,
) -> Answer:
    """Encode a reply as if a model had sampled it, with version 0 and probability 1."""
    prompt = conversation.observe(message)
    ids = reply_ids_within(max_tokens, encoder, text)
    conversation.answer(ids)
    reply = Reply(token_ids=ids, logprobs=(0.0,) * len(ids), version=0)
    return Answer(prompt=prompt, reply=reply, text=text)


def reply_ids_within(max_tokens: int | None, encoder: ChatEncoder, text: str) -> tuple[int, ...]:
    """Encode a reply for training; raise ConfigError if it exceeds the token limit."""
    ids = encoder.reply_ids(text)
    if max_tokens is not None and len(ids) > max_tokens:
        raise ConfigError(
            f"rollout.max_new_tokens={max_tokens} is too low; the warm start trains on "
            f"{quoted(text)}, which has {len(ids)} tokens. Set it somewhat higher than that"
        )
    return ids
