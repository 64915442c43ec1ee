"""Scripted players for questions: they see the true answer and reply in a model's format."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.errors import ConfigError


class QAExpert:
    """Always answers correctly.

    Args:
        style: how answers are marked, the same as the translator's.
    """

    def __init__(self, style: str = "either") -> None:
        self._style = style

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the reply to the question described by `info`."""
        return self._say(*self.choose(info, rng))

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> tuple[str, str]:
        """Return the reasoning and the answer."""
        if "ground_truth" not in info:
            raise ConfigError(
                "this scripted player needs the right answers, but the questions have none"
            )
        return str(info.get("thought", "")), str(info["ground_truth"])

    def _say(self, thought: str, answer: str) -> str:
        if self._style == "text":
            return answer
        boxed = self._style == "boxed"
        marked = f"\\boxed{{{answer}}}" if boxed else f"<answer>{answer}</answer>"
        return f"<think>{thought}</think>{marked}"


class QAMediocre(QAExpert):
    """Mostly makes the question's habitual mistake if it has one, else guesses.

    A model that imitates it has a bad habit to unlearn, not just noise.

    Args:
        skill: the probability that it answers like the expert, in [0, 1].
        style: how answers are marked, the same as the translator's.
    """

    def __init__(self, skill: float = 0.3, style: str = "either") -> None:
        super().__init__(style)
        self.skill = skill

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> tuple[str, str]:
        """Return the right reasoning and answer, or the habitual mistake with its reasoning."""
        if rng.random() < self.skill:
            return super().choose(info, rng)
        if info.get("slip"):
            thought, answer = info["slip"]
            return str(thought), str(answer)
        if info.get("thought"):  # a question without a habitual mistake
            return super().choose(info, rng)
        return "", _guess(info, rng)


class QARandom(QAExpert):
    """Guesses without looking; no reasoning.

    Args:
        style: how answers are marked, the same as the translator's.
    """

    def choose(self, info: Mapping[str, Any], rng: np.random.Generator) -> tuple[str, str]:
        """Return no reasoning and a random answer."""
        return "", _guess(info, rng)


def _guess(info: Mapping[str, Any], rng: np.random.Generator) -> str:
    """Guess a random option or plausible answer; a digit if the question has neither."""
    options = info.get("options") or ()
    letters = [chr(ord("A") + k) for k in range(len(options))]
    choices = letters or info.get("guesses") or [str(digit) for digit in range(10)]
    return str(choices[int(rng.integers(len(choices)))])
