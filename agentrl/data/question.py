"""Questions with their answers, as environments ask them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentrl.types import Image, Message


@dataclass(slots=True, kw_only=True, frozen=True)
class Question:
    """A question, its images, and the accepted answers."""

    name: str
    """Name of the row or seed, unique within its source."""
    problem: str
    """Text of the question, with one `<image>` for each of its own images."""
    accepted: tuple[str, ...]
    """All accepted answers, the canonical one first; empty if the data has no answers."""
    images: tuple[Image, ...] = ()
    system: str | None = None
    """The system message; may be empty. None for a bare text without messages, template or system
    message: the environment then explains how to answer."""
    preceding: tuple[Message, ...] = ()
    """Earlier questions and replies of the conversation, alternating, without the system message.
    Their images come first in `images`."""
    options: tuple[str, ...] = ()
    """Choices of a multiple-choice question, A first."""
    guesses: tuple[str, ...] = ()
    """Plausible answers for players that guess blindly."""
    thought: str = ""
    """The reasoning that leads to the answer, for scripted players; may be empty."""
    slip: tuple[str, str] | None = None
    """A typical mistake, for scripted players: the reasoning and the wrong answer."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Ground truth behind the question, recorded but never shown."""
    ground_truth: Any = None
    """The answer as an object that only a reward function can grade; None for text answers."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the row, for reward functions; see `columns_for_rewards`."""
    image_column: str | None = None
    """Name of the column that held the images."""

    @property
    def answer(self) -> str:
        """The canonical answer."""
        return self.accepted[0]


class QuestionSource(Protocol):
    """Provides questions; the same seed always gives the same question."""

    def question(self, seed: int) -> Question:
        """Return the question for a seed."""
