"""The Gymnasium space of screen actions."""

from collections.abc import Collection
from typing import Any, cast

import gymnasium
import numpy as np

from agentrl.actions.dialect import type_names
from agentrl.actions.reply_values import KEYS, typed_text
from agentrl.actions.screen_action_syntax import ACTION_FORMS, FORMS, MAX_WAIT_S
from agentrl.actions.screen_actions import (
    Action,
    Done,
    Key,
    PathTouch,
    PointTouch,
    Type,
    Wait,
)
from agentrl.errors import ActionError, InvalidArgument
from agentrl.text.formatting import quoted

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MAX_SAMPLED = 8


class ScreenActionSpace(gymnasium.Space[Action]):
    """Actions of the types in `agentrl.actions.screen_actions` that every phone can perform.

    Its samples are touches anywhere, short lower-case texts, and the keys ENTER and DEL, as random
    players would otherwise leave the app or end the episode.

    Args:
        names: names of action types, such as `tap` and `type`; None accepts all.
        seed: seed of `sample`.

    Raises:
        InvalidArgument: a name is unknown, or there is none.
    """

    def __init__(self, names: Collection[str] | None = None, seed: int | None = None) -> None:
        names = tuple(FORMS) if names is None else names
        if isinstance(names, str) or not names or not set(names) <= set(FORMS):
            raise InvalidArgument("actions", names, f"a list of {', '.join(FORMS)}")
        self.types = tuple(
            kind for name, kind in zip(FORMS, ACTION_FORMS, strict=True) if name in names
        )
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Actions are not arrays."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> Action:
        """Return a random action; see the class."""
        random = self.np_random
        kinds = [kind for kind in self.types if kind not in (Wait, Done)] or [*self.types]
        kind = kinds[int(random.integers(len(kinds)))]
        if issubclass(kind, PointTouch | PathTouch):
            count = 2 if issubclass(kind, PointTouch) else 4
            return cast(Action, kind(*map(float, random.random(count))))
        if kind in (Wait, Done):
            return Wait(0.0) if kind is Wait else Done()
        if kind is Key:
            return Key(("ENTER", "DEL")[int(random.integers(2))])
        count = int(random.integers(1, _MAX_SAMPLED + 1))
        return Type("".join(_LETTERS[int(index)] for index in random.integers(26, size=count)))

    def contains(self, x: Any) -> bool:
        """Return whether `x` is an action of one of the types, with valid arguments."""
        try:
            self.check(x)
        except ActionError:
            return False
        return True

    def check(self, action: Any) -> None:
        """Check that `action` is in the space.

        Raises:
            ActionError: it has another type, or an invalid argument.
        """
        if type(action) not in self.types:
            accepted = type_names(self.types)
            raise ActionError(f"{action} is not possible here; the actions are {accepted}")
        match action:
            case PointTouch() | PathTouch():
                if not all(_is_within(side, 1.0) for point in action.points for side in point):
                    raise ActionError(f"{action} is outside the screen")
            case Type(text):
                typed_text(text, "text")
            case Key(name):
                if name not in KEYS:
                    raise ActionError(f"the key {quoted(name)} is not one of {', '.join(KEYS)}")
            case Wait(seconds):
                if not _is_within(seconds, MAX_WAIT_S):
                    raise ActionError(f"a pause lasts from 0 to {MAX_WAIT_S:g} s")

    def __repr__(self) -> str:
        return f"ScreenActionSpace({', '.join(kind.__name__ for kind in self.types)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScreenActionSpace) and other.types == self.types

    __hash__ = None  # type: ignore[assignment]


def _is_within(value: Any, limit: float) -> bool:
    """Return whether a value is a number from 0 to a limit."""
    return isinstance(value, int | float | np.number) and bool(0 <= value <= limit)
