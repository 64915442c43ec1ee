"""Who plays: something that takes a seat at an episode and answers messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.types import Image, Message, Prompt, Reply


@dataclass(slots=True, kw_only=True, frozen=True)
class Answer:
    """One reply and the exact prompt it answers."""

    prompt: Prompt
    reply: Reply
    text: str


def answer_without_tokens(text: str, images: tuple[Image, ...]) -> Answer:
    """The answer of somebody who samples no tokens, such as a script or a person.

    Args:
        text: the reply.
        images: what was shown.
    """
    return Answer(
        prompt=Prompt(token_ids=(), images=images),
        reply=Reply(token_ids=(), logprobs=(), version=0),
        text=text,
    )


class PolicySession(Protocol):
    """One player at one episode; keeps the conversation."""

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """Reply to what the environment shows; None when the context is full.

        Args:
            message: the user's turn.
            info: the environment's truth, for scripted players alone.
        """

    def close(self) -> None:
        """The episode is over."""


class Policy(Protocol):
    """Plays any number of episodes at once."""

    def start_episode(self, instructions: str, seed: int) -> PolicySession:
        """Take a seat; `seed` names the player's own draws in this episode."""
