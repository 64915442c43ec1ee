"""Scripted players of Flappy Bird: they see the true state and reply in a model's format."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.android.minigames.flappy_bird.env import GAME
from agentrl.envs.android.minigames.flappy_bird.rules import (
    COLUMNS,
    GAP,
    PACE,
    ROWS,
    UNIT,
    Bird,
    hits,
)
from agentrl.envs.android.phone_game.players import NoopGamePlayer, RandomGamePlayer, SkilledPlayer

_TURNS = COLUMNS + 1
"""Turns that the search looks ahead; gates further away are not visible."""
_LOW = 15
"""Depth below the top of a gap, in eighths of a cell, from which a flap stays within the gap."""

_Gates = tuple[tuple[int, int], ...]


class FlappyBirdExpert(SkilledPlayer):
    """Searches a few turns ahead; on a running clock it flaps when low in the gap."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> str:
        """Return the move that keeps the bird alive and closest to the middle of the next gate.

        On a running clock the number of ticks until the next move is unknown, so flap as soon as
        the bird is in the lower part of the gap, and not before.
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


class FlappyBirdMediocre(FlappyBirdExpert):
    """Makes a random call in half of its turns."""

    default_skill = 0.5


class FlappyBirdRandom(RandomGamePlayer):
    """Makes random calls, and sometimes touches anywhere."""

    game = GAME


class FlappyBirdNoop(NoopGamePlayer):
    """Never flaps."""

    game = GAME
    noop_call = "wait"


def _lives(bird: Bird, gates: _Gates, flaps: bool, ticks: int, turns: int) -> bool:
    """Return whether the bird can survive the visible gates if it starts with these flaps."""
    for tick in range(ticks):
        bird = bird.after(flaps and tick == 0)
        gates = tuple((x - PACE, gap) for x, gap in gates)
        if hits(bird, gates):
            return False
    return turns == 1 or any(_lives(bird, gates, way, ticks, turns - 1) for way in (True, False))


def _top(gates: _Gates) -> float:
    """Return the top of the next gap, in eighths of a cell; the middle if no gap is visible."""
    ahead = [gap for x, gap in gates if x > 1]  # a gate at 1 is behind the bird
    return (ahead[0] if ahead else (ROWS - GAP) / 2) * UNIT
