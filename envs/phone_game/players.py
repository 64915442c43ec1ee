"""Scripted players of a phone game: they know the truth and answer as a model would."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from agentrl.devices import Grammar, Swipe, Tap
from agentrl.envs.phone_game.game import MODES, NamedCalls, PhoneGame

Choice = tuple[str, int | None]
"""The name of a call, and its argument where it has one."""


class GamePlayer(ABC):
    """Chooses a call, and says it as a call or as the touch that it stands for.

    Args:
        mode: `touch` or `calls`, as the environment's.
        style: in which actions are said: `tag` or `tool`.
    """

    game: ClassVar[PhoneGame]
    modes: ClassVar[tuple[str, str]] = MODES

    def __init__(self, mode: str = "touch", style: str = "tag") -> None:
        self.mode = mode
        self.calls = NamedCalls(self.game.calls, style)
        self._gestures = Grammar(style=style)

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """The reply to the state whose truth stands in `info`."""
        choice = self.choose(info, rng)
        return self.answer(self.think(info, choice), self.say(info, *choice))

    @abstractmethod
    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """What to do."""

    def think(self, info: Mapping[str, Any], choice: Choice) -> str:
        """What leads from the screen to the choice, in few words; nothing for no thought."""
        return ""

    def answer(self, thought: str, action: str) -> str:
        """The whole reply."""
        return f"<think>{thought}</think>{action}" if thought else action

    def say(self, info: Mapping[str, Any], name: str, index: int | None = None) -> str:
        """An action, in the words of this mode."""
        if self.mode == self.modes[1]:
            return self.calls.say(name, index)
        place = info["places"][name]
        return self.touch(place if index is None else place[index])

    def touch(self, place: Sequence[float]) -> str:
        """A touch at a place: of two numbers a tap, of four a swipe."""
        x, y, *end = place
        return self._gestures.format(Swipe(x, y, *end) if end else Tap(x, y))


class RandomPlayer(GamePlayer):
    """Makes each call as often as every other, and now and then touches anywhere; thinks nothing.

    Args:
        stray: the share of touches anywhere on the screen, in the mode `touch`, in [0, 1].
        mode: `touch` or `calls`, as the environment's.
        style: in which actions are said: `tag` or `tool`.
    """

    def __init__(self, stray: float = 0.25, mode: str = "touch", style: str = "tag") -> None:
        super().__init__(mode, style)
        self.stray = stray

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """A reply that looks at `info` for nothing but where to touch."""
        if self.mode == self.modes[0] and rng.random() < self.stray:
            return self.touch([float(share) for share in rng.random(2)])
        return super().reply(info, rng)

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> Choice:
        """Any call."""
        return self.calls[int(rng.integers(len(self.calls)))]
