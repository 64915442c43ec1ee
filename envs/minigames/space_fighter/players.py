"""Scripted players of the space fighter: they know the truth and answer as a model would."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.minigames.players import Skilled
from agentrl.envs.minigames.space_fighter.phone import GAME
from agentrl.envs.minigames.space_fighter.rules import COLUMNS, MOVES, ROWS
from agentrl.envs.phone_game.players import RandomPlayer


class Expert(Skilled):
    """Is never where something comes, and under the enemies else."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> str:
        """The way to the worthiest column that is not hit in the next tick."""
        ways = {name: info["ship"] + MOVES.index(name) - 1 for name in ("stay", "left", "right")}
        free = [name for name in ways if name in info["moves"] and not _is_hit(info, ways[name])]
        return max(free or info["moves"], key=lambda name: _worth(info, ways[name]))


class Mediocre(Expert):
    """Makes any call in half of its turns."""

    usual_skill = 0.5


class Random(RandomPlayer):
    """Makes any call, and touches anywhere now and then."""

    game = GAME


def _is_hit(state: Mapping[str, Any], column: int) -> bool:
    """Whether something comes to the ship's row here with the next tick."""
    return any(x == column and y == ROWS - 2 for _, x, y in state["things"])


def _worth(state: Mapping[str, Any], column: int) -> float:
    """How good it is to shoot from a column, or near the columns where it is good."""
    return max(_targets(state, other) / (1 + abs(other - column)) ** 2 for other in range(COLUMNS))


def _targets(state: Mapping[str, Any], column: int) -> float:
    """Enemies with no rock before them: near ones more than far ones; shot at ones less."""
    here = sorted((y, kind) for kind, x, y in state["things"] if x == column)
    worth = 0.01
    for y, kind in reversed(here):
        if kind == "rock":
            break
        if y < ROWS - 2:
            worth += 1 + y / ROWS
    shots = sum(1 for x, _ in state["shots"] if x == column)
    return max(worth - shots, 0.01)
