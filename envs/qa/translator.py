"""The words around a question."""

from collections.abc import Mapping
from typing import Any

from agentrl.data.answers import answer_in
from agentrl.errors import ConfigError
from agentrl.types import Message, Observation

STYLES = {
    "answer": "<think>your thoughts</think><answer>your answer</answer>",
    "boxed": r"<think>your thoughts</think>, then \boxed{your answer}",
    "either": r"<think>your thoughts</think><answer>your answer</answer>, or \boxed{your answer}",
}


class QATranslator:
    r"""Asks the question, and reads `<answer>42</answer>` or `\boxed{42}`.

    Args:
        style: how an answer is marked: `answer`, `boxed` or `either`.
        instruct: whether the model is told how to answer; a data set's own words may do that.
        instructions: these words instead of ours.

    Raises:
        ConfigError: there is no such style.
    """

    def __init__(
        self, style: str = "either", instruct: bool = True, instructions: str | None = None
    ) -> None:
        if style not in STYLES:
            raise ConfigError(f"env.translator.style={style!r}: must be one of {', '.join(STYLES)}")
        self._style, self._instruct, self._instructions = style, instruct, instructions

    def instructions(self) -> str:
        """How to answer; empty where nothing is to be said."""
        if self._instructions is not None:
            return self._instructions
        if not self._instruct:
            return ""
        return f"Think about the question, then answer it. {self.how()}"

    def how(self) -> str:
        """How to mark an answer."""
        return f"Reply as {STYLES[self._style]}."

    def to_observation(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        """The words and pictures of the question."""
        return Observation(images=tuple(observation["images"]), text=observation["text"])

    def to_message(self, observation: Observation) -> Message:
        """The question as it stands; its `<image>`s are counted where the data is read."""
        return Message(role="user", text=observation.text, images=observation.images)

    def to_action(self, reply: str) -> str:
        """The answer.

        Raises:
            ActionError: the reply holds none, or several.
        """
        return answer_in(reply, self._style)

    def no_action(self) -> str:
        """A reply without an answer is an empty one, which is always wrong."""
        return ""
