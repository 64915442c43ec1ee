"""The words of the number game: what the model is told, and what its reply means."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentrl.devices.actions import Tap, parse_action
from agentrl.envs.android.rules import CARDS
from agentrl.errors import ActionError, ConfigError
from agentrl.types import Image, Message, Observation

MODES = ("tap", "select")
_RULES = (
    "You play the number game on a phone. One lamp is lit. Green: tap the card with the largest "
    "number. Yellow: the middle one. Red: the smallest. After each pick, tap the button below."
)
_HOW = {
    "tap": "Answer <action>tap(x, y)</action>, x and y from 0.00 (left, top) to 1.00.",
    "select": "Answer <action>select(i)</action>, i from 0 (left card) to 2.",
}
_SELECT = re.compile(r"<action>select\((\d+)\)</action>\s*$")


class NumberGameTranslator:
    """Shows the screen and nothing else; reads one tap, or one card in the mode `select`.

    Args:
        mode: `tap` or `select`, as the environment's.
        instruct: whether the rules are told before the first screen. A model that was taught the
            game by demonstrations does without.

    Raises:
        ConfigError: an unknown mode.
    """

    def __init__(self, mode: str = "tap", instruct: bool = True) -> None:
        if mode not in MODES:
            raise ConfigError(f"mode is {mode!r}; it must be one of {', '.join(MODES)}.")
        self.mode = mode
        self.instruct = instruct

    def instructions(self) -> str:
        """The rules and the grammar of replies; empty without `instruct`."""
        return f"{_RULES} {_HOW[self.mode]}" if self.instruct else ""

    def to_observation(self, observation: Image, info: Mapping[str, Any]) -> Observation:
        """The screen alone: the truth in `info` is never shown."""
        return Observation(images=(observation,))

    def to_message(self, observation: Observation) -> Message:
        """One picture, no words."""
        return Message(role="user", text="<image>", images=observation.images)

    def to_action(self, reply: str) -> NDArray[np.float32] | int:
        """Where to tap, float32[2] of the screen, or which card.

        Raises:
            ActionError: the reply holds no action, or one that this game does not take.
        """
        return _to_card(reply) if self.mode == "select" else _to_tap(reply)

    def no_action(self) -> None:
        """A reply that is no action leaves the game as it is."""
        return


def _to_tap(reply: str) -> NDArray[np.float32]:
    action = parse_action(reply)
    if not isinstance(action, Tap):
        raise ActionError(f"{action} is none of this game's actions; it takes tap(x, y).")
    return np.array([action.x, action.y], dtype=np.float32)


def _to_card(reply: str) -> int:
    match = _SELECT.search(reply)
    if match is None or int(match[1]) >= CARDS:
        raise ActionError(f"no select(0), select(1) or select(2) at the end of {reply[-80:]!r}.")
    return int(match[1])
