"""The translator of questions: the prompt, and how replies become answers."""

from collections.abc import Mapping
from typing import Any

from agentrl.data.grading import extract_answer
from agentrl.errors import ConfigError
from agentrl.types import Message, Observation

STYLES = {
    "answer": "Reply as <think>your thoughts</think><answer>your answer</answer>.",
    "boxed": r"Reply as <think>your thoughts</think>, then \boxed{your answer}.",
    "either": r"Reply as <think>your thoughts</think><answer>your answer</answer>, or "
    r"\boxed{your answer}.",
    "text": "Reply with your answer and nothing else.",
}


class QATranslator:
    r"""Asks the question, and parses `<answer>42</answer>` or `\boxed{42}`.

    Args:
        style: how an answer is marked: `answer`, `boxed`, `either`, or `text` if it is the whole
            reply, except for thoughts in a `<think>` tag.
        instruct: whether the prompt explains how to answer; a data set's questions may do that.
        instructions: replaces the default instructions.

    Raises:
        ConfigError: unknown style.
    """

    def __init__(
        self, style: str = "either", instruct: bool = True, instructions: str | None = None
    ) -> None:
        if style not in STYLES:
            raise ConfigError(
                f"env.translator_kwargs.style={style!r}: must be one of {', '.join(STYLES)}"
            )
        self._style, self._instruct, self._instructions = style, instruct, instructions

    def instructions(self) -> str:
        """How to answer; may be empty."""
        if self._instructions is not None:
            return self._instructions
        if not self._instruct:
            return ""
        first = "" if self._style == "text" else "Think about the question, then answer it. "
        return f"{first}{self.answer_format()}"

    def answer_format(self) -> str:
        """How to mark an answer."""
        return STYLES[self._style]

    def to_observation(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        """The text and images of the question."""
        return Observation(images=tuple(observation["images"]), text=observation["text"])

    def to_message(self, observation: Observation) -> Message:
        """The question unchanged; its `<image>` markers were checked when the data was read."""
        return Message(role="user", text=observation.text, images=observation.images)

    def to_action(self, reply: str) -> str:
        """The answer.

        Raises:
            ActionError: the reply has no answer, or several.
        """
        return extract_answer(reply, self._style)

    def no_action(self) -> str:
        """A reply without an answer counts as an empty answer, which is always wrong."""
        return ""
