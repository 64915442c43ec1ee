"""Policies that play with a model in a local engine or on a chat completions server."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl.config import History
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation, PromptHistory
from agentrl.policies.engines.chat_completions_format import Part, encode_message
from agentrl.policies.engines.engine import ChatEngine, Sampling, TokenEngine, check_reply
from agentrl.policies.policy import Answer
from agentrl.types import Image, Message, Prompt, Reply


def turn_seed(episode: int, turn: int) -> int:
    """Derive a turn's sampling seed, in [0, 2^63), from a stable hash of episode seed and turn."""
    digest = hashlib.blake2b(f"{episode}/{turn}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class ModelPolicy:
    """Plays with a local engine."""

    def __init__(
        self,
        engine: TokenEngine,
        encoder: ChatEncoder,
        *,
        history: History | None = None,
        sampling: Sampling | None = None,
        max_context: int = 4096,
    ) -> None:
        self.engine, self.encoder = engine, encoder
        self.history, self.max_context = history, max_context
        self.sampling = sampling or Sampling()

    def start_episode(self, instructions: str, seed: int) -> "ModelSession":
        """Start an episode, with a seed for its sampling."""
        return ModelSession(self, instructions, seed)


class ModelSession:
    """One episode played by a model."""

    def __init__(self, policy: ModelPolicy, instructions: str, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._conversation = Conversation(policy.encoder, instructions, policy.history)
        self._turn = 0
        self._closed = False
        policy.engine.begin_episode()

    async def answer(
        self, message: Message, info: Mapping[str, Any], observation: Any = None
    ) -> Answer | None:
        """Sample a reply; return None if it might not fit into the context."""
        policy = self._policy
        prompt = self._conversation.observe(message)
        if len(prompt.token_ids) + policy.sampling.max_new_tokens > policy.max_context:
            return None
        sampling = replace(policy.sampling, seed=turn_seed(self._seed, self._turn))
        reply = await policy.engine.generate(prompt, sampling)
        check_reply(reply, policy.encoder.vocab_size)
        self._conversation.answer(reply.token_ids)
        self._turn += 1
        ids, ends = reply.token_ids, {*policy.encoder.eos_token_ids, *sampling.stop_token_ids}
        return Answer(
            prompt=prompt,
            reply=reply,
            text=policy.encoder.text(ids),
            is_truncated=len(ids) >= sampling.max_new_tokens and ids[-1] not in ends,
        )

    def insert(self, message: Message, text: str) -> Answer | None:
        """Add a turn that the model did not play; return None if the context is full."""
        policy = self._policy
        prompt, ids = self._conversation.observe(message), policy.encoder.reply_ids(text)
        if len(prompt.token_ids) + len(ids) > policy.max_context:
            return None
        self._conversation.answer(ids)
        reply = Reply(token_ids=(), logprobs=(), version=0)
        return Answer(prompt=prompt, reply=reply, text=text)

    def close(self) -> None:
        """End the episode. Idempotent."""
        if not self._closed:
            self._closed = True
            self._policy.engine.end_episode()


class ChatPolicy:
    """Plays with a server's model; needs no local model."""

    def __init__(
        self,
        engine: ChatEngine,
        *,
        history: History | None = None,
        sampling: Sampling | None = None,
        scale: Callable[[Image], Image] | None = None,
    ) -> None:
        self.engine, self.history, self.scale = engine, history, scale
        self.sampling = sampling or Sampling()

    def start_episode(self, instructions: str, seed: int) -> "ChatSession":
        """Start an episode, with a seed for its sampling."""
        return ChatSession(self, instructions, seed)


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """A message and its reply (None until it arrives) in the API's format."""

    message: Message
    """The message, with its images resized for sending."""
    encoded: dict[str, Part] = field(default_factory=dict)
    """The message in the API's format, keyed by its text in the prompt."""
    answer: Part | None = None


def _scaled(message: Message, scale: Callable[[Image], Image]) -> Message:
    return replace(
        message,
        images=tuple(map(scale, message.images)),
        preceding=tuple(_scaled(one, scale) for one in message.preceding),
    )


class ChatSession:
    """One episode played by a server's model."""

    def __init__(self, policy: ChatPolicy, instructions: str, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._history = PromptHistory(policy.history)
        self._preamble = self._system(instructions)
        self._images: tuple[Image, ...] = ()
        """Images of the messages that precede the episode's first message."""
        self._exchanges: list[_Exchange] = []

    async def answer(
        self, message: Message, info: Mapping[str, Any], observation: Any = None
    ) -> Answer | None:
        """Request a reply; return None if the conversation exceeds the model's context."""
        policy = self._policy
        if message.system is not None and not self._exchanges:
            self._preamble = self._system(message.system)
        # Use a thread, because scaling and compressing a screen takes tens of milliseconds.
        messages, images = await asyncio.to_thread(
            self._messages, self._history.with_memory(message)
        )
        sampling = replace(policy.sampling, seed=turn_seed(self._seed, len(self._exchanges) - 1))
        reply = await policy.engine.chat(messages, sampling)
        if reply is None:
            return None
        self._exchanges[-1].answer = {"role": "assistant", "content": reply.text}
        self._history.remember(reply.text)
        return Answer(
            prompt=Prompt(token_ids=reply.prompt_ids, images=images),
            reply=Reply(
                token_ids=reply.reply_ids,
                logprobs=reply.logprobs,
                version=0,
                top_logprobs=reply.top_logprobs,
            ),
            text=reply.text,
            is_truncated=reply.finish_reason == "length",
        )

    def _system(self, instructions: str) -> list[Part]:
        text = self._history.instructions(instructions)
        return [{"role": "system", "content": text}] if text else []

    def _messages(self, message: Message) -> tuple[list[Part], tuple[Image, ...]]:
        """Return a request's messages, ending with `message`, and their images."""
        scale = self._policy.scale
        if scale is not None:
            message = _scaled(message, scale)
        if not self._exchanges:
            self._preamble = [*self._preamble, *map(encode_message, message.preceding)]
            self._images = tuple(image for one in message.preceding for image in one.images)
        self._exchanges.append(_Exchange(message=message))
        exchanges = self._history.visible(self._exchanges)
        messages = [*self._preamble]
        images = self._images
        for position, exchange in enumerate(exchanges):
            shown = self._history.shown(exchange.message, position, len(exchanges))
            if shown is not None:
                if shown.text not in exchange.encoded:
                    exchange.encoded[shown.text] = encode_message(shown)
                messages.append(exchange.encoded[shown.text])
                images += shown.images
            messages += [exchange.answer] if exchange.answer else []
        return messages, images

    def close(self) -> None:
        """Do nothing, because the server keeps no state between turns."""
