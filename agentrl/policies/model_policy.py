"""Policy that plays with a local engine: one conversation per episode, one engine for all."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentrl.config import History
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.conversation import Conversation
from agentrl.policies.engines.engine import Engine, Sampling
from agentrl.policies.policy import Answer
from agentrl.types import Message


def draw_seed(episode: int, turn: int) -> int:
    """The sampling seed of one turn, in [0, 2^63): a stable hash of the episode's seed and turn."""
    digest = hashlib.blake2b(f"{episode}/{turn}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class ModelPolicy:
    """Answers with an engine.

    Args:
        engine: started.
        encoder: of the engine's model.
        history: the part of the conversation in each prompt; None includes all.
        sampling: of every reply; its seed is replaced each turn.
        max_context: maximum tokens of a prompt and its reply.
    """

    def __init__(
        self,
        engine: Engine,
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
    """One episode played by a model.

    Args:
        policy: provides the engine.
        instructions: the system message.
        seed: of the sampling.
    """

    def __init__(self, policy: ModelPolicy, instructions: str, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._conversation = Conversation(policy.encoder, instructions, policy.history)
        self._turn = 0
        self._left = False
        policy.engine.begin_episode()

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """Sample a reply; None if it might not fit into the context.

        Raises:
            EngineError: the engine failed.
            ValueError: the number of `<image>` placeholders and of images differ.
        """
        policy = self._policy
        prompt = self._conversation.observe(message)
        if len(prompt.token_ids) + policy.sampling.max_new_tokens > policy.max_context:
            return None
        sampling = replace(policy.sampling, seed=draw_seed(self._seed, self._turn))
        reply = await policy.engine.generate(prompt, sampling)
        self._conversation.answer(reply.token_ids)
        self._turn += 1
        return Answer(prompt=prompt, reply=reply, text=policy.encoder.text(reply.token_ids))

    def close(self) -> None:
        """End the episode; may be called twice."""
        if not self._left:
            self._left = True
            self._policy.engine.end_episode()
