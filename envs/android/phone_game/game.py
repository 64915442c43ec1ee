"""The description of a phone game, and its calls by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl.actions.action_calls import ActionCall, ActionSet
from agentrl.envs.android.phone_game.level_settings import LevelSettings
from agentrl.envs.android.phone_game.rules import GameRules
from agentrl.errors import ActionError
from agentrl.types import Image

MODES = ("touch", "calls")
"""How a model writes actions: as touches at positions, or as calls by name."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PhoneGame:
    """One game: its package, rules, drawing, actions, prompt and rewards."""

    package: str
    activity: str = ".Main"
    rules: Callable[..., GameRules]
    """Called with the seed and the level's settings as keyword arguments."""
    draw: Callable[[Any, int, int], Image]
    """Pure function `(rules, width, height)` that returns the screen, uint8[height, width, 3]."""
    level: type[LevelSettings] = LevelSettings
    calls: Mapping[str, int]
    """Maps the form of each call, such as `chop()`, `up` or `flip(card)`, to its number of choices:
    1 without an argument, else the number of the argument's values, which start at 0. The calls'
    names are the keys of `GameRules.touch_targets`."""
    swipes: bool = False
    """Whether the game takes swipes; if not, every touch is a tap."""
    prompt: str | Callable[[Any], str]
    """The rules for the prompt, or a function of the level: the goal, and what the screen hides."""
    reward_fact: str = "score"
    """The published number whose change is the reward."""
    reward_scale: float = 1.0
    """The reward for a change of 1."""
    exit_reward: float | Callable[[Mapping[str, Any]], float] = -1.0
    """The reward for leaving, as low as the worst possible reward for the rest of the game; if that
    depends on the state, a function of the true state behind the last screen."""
    metrics: tuple[str, ...] = field(default=("score",))
    """The published numbers that are copied to `info["metrics"]`."""

    def prompt_for(self, level: LevelSettings) -> str:
        """Return the rules for the prompt at a level."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt(level)


class NamedCalls:
    """The calls of a game, indexed as in a `Discrete` space, and how a model writes them."""

    def __init__(self, calls: Mapping[str, int], style: str = "tag") -> None:
        self.grammar = ActionSet(calls, style)
        self._counts = dict(zip(self.grammar.names, calls.values(), strict=True))
        self._forms = dict(zip(self.grammar.names, calls, strict=True))
        self._all = [
            (name, index if self._has_argument(name) else None)
            for name, count in self._counts.items()
            for index in range(count)
        ]

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> tuple[str, int | None]:
        """Return a call's name, and its argument if it has one."""
        return self._all[number]

    def say(self, name: str, index: int | None = None) -> str:
        """Return the text with which a model makes a call."""
        return self.grammar.format(name, *(() if index is None else (str(index),)))

    def read(self, reply: str) -> int:
        """Return the index of the call in a reply.

        Raises:
            ActionError: the reply has no call, or its call does not exist.
        """
        call = self.grammar.parse(reply)
        return self._all.index((call.name, self._argument(call)))

    def _argument(self, call: ActionCall) -> int | None:
        if not call.arguments:
            return None
        said, count = call.arguments[0], self._counts[call.name]
        if not said.isascii() or not said.isdecimal() or len(said) > 9 or int(said) >= count:
            raise ActionError(f"{call.name} takes a number from 0 to {count - 1}, not {said[:20]}")
        return int(said)

    def _has_argument(self, name: str) -> bool:
        return "()" not in (form := self._forms[name]) and form != name
