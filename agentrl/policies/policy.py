"""The interface of policies, which play episodes by answering messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.types import Image, Message, Prompt, Reply


@dataclass(slots=True, kw_only=True, frozen=True)
class Answer:
    """A reply and the exact prompt it answers."""

    prompt: Prompt
    reply: Reply
    text: str
    is_truncated: bool = False
    """True if the reply reached `rollout.max_new_tokens` before its end."""
    guide: str | None = None
    """Name of the scripted player that replied in place of the model."""


def answer_without_tokens(text: str, images: tuple[Image, ...]) -> Answer:
    """Build the answer of a policy that samples no tokens, such as a script or a human.

    Args:
        text: the reply.
        images: images of the message.
    """
    return Answer(
        prompt=Prompt(token_ids=(), images=images),
        reply=Reply(token_ids=(), logprobs=(), version=0),
        text=text,
    )


class PolicySession(Protocol):
    """One episode of a policy; keeps the conversation."""

    async def answer(
        self, message: Message, info: Mapping[str, Any], observation: Any = None
    ) -> Answer | None:
        """Reply to a message from the environment; return None if the context is full.

        Args:
            message: the user message.
            info: the environment's info, used only by scripted players.
            observation: the environment's observation, used only by scripted players.
        """

    def close(self) -> None:
        """End the episode."""


class Policy(Protocol):
    """Plays any number of concurrent episodes."""

    def start_episode(self, instructions: str, seed: int) -> PolicySession:
        """Start an episode, with a seed for the policy's own randomness."""
