"""Arithmetic in words and signs, with whole answers."""

import numpy as np

from agentrl.data.tasks import Task

LEVELS = ("easy", "hard")
_SIGNS = {"+": 1, "-": 1, "*": 2}


class Arithmetic:
    """Questions such as "What is 7 + 5?", drawn from their seeds.

    Args:
        level: `easy`: two numbers below 10, added or subtracted. `hard`: three numbers below 100
            and their products, with brackets.

    Raises:
        ValueError: no such level.
    """

    def __init__(self, level: str = "easy") -> None:
        if level not in LEVELS:
            raise ValueError(f"level={level!r}: must be one of {', '.join(LEVELS)}")
        self._hard = level == "hard"

    def task(self, seed: int) -> Task:
        """The question of a seed."""
        rng = np.random.default_rng([seed, 72])
        term, value, thought = _hard(rng) if self._hard else _easy(rng)
        near = sorted({value + d for d in (-10, -2, -1, 0, 1, 2, 10)})
        return Task(
            name=f"arithmetic {seed}",
            problem=f"What is {term}?",
            accepted=(str(value),),
            guesses=tuple(map(str, near)),
            thought=thought,
            facts={"term": term},
        )


def _easy(rng: np.random.Generator) -> tuple[str, int, str]:
    a, b = map(int, rng.integers(0, 10, 2))
    sign = str(rng.choice(["+", "-"]))
    term = f"{a} {sign} {b}"
    value = _apply(a, sign, b)
    return term, value, f"{term} = {value}"


def _hard(rng: np.random.Generator) -> tuple[str, int, str]:
    """`(a x b) y c`, with the brackets where the signs would be read otherwise."""
    a, b, c = map(int, rng.integers(2, 100, 3))
    first, second = map(str, rng.choice(list(_SIGNS), 2))
    inner = f"{a} {first} {b}"
    between = _apply(a, first, b)
    value = _apply(between, second, c)
    shown = f"({inner})" if _SIGNS[second] > _SIGNS[first] else inner
    bracket = f"({between})" if between < 0 else str(between)
    thought = f"{inner} = {between}, {bracket} {second} {c} = {value}"
    return f"{shown} {second} {c}", value, thought


def _apply(a: int, sign: str, b: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b}[sign]
