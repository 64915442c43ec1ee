"""The translator of a phone game: the prompt, and how replies become actions."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from agentrl.actions.action_grammar import FORMS
from agentrl.actions.tool_calls import ActionSet
from agentrl.devices import Grammar, Swipe, Tap
from agentrl.envs.phone_game.game import MODES, NamedCalls, PhoneGame
from agentrl.envs.phone_game.settings import LevelSettings, signature
from agentrl.errors import ConfigError, InvalidArgument
from agentrl.types import IMAGE, Image, Message, Observation


class GameTranslator:
    """Shows only the screen; parses one touch, or one call in the mode `calls`.

    Each game subclasses it and sets `game`.

    Args:
        mode: `touch` or `calls`, the same as the environment's.
        instruct: whether the prompt states the rules before the first screen. A model that was
            trained on demonstrations does not need them.
        style: how actions are written: `tag` or `tool` (`agentrl.actions.tool_calls`).
        **settings: the level, the same as the environment's.

    Raises:
        ConfigError: unknown mode or style, or an invalid level.
    """

    game: ClassVar[PhoneGame]
    modes: ClassVar[tuple[str, str]] = MODES

    def __init_subclass__(cls) -> None:
        if "game" in cls.__dict__:
            cls.__signature__ = signature(cls.__init__, cls.game.level)  # type: ignore[attr-defined]

    def __init__(
        self, mode: str = "touch", instruct: bool = True, style: str = "tag", **settings: Any
    ) -> None:
        if mode not in self.modes:
            raise InvalidArgument("mode", mode, f"one of {', '.join(self.modes)}")
        self.mode = mode
        self.instruct = instruct
        self.level: LevelSettings = self.game.level.checked(**settings)
        self.calls = NamedCalls(self.game.calls, style)
        gestures = ("tap", "swipe") if self.game.swipes else ("tap",)
        self._gestures = Grammar(actions=gestures, style=style)
        self._touches = ActionSet((FORMS[name] for name in gestures), style).describe()

    def instructions(self) -> str:
        """The rules and the format of replies; empty without `instruct`."""
        return f"{self.game.prompt_for(self.level)} {self.answer_format()}" if self.instruct else ""

    def answer_format(self) -> str:
        """The format of replies in this mode."""
        if self.mode == self.modes[1]:
            return f"Answer with one of {self.calls.grammar.describe()}."
        positions = "positions" if self.game.swipes else "x and y"
        return f"Answer {self._touches}, {positions} from 0.00 (left, top) to 1.00."

    def to_observation(self, observation: Image, info: Mapping[str, Any]) -> Observation:
        """The screen alone; the true state in `info` is never shown to the model.

        Raises:
            ConfigError: the game's level differs from the translator's.
        """
        for name, expected in asdict(self.level).items():
            if info.get(name, expected) != expected:
                raise ConfigError(
                    f"env.translator_kwargs: {name} is {expected!r}, but {info[name]!r} in the "
                    "game; both must be the same: set it in env.kwargs only."
                )
        return Observation(images=(observation,))

    def to_message(self, observation: Observation) -> Message:
        """One image, no text."""
        return Message(role="user", text=IMAGE, images=observation.images)

    def to_action(self, reply: str) -> NDArray[np.float32] | int:
        """Where to touch, float32[2] or float32[4] of the screen, or the index of a call.

        Raises:
            ActionError: the reply has no action, or one that this game does not support.
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
        """The index of the call in a reply; raises like `to_action`."""
        return self.calls.read(reply)

    def no_action(self) -> None:
        """A reply without an action leaves the game unchanged."""
        return
