"""Scripted players of the space fighter: they see the true state and reply as a model would."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.android.minigames.space_fighter.env import GAME
from agentrl.envs.android.minigames.space_fighter.rules import COLUMNS, MOVES, ROWS
from agentrl.envs.android.phone_game.players import NoopGamePlayer, RandomGamePlayer, SkilledPlayer


class SpaceFighterExpert(SkilledPlayer):
    """Avoids everything that comes down, and otherwise stays below the enemies."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> str:
        """Return the move to the most valuable column that is safe in the next tick."""
        ways = {name: info["ship"] + MOVES.index(name) - 1 for name in ("stay", "left", "right")}
        free = [name for name in ways if name in info["moves"] and not _is_hit(info, ways[name])]
        return max(free or info["moves"], key=lambda name: _worth(info, ways[name]))


class SpaceFighterMediocre(SpaceFighterExpert):
    """Makes a random call in half of its turns."""

    default_skill = 0.5


class SpaceFighterRandom(RandomGamePlayer):
    """Makes random calls, and sometimes touches anywhere."""

    game = GAME


class SpaceFighterNoop(NoopGamePlayer):
    """Never moves the ship."""

    game = GAME
    noop_call = "stay"


def _is_hit(state: Mapping[str, Any], column: int) -> bool:
    """Return whether something reaches the ship's row in this column in the next tick."""
    return any(x == column and y == ROWS - 2 for _, x, y in state["things"])


def _worth(state: Mapping[str, Any], column: int) -> float:
    """Return the value of a column: its targets, plus the targets of nearby columns."""
    return max(_targets(state, other) / (1 + abs(other - column)) ** 2 for other in range(COLUMNS))


def _targets(state: Mapping[str, Any], column: int) -> float:
    """Return the value of enemies not behind a rock: near ones count more, targeted ones less."""
    here = sorted((y, kind) for kind, x, y in state["things"] if x == column)
    worth = 0.01
    for y, kind in reversed(here):
        if kind == "rock":
            break
        if y < ROWS - 2:
            worth += 1 + y / ROWS
    shots = sum(1 for x, _ in state["shots"] if x == column)
    return max(worth - shots, 0.01)
