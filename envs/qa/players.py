"""Scripted players of questions: they know the answer and reply as a model would."""

from collections.abc import Mapping
from typing import Any

import numpy as np


class Expert:
    """Always right.

    Args:
        style: how answers are marked, as the translator's.
    """

    def __init__(self, style: str = "either") -> None:
        self._boxed = style == "boxed"

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """The reply to the question whose truth stands in `info`."""
        return self._say(*self.choose(info, rng))

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> tuple[str, str]:
        """A thought and an answer."""
        return str(info.get("thought", "")), str(info["ground_truth"])

    def _say(self, thought: str, answer: str) -> str:
        marked = f"\\boxed{{{answer}}}" if self._boxed else f"<answer>{answer}</answer>"
        return f"<think>{thought}</think>{marked}"


class Mediocre(Expert):
    """Makes the question's habitual mistake most of the time, where it has one, else a guess.

    A model that copies it has a habit to leave behind, not only chance.

    Args:
        skill: the chance that it answers as the expert does, in [0, 1].
        style: how answers are marked, as the translator's.
    """

    def __init__(self, skill: float = 0.3, style: str = "either") -> None:
        super().__init__(style)
        self.skill = skill

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> tuple[str, str]:
        """The right thought and answer, or a habit's."""
        if rng.random() < self.skill:
            return super().choose(info, rng)
        if info.get("slip"):
            thought, answer = info["slip"]
            return str(thought), str(answer)
        if info.get("thought"):  # a question that nobody gets wrong by habit
            return super().choose(info, rng)
        return "", _guess(info, rng)


class Random(Expert):
    """Guesses without a look, and thinks nothing.

    Args:
        style: how answers are marked, as the translator's.
    """

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> tuple[str, str]:
        """No thought, and any answer."""
        return "", _guess(info, rng)


def _guess(info: Mapping[str, Any], rng: np.random.Generator) -> str:
    """One of the options or usual answers; a digit where there is neither."""
    options = info.get("options") or ()
    letters = [chr(ord("A") + k) for k in range(len(options))]
    choices = letters or info.get("guesses") or [str(digit) for digit in range(10)]
    return str(choices[int(rng.integers(len(choices)))])
