"""The Gymnasium space of screen actions."""

from collections.abc import Collection
from typing import Any, cast

import gymnasium
import numpy as np

from agentrl.actions.reply_values import KEYS, MAX_TEXT, typed_text
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

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MAX_SAMPLED = 8


class ScreenActionSpace(gymnasium.Space[Action]):
    """Actions of the types in `agentrl.actions.screen_actions` that every phone can perform.

    Its samples are touches anywhere, short lower-case texts, and keys that stay in the app: a
    player that leaves or declares the end at random would not play.

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
        kinds = [kind for kind in self.types if kind not in (Wait, Done)]
        kind = kinds[int(random.integers(len(kinds)))]
        if issubclass(kind, PointTouch | PathTouch):
            count = 2 if issubclass(kind, PointTouch) else 4
            return cast(Action, kind(*map(float, random.random(count))))
        if kind is Key:
            return Key(("ENTER", "DEL")[int(random.integers(2))])
        count = int(random.integers(1, _MAX_SAMPLED + 1))
        return Type("".join(_LETTERS[int(index)] for index in random.integers(26, size=count)))

    def contains(self, x: Any) -> bool:
        """Return whether `x` is an action of one of the types, with valid arguments."""
        if type(x) not in self.types:
            return False
        match x:
            case PointTouch() | PathTouch():
                return all(bool(0 <= side <= 1) for point in x.points for side in point)
            case Type(text):
                try:
                    return len(typed_text(text, "text")) <= MAX_TEXT
                except ActionError:
                    return False
            case Key(name):
                return name in KEYS
            case Wait(seconds):
                return bool(np.isfinite(seconds)) and 0 <= seconds <= MAX_WAIT_S
        return True

    def __repr__(self) -> str:
        return f"ScreenActionSpace({', '.join(kind.__name__ for kind in self.types)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScreenActionSpace) and other.types == self.types

    __hash__ = None  # type: ignore[assignment]
