"""A model that plays: one conversation at each seat, one engine behind all of them."""

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
    """The seed of one turn's draw, in [0, 2^63): a stable mix of the episode's and the turn."""
    digest = hashlib.blake2b(f"{episode}/{turn}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class ModelPolicy:
    """Answers with an engine.

    Args:
        engine: started.
        encoder: of the engine's model.
        history: what of the conversation a prompt shows; None shows all.
        sampling: of every reply; its seed is replaced by one for each turn.
        max_context: tokens of a prompt and its reply, at most.
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
        """Take a seat; `seed` names the draws of this episode."""
        return ModelSession(self, instructions, seed)


class ModelSession:
    """A model at one episode.

    Args:
        policy: whose engine answers.
        instructions: the system's message.
        seed: names the draws.
    """

    def __init__(self, policy: ModelPolicy, instructions: str, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._conversation = Conversation(policy.encoder, instructions, policy.history)
        self._turn = 0
        self._left = False
        policy.engine.begin_episode()

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """Sample a reply; None when it might not fit into the context.

        Raises:
            EngineError: the engine failed.
            ValueError: the message's pictures and `<image>`s do not match.
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
        """The episode is over; may be called twice."""
        if not self._left:
            self._left = True
            self._policy.engine.end_episode()
