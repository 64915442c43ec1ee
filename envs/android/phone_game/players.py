"""Base classes of scripted players: they see the true state and reply in a model's format."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from agentrl.actions.dialect import Dialect, Size
from agentrl.actions.dialects.tag import Tag
from agentrl.actions.dialects.tool import Tool
from agentrl.actions.screen_action_converter import touch_of
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_action_calls import MODES, NamedCalls

Choice = tuple[str, int | None]
"""The name of a call, and its argument if it has one."""
_USUAL: Size = (720, 1280)
"""Screen size to assume if `info` does not contain one."""


class GamePlayer(ABC):
    """Chooses a call and writes it, or the touch that performs it.

    Args:
        mode: `touch` or `calls`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
    """

    game: ClassVar[PhoneGame]
    modes: ClassVar[tuple[str, str]] = MODES

    def __init__(self, mode: str = "touch", style: str = "tag") -> None:
        self.mode = mode
        self.calls = NamedCalls(self.game.calls, style)
        self.dialect: Dialect = Tool() if style == "tool" else Tag()
        """How touches are written; may be replaced before the first reply."""

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the reply to the state described by `info`."""
        choice = self.choose(info, rng)
        return self.say(info, *choice, thought=self.think(info, choice))

    @abstractmethod
    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Choose the next call."""

    def think(self, info: Mapping[str, Any], choice: Choice) -> str:
        """Return brief reasoning that leads to the choice; empty for none."""
        return ""

    def say(
        self, info: Mapping[str, Any], name: str, index: int | None = None, thought: str = ""
    ) -> str:
        """Return the reply that makes a call in this mode, after a thought."""
        if self.mode == self.modes[1]:
            call = self.calls.say(name, index)
            return f"<think>{thought}</think>{call}" if thought else call
        target = info["touch_targets"][name]
        return self.touch(info, target if index is None else target[index], thought)

    def touch(self, info: Mapping[str, Any], target: Sequence[float], thought: str = "") -> str:
        """Return the reply that touches a target: a tap for two numbers, a swipe for four."""
        width, height = info.get("screen_size", _USUAL)
        return self.dialect.spell(touch_of(target), self.dialect.screen((width, height)), thought)


class RandomGamePlayer(GamePlayer):
    """Makes uniformly random calls and, in the mode `touch`, some random touches; no reasoning.

    Args:
        stray: the share of touches anywhere on the screen, in the mode `touch`, in [0, 1].
        mode: `touch` or `calls`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
    """

    def __init__(self, stray: float = 0.25, mode: str = "touch", style: str = "tag") -> None:
        super().__init__(mode, style)
        self.stray = stray

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return a random reply; `info` only provides the positions to touch."""
        if self.mode == self.modes[0] and rng.random() < self.stray:
            return self.touch(info, [float(share) for share in rng.random(2)])
        return super().reply(info, rng)

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Choose a random call."""
        return self.calls[int(rng.integers(len(self.calls)))]


class NoopGamePlayer(GamePlayer):
    """Lets time pass. Each game with a call for that subclasses it and sets `game` and `noop_call`.

    Args:
        mode: `touch` or `calls`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
    """

    noop_call: ClassVar[str]

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Choose the call that does nothing."""
        return self.noop_call, None


class SkilledPlayer(GamePlayer):
    """Makes the best move with probability `skill`, else a random one of `info["moves"]`.

    Each game subclasses it and sets `game`; weaker players override `default_skill`.

    Args:
        skill: the probability of the best move, in [0, 1]; None for `default_skill`.
        mode: `touch` or `calls`, the same as the environment's.
        style: how actions are written: `tag` or `tool`.
    """

    default_skill: ClassVar[float] = 1.0

    def __init__(self, skill: float | None = None, mode: str = "touch", style: str = "tag") -> None:
        super().__init__(mode, style)
        self.skill = self.default_skill if skill is None else skill

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Choose the best move, or a random move."""
        best = rng.random() < self.skill
        return self.choice_of(self.best(info) if best else rng.choice(info["moves"]))

    @abstractmethod
    def best(self, info: Mapping[str, Any]) -> Any:
        """Return the best of `info["moves"]`, as far as this player can see."""

    def choice_of(self, move: Any) -> Choice:
        """Return the call that makes a move."""
        return str(move), None
