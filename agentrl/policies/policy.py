"""Who plays: something that takes a seat at an episode and answers messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.types import Message, Prompt, Reply


@dataclass(slots=True, kw_only=True, frozen=True)
class Answer:
    """One reply and the exact prompt it answers."""

    prompt: Prompt
    reply: Reply
    text: str


class Seat(Protocol):
    """One player at one episode; keeps the conversation."""

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """Reply to what the environment shows; None when the context is full.

        Args:
            message: the user's turn.
            info: the environment's truth, for scripted players alone.
        """

    def leave(self) -> None:
        """The episode is over."""


class Policy(Protocol):
    """Plays any number of episodes at once."""

    def sit(self, instructions: str, seed: int) -> Seat:
        """Take a seat; `seed` names the player's own draws in this episode."""
