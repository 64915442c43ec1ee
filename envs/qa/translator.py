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
        instruct: whether to add a system message that explains how to answer, if the question has
            no system message. None adds it only to plain-text questions, because questions given as
            messages or made from a template are complete.
        instructions: replaces the text of that system message, and adds it to every question that
            has no system message.

    Raises:
        ConfigError: unknown style, or instructions together with `instruct=False`.
    """

    def __init__(
        self, style: str = "either", instruct: bool | None = None, instructions: str | None = None
    ) -> None:
        if style not in STYLES:
            raise ConfigError(
                f"env.translator_kwargs.style={style!r}: must be one of {', '.join(STYLES)}"
            )
        if instructions is not None and instruct is False:
            raise ConfigError(
                f"env.translator_kwargs.instructions={instructions!r:.40} is not shown with "
                "instruct=false; remove one of them"
            )
        self._style, self._instructions = style, instructions
        self._instruct = True if instructions is not None else instruct

    def system_message(self, info: Mapping[str, Any]) -> str:
        """Return the question's own system message, or how to answer if the question needs it."""
        own = info.get("system")
        if own or (own is not None and not self._instruct):
            return str(own)
        return self.instructions()

    def preceding_messages(self, info: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return the earlier turns of the question's conversation."""
        return tuple(
            Message(role=one["role"], text=one["content"]) for one in info.get("preceding", ())
        )

    def instructions(self) -> str:
        """Return the instructions for a plain-text question; may be empty."""
        if self._instructions is not None:
            return self._instructions
        if self._instruct is False:
            return ""
        first = "" if self._style == "text" else "Think about the question, then answer it. "
        return f"{first}{self.answer_format()}"

    def answer_format(self) -> str:
        """Return how to mark an answer."""
        return STYLES[self._style]

    def to_observation(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        """Return the text and images of the question."""
        return Observation(images=tuple(observation["images"]), text=observation["text"])

    def to_message(self, observation: Observation) -> Message:
        """Return the question; its `<image>` markers were checked when the data was read."""
        return Message(role="user", text=observation.text, images=observation.images)

    def to_action(self, reply: str) -> str:
        """Extract the answer.

        Raises:
            ActionError: the reply has no answer, or several answers.
        """
        return extract_answer(reply, self._style)

    def no_action(self) -> str:
        """Return an empty answer, which is always wrong."""
        return ""
