"""Who plays Flappy Bird by looking a few turns ahead."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.minigames.flappy_bird.rules import (
    BIRD,
    COLUMNS,
    GAP,
    PACE,
    UNIT,
    Bird,
    hits,
)

_TURNS = COLUMNS + 1
"""So far ahead is seen what comes."""

_Gates = tuple[tuple[int, int], ...]


def best(state: Mapping[str, Any], ticks: int = 4) -> str:
    """The move after which the bird can live on, and comes nearest to the next gate's middle.

    Args:
        state: what the game publishes.
        ticks: that pass between two moves.
    """
    bird, gates = Bird(state["y"], state["speed"]), tuple(map(tuple, state["gates"]))
    low = bird.y > _aim(gates)
    for name in ("flap", "wait") if low else ("wait", "flap"):
        if _lives(bird, gates, name == "flap", ticks, _TURNS):
            return name
    return "flap" if low else "wait"


def _lives(bird: Bird, gates: _Gates, flaps: bool, ticks: int, turns: int) -> bool:
    """Whether there is a way through what is seen that begins so."""
    for tick in range(ticks):
        bird = bird.after(flaps and tick == 0)
        gates = tuple((x - PACE, gap) for x, gap in gates)
        if hits(bird, gates):
            return False
    return turns == 1 or any(_lives(bird, gates, way, ticks, turns - 1) for way in (True, False))


def _aim(gates: _Gates) -> float:
    """The height of the middle of the next gate's gap, in lengths; in between where none is."""
    ahead = [gap for x, gap in gates if x + UNIT > BIRD * UNIT]
    return (ahead[0] + GAP / 2) * UNIT if ahead else 4.5 * UNIT
