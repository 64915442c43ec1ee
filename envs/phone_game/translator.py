"""The words of a phone game: what the model is told, and what its reply means."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from agentrl.actions.action_grammar import FORMS
from agentrl.actions.tool_calls import Calls
from agentrl.devices import Grammar, Swipe, Tap
from agentrl.envs.phone_game.game import MODES, NamedCalls, PhoneGame
from agentrl.envs.phone_game.settings import Settings, signature
from agentrl.errors import ConfigError
from agentrl.types import IMAGE, Image, Message, Observation


class GameTranslator:
    """Shows the screen and nothing else; reads one touch, or one call in the mode `calls`.

    A class of its own for each game names the `game`.

    Args:
        mode: `touch` or `calls`, as the environment's.
        instruct: whether the rules are told before the first screen. A model that was taught the
            game by demonstrations does without.
        style: in which actions are said: `tag` or `tool` (`agentrl.actions.tool_calls`).
        **settings: of the level, as the environment's.

    Raises:
        ConfigError: an unknown mode or style, or a level that does not exist.
    """

    game: ClassVar[PhoneGame]
    modes: ClassVar[tuple[str, str]] = MODES

    def __init_subclass__(cls) -> None:
        if "game" in cls.__dict__ and "__init__" not in cls.__dict__:
            cls.__signature__ = signature(cls.__init__, cls.game.level)  # type: ignore[attr-defined]

    def __init__(
        self, mode: str = "touch", instruct: bool = True, style: str = "tag", **settings: Any
    ) -> None:
        if mode not in self.modes:
            raise ConfigError(f"mode is {mode!r}; it must be one of {', '.join(self.modes)}.")
        self.mode = mode
        self.instruct = instruct
        self.level: Settings = self.game.level.checked(**settings)
        self.calls = NamedCalls(self.game.calls, style)
        gestures = ("tap", "swipe") if self.game.swipes else ("tap",)
        self._gestures = Grammar(actions=gestures, style=style)
        self._touches = Calls((FORMS[name] for name in gestures), style).told()

    def instructions(self) -> str:
        """The rules and the grammar of replies; empty without `instruct`."""
        return f"{self.game.told(self.level)} {self.how()}" if self.instruct else ""

    def how(self) -> str:
        """How to answer in this mode."""
        if self.mode == self.modes[1]:
            return f"Answer with one of {self.calls.grammar.told()}."
        positions = "positions" if self.game.swipes else "x and y"
        return f"Answer {self._touches}, {positions} from 0.00 (left, top) to 1.00."

    def to_observation(self, observation: Image, info: Mapping[str, Any]) -> Observation:
        """The screen alone: the truth in `info` is never shown.

        Raises:
            ConfigError: the game is not of the level that the words are about.
        """
        for name, told in asdict(self.level).items():
            if info.get(name, told) != told:
                raise ConfigError(
                    f"env.translator: {name} is {told!r}, and {info[name]!r} in the game; "
                    "it must be the same in both, so give it to env.kwargs alone."
                )
        return Observation(images=(observation,))

    def to_message(self, observation: Observation) -> Message:
        """One picture, no words."""
        return Message(role="user", text=IMAGE, images=observation.images)

    def to_action(self, reply: str) -> NDArray[np.float32] | int:
        """Where to touch, float32[2] or float32[4] of the screen, or the number of a call.

        Raises:
            ActionError: the reply holds no action, or one that this game does not take.
        """
        if self.mode == self.modes[1]:
            return self.to_call(reply)
        match self._gestures.parse(reply):
            case Tap(x, y):
                touch = [x, y, x, y] if self.game.swipes else [x, y]
            case Swipe(x1, y1, x2, y2):
                touch = [x1, y1, x2, y2]
            case action:
                raise AssertionError(f"{action} is not in the grammar")
        return np.array(touch, dtype=np.float32)

    def to_call(self, reply: str) -> int:
        """The number of the call in a reply; as `to_action`."""
        return self.calls.read(reply)

    def no_action(self) -> None:
        """A reply that is no action leaves the game as it is."""
        return
