"""Scripted players of Flappy Bird: they know the truth and answer as a model would."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.minigames.flappy_bird.phone import GAME
from agentrl.envs.minigames.flappy_bird.rules import (
    COLUMNS,
    GAP,
    PACE,
    ROWS,
    UNIT,
    Bird,
    hits,
)
from agentrl.envs.minigames.players import Skilled
from agentrl.envs.phone_game.players import RandomPlayer

_TURNS = COLUMNS + 1
"""So far ahead is seen what comes."""
_LOW = 15
"""Lengths below the upper end of a gap from which a flap stays within it."""

_Gates = tuple[tuple[int, int], ...]


class Expert(Skilled):
    """Looks a few turns ahead; flaps low in the gap where the clock runs."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> str:
        """The move after which the bird can live on, and comes nearest to the next gate's middle.

        On a running clock nobody knows how many ticks pass up to the next move: there it flaps as
        soon as it is in the lower part of the gap, and not before.
        """
        bird, gates = Bird(info["y"], info["speed"]), tuple(map(tuple, info["gates"]))
        if info.get("clock") == "running":
            is_low = bird.y > _top(gates) + _LOW and not info["flaps"]
            return "flap" if is_low else "wait"
        low = bird.y > _top(gates) + GAP * UNIT / 2
        for name in ("flap", "wait") if low else ("wait", "flap"):
            if _lives(bird, gates, name == "flap", info.get("ticks", 4), _TURNS):
                return name
        return "flap" if low else "wait"


class Mediocre(Expert):
    """Makes any call in half of its turns."""

    usual_skill = 0.5


class Random(RandomPlayer):
    """Makes any call, and touches anywhere now and then."""

    game = GAME


def _lives(bird: Bird, gates: _Gates, flaps: bool, ticks: int, turns: int) -> bool:
    """Whether there is a way through what is seen that begins so."""
    for tick in range(ticks):
        bird = bird.after(flaps and tick == 0)
        gates = tuple((x - PACE, gap) for x, gap in gates)
        if hits(bird, gates):
            return False
    return turns == 1 or any(_lives(bird, gates, way, ticks, turns - 1) for way in (True, False))


def _top(gates: _Gates) -> float:
    """The upper end of the next gap, in lengths; one in the middle where no gate is seen."""
    ahead = [gap for x, gap in gates if x > 1]  # a gate at 1 is behind the bird
    return (ahead[0] if ahead else (ROWS - GAP) / 2) * UNIT
