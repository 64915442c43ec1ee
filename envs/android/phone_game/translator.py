"""The translator of a phone game: the prompt, and how replies become actions."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from agentrl.actions.dialect import Dialect
from agentrl.actions.dialects.tag import Tag
from agentrl.actions.dialects.tool import Tool
from agentrl.actions.screen_action_converter import touch_of, touch_values
from agentrl.actions.screen_actions import ScreenAction, Swipe, Tap
from agentrl.actions.screen_dialogue import ScreenDialogue
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_action_calls import MODES, NamedCalls
from agentrl.envs.android.phone_game.level_settings import LevelSettings, signature
from agentrl.errors import ActionError, ConfigError, InvalidArgument
from agentrl.types import IMAGE, Image, Message, Observation


class GameTranslator:
    """Shows only the screen; parses one touch, or one call in the mode `calls`.

    Each game subclasses it and sets `game`.

    Args:
        mode: `touch` or `calls`, the same as the environment's.
        instruct: whether the prompt states the rules before the first screen. A model that was
            trained on demonstrations does not need them.
        style: how actions are written: `tag` or `tool` (`agentrl.actions.action_calls`).
            `env.dialect` can select another dialect for touches.
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
        self._settings = asdict(self.level)
        self.calls = NamedCalls(self.game.calls, style)
        self._gestures = (Tap, Swipe) if self.game.swipes else (Tap,)
        self._own_dialect = Tool() if style == "tool" else Tag()
        self._dialogue = self._in(self._own_dialect)

    @property
    def dialect(self) -> Dialect:
        """How touches are written; may be replaced before the first message.

        Raises:
            ConfigError: a dialect was set in the mode `calls`.
        """
        return self._dialogue.dialect

    @dialect.setter
    def dialect(self, dialect: Dialect) -> None:
        if self.mode == self.modes[1]:
            raise ConfigError(
                f"env.dialect: no dialect applies with mode={self.mode}, where actions are calls "
                f"by name; set env.kwargs.mode={self.modes[0]}"
            )
        self._dialogue = self._in(dialect)

    @property
    def action_tag(self) -> str | None:
        """The tag around an action; None if the dialect allows only one action in a reply."""
        return (
            self._own_dialect.action_tag if self.mode == self.modes[1] else self.dialect.action_tag
        )

    def _in(self, dialect: Dialect) -> ScreenDialogue:
        task = self.game.prompt_for(self.level)
        return ScreenDialogue(dialect, task, self._gestures, self.instruct)

    def begin_episode(self) -> None:
        """Prepare for an episode; called before each."""
        self._dialogue.begin_episode()

    def instructions(self) -> str:
        """Return the rules and the format of replies; empty without `instruct`."""
        if not self.instruct:
            return ""
        if self.mode == self.modes[1]:
            return f"{self.game.prompt_for(self.level)} {self.answer_format()}"
        return self._dialogue.instructions()

    def answer_format(self) -> str:
        """Return the format of replies in this mode; human players may always write touches."""
        if self.mode == self.modes[1]:
            return f"Answer with one of {self.calls.grammar.describe()}."
        return self._own_dialect.answer_format(self._gestures, self._dialogue.screen)

    def to_observation(self, observation: Image, info: Mapping[str, Any]) -> Observation:
        """Return the screen alone; the model never sees the true state in `info`.

        Raises:
            ConfigError: the game's level differs from the translator's.
        """
        for name, expected in self._settings.items():
            if info.get(name, expected) != expected:
                raise ConfigError(
                    f"env.translator_kwargs: {name} is {expected!r}, but {info[name]!r} in the "
                    "game; the two must match, so set it in env.kwargs only."
                )
        self.see((observation,))
        return Observation(images=(observation,))

    def see(self, images: Sequence[Image]) -> None:
        """Remember the newest screen; called by `to_observation`."""
        self._dialogue.see(images[-1])

    def to_message(self, observation: Observation) -> Message:
        """Return one image, with any text that the dialect puts around it."""
        if self.mode == self.modes[1]:
            return Message(role="user", text=IMAGE, images=observation.images)
        return self._dialogue.message(IMAGE, observation.images)

    def to_action(self, reply: str) -> NDArray[np.float32] | int:
        """Parse a reply to a touch on the screen, float32[2] or float32[4], or a call's index.

        Raises:
            ActionError: the reply has no action, or this game does not support its action.
        """
        if self.mode == self.modes[1]:
            return self.to_call(reply)
        touch = touch_values(self._dialogue.parse(reply), 4 if self.game.swipes else 2)
        return np.array(touch, dtype=np.float32)

    def spell(self, action: ScreenAction, thought: str = "") -> str:
        """Return the reply that performs a touch on the newest screen.

        Raises:
            ActionError: the dialect cannot express the touch, or the mode is `calls`.
        """
        if self.mode == self.modes[1]:
            raise ActionError("touches are not actions in this mode")
        return self._dialogue.spell(action, thought)

    def to_reply(self, action: Any, thought: str = "") -> str:
        """Return the reply that `to_action` parses as this action."""
        if self.mode == self.modes[1]:
            return self.calls.say(*self.calls[int(action)])
        return self.spell(touch_of(action), thought)

    def to_call(self, reply: str) -> int:
        """Return the index of the call in a reply; raises like `to_action`."""
        return self.calls.read(reply)

    def no_action(self) -> None:
        """Return None: a reply without an action leaves the game unchanged."""
        return
