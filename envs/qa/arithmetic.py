"""Generated arithmetic questions with whole-number answers."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from agentrl.data.question import Question
from agentrl.envs.qa.question_split import HOLD_OUT, QuestionSplit

_SIGNS = {"+": 1, "-": 1, "*": 2}

Drawn = tuple[str, int, str, tuple[str, str] | None]
"""The expression, its value, the reasoning, and a typical mistake."""


class Arithmetic:
    """Questions such as "What is 7 + 5?", one per seed.

    Args:
        level: `easy`: two numbers below 10, added or subtracted. `products`: two numbers from 2 to
            9, multiplied. `hard`: three numbers below 100 and their products, with brackets.
        split: `train` or `eval`, determined by the expression; None draws from all expressions.
        hold_out: the share of expressions that belong to `eval`.

    Raises:
        ValueError: unknown level or split, or an empty split.
    """

    def __init__(
        self, level: str = "easy", split: str | None = None, hold_out: float = HOLD_OUT
    ) -> None:
        if level not in LEVELS:
            raise ValueError(f"level={level!r}: must be one of {', '.join(LEVELS)}")
        self._draw = LEVELS[level]
        self._part = QuestionSplit(split, hold_out, (drawn[0] for drawn in self._draws(0)))

    def question(self, seed: int) -> Question:
        """Return the question of a seed."""
        draws = self._draws(seed)
        term, value, thought, slip = next(drawn for drawn in draws if self._part.contains(drawn[0]))
        # Give a random player near misses to guess, so that the answer does not stand out.
        near = sorted({value + d for d in (-10, -2, -1, 0, 1, 2, 10)})
        return Question(
            name=f"arithmetic {seed}",
            problem=f"What is {term}?",
            accepted=(str(value),),
            guesses=tuple(map(str, near)),
            thought=thought,
            slip=slip,
            facts={"term": term},
        )

    def _draws(self, seed: int) -> Iterator[Drawn]:
        rng = np.random.default_rng([seed, 72])
        while True:
            yield self._draw(rng)


def _easy(rng: np.random.Generator) -> Drawn:
    a, b = map(int, rng.integers(0, 10, 2))
    sign = str(rng.choice(["+", "-"]))
    term = f"{a} {sign} {b}"
    value = _apply(a, sign, b)
    return term, value, f"{term} = {value}", None


def _product(rng: np.random.Generator) -> Drawn:
    return product(*map(int, rng.integers(2, 10, 2)))


def product(a: int, b: int) -> Drawn:
    """Draw `a * b`; the typical mistake is the next multiple of a."""
    term, value, wrong = f"{a} * {b}", a * b, a * (b + 1)
    return term, value, f"{term} = {value}", (f"{term} = {wrong}", str(wrong))


def _hard(rng: np.random.Generator) -> Drawn:
    """Draw `(a x b) y c`, with brackets only if precedence requires them."""
    a, b, c = map(int, rng.integers(2, 100, 3))
    first, second = map(str, rng.choice(list(_SIGNS), 2))
    inner = f"{a} {first} {b}"
    between = _apply(a, first, b)
    value = _apply(between, second, c)
    shown = f"({inner})" if _SIGNS[second] > _SIGNS[first] else inner
    bracket = f"({between})" if between < 0 else str(between)
    thought = f"{inner} = {between}, {bracket} {second} {c} = {value}"
    return f"{shown} {second} {c}", value, thought, None


def _apply(a: int, sign: str, b: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


LEVELS: Mapping[str, Callable[[np.random.Generator], Drawn]] = {
    "easy": _easy,
    "products": _product,
    "hard": _hard,
}
