"""The translator of Sokoban: the prompt, and how replies become actions."""

from collections.abc import Mapping
from typing import Any

from agentrl.actions.action_calls import TAGS, ActionSet
from agentrl.envs.sokoban.board import MOVES
from agentrl.types import IMAGE, Message, Observation

_RULES = (
    "You play Sokoban. Push every box onto a target. You push a box by moving against it; the cell "
    "behind it must be free, and you never pull. A box in a corner is lost."
)
_TEXT = "# is a wall, $ a box, . a target, * a box on a target, @ you, + you on a target{floor}."
_IMAGE = (
    "In the picture dark cells are walls, the blue disc is you, brown squares are boxes, red "
    "diamonds targets, green squares boxes on a target."
)


class SokobanTranslator:
    """Shows the board as text or image, and parses one move.

    Args:
        style: how actions are written: `tag` or `tool`.
        instruct: whether the prompt states the rules before the first board. A model that was
            trained on demonstrations does not need them.
        observation: the same as the environment's; selects the legend in the prompt.
        spaced: whether to put a space between the characters of a row, and `_` for floor. Large
            models' tokenizers merge adjacent characters, so the model would lose count.

    Raises:
        ConfigError: unknown style.
    """

    def __init__(
        self,
        style: str = "tag",
        instruct: bool = True,
        observation: str = "text",
        spaced: bool = False,
    ) -> None:
        self._calls = ActionSet(MOVES, style)
        self.action_tag = TAGS[style]
        self._instruct = instruct
        self._observation = observation
        self._spaced = spaced

    def instructions(self) -> str:
        """Return the rules, the legend and the format of replies; empty without `instruct`."""
        if not self._instruct:
            return ""
        signs = []
        if self._observation != "image":
            signs.append(_TEXT.format(floor=", _ floor" if self._spaced else ""))
        if self._observation != "text":
            signs.append(_IMAGE)
        return " ".join([_RULES, *signs, self.answer_format()])

    def answer_format(self) -> str:
        """Return the format of replies."""
        return f"Answer with one of {self._calls.describe()}."

    def to_observation(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        """Return the image, the text, or both."""
        if isinstance(observation, str):
            return Observation(text=self._written(observation))
        if isinstance(observation, Mapping):
            return Observation(
                images=(observation["image"],), text=self._written(observation["text"])
            )
        return Observation(images=(observation,))

    def to_message(self, observation: Observation) -> Message:
        """Return the image, then the text."""
        parts = [IMAGE] * len(observation.images) + [observation.text] * bool(observation.text)
        return Message(role="user", text="\n".join(parts), images=observation.images)

    def to_action(self, reply: str) -> int:
        """Return the index of the move.

        Raises:
            ActionError: the reply has no move, several moves, or an unknown move.
        """
        return MOVES.index(self._calls.parse(reply).name)

    def no_action(self) -> None:
        """Return None: a reply without an action leaves the board unchanged."""
        return

    def _written(self, text: str) -> str:
        if not self._spaced:
            return text
        return "\n".join(" ".join(row.replace(" ", "_")) for row in text.split("\n"))
