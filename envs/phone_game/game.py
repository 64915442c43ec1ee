"""What makes rules a game on a phone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl.actions.tool_calls import Call, Calls
from agentrl.envs.phone_game.rules import Rules
from agentrl.envs.phone_game.settings import Settings
from agentrl.errors import ActionError
from agentrl.types import Image

MODES = ("touch", "calls")
"""How actions are said: as touches at positions, or as calls by name."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PhoneGame:
    """One game: what it is called, its rules, its picture, its actions and its words."""

    package: str
    activity: str = ".Main"
    rules: Callable[..., Rules]
    """Called with the seed and, by name, the settings of a level."""
    draw: Callable[[Any, int, int], Image]
    """The rules' picture, uint8[height, width, 3], of a width and a height: a pure function."""
    level: type[Settings] = Settings
    calls: Mapping[str, int]
    """Forms of the calls, such as `chop()`, `up` or `flip(card)`, and how many each of them makes:
    1, or as many as the argument can be, counted from 0. Their names are those of the places."""
    swipes: bool = False
    """Whether there is anything to swipe; else its touches are taps."""
    words: str | Callable[[Any], str]
    """What a player must know, of a level: the aim, and what the screen does not tell."""
    score: str = "score"
    """The published number whose change is the reward."""
    scale: float = 1.0
    """What a change of 1 is worth."""
    lowest: float = -1.0
    """The reward of a player who leaves, as low as the worst that can be left of a game. Where that
    hangs on the state, the environment overrides `GameEnv.lowest`."""
    metrics: tuple[str, ...] = field(default=("score",))
    """The published numbers that stand in `info["metrics"]`."""

    def told(self, level: Settings) -> str:
        """Its words for a level."""
        return self.words if isinstance(self.words, str) else self.words(level)


class NamedCalls:
    """The calls of a game, numbered as a `Discrete` space numbers them.

    Args:
        calls: as `PhoneGame.calls`.
        style: in which they are said.
    """

    def __init__(self, calls: Mapping[str, int], style: str = "tag") -> None:
        self.grammar = Calls(calls, style)
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
        """The name of a call, and its argument where it has one."""
        return self._all[number]

    def say(self, name: str, index: int | None = None) -> str:
        """How a model says a call."""
        return self.grammar.say(name, *(() if index is None else (str(index),)))

    def read(self, reply: str) -> int:
        """The number of the call in a reply.

        Raises:
            ActionError: it holds none, or one that does not exist.
        """
        call = self.grammar.read(reply)
        return self._all.index((call.name, self._argument(call)))

    def _argument(self, call: Call) -> int | None:
        if not call.arguments:
            return None
        said, count = call.arguments[0], self._counts[call.name]
        if not said.isascii() or not said.isdecimal() or len(said) > 9 or int(said) >= count:
            raise ActionError(f"{call.name} takes a number from 0 to {count - 1}, not {said[:20]}")
        return int(said)

    def _has_argument(self, name: str) -> bool:
        return "()" not in (form := self._forms[name]) and form != name
