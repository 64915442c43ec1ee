"""Rewards of Sokoban in addition to the game's own, which is `env_reward`."""

from agentrl.data.reward_inputs import fact
from agentrl.rewards.form import action
from agentrl.types import Episode

format = action
"""-1 for a reply without an action, else 0.

Such a reply leaves the board unchanged and costs no step, so without this penalty it would be worth
more than a move.
"""


def useless(episode: Episode) -> list[float]:
    """Return -1 for a move blocked by a wall or by a box that cannot be pushed, else 0.

    Raises:
        KeyError: `info` has no `changed`.
    """
    return [
        float(-sum(not fact(episode, info, "changed") for info in turn.infos))
        if turn.action is not None
        else 0.0
        for turn in episode.turns
    ]


def success(episode: Episode) -> float:
    """Return 1 for a solved level, else 0, without the environment's rewards for steps and boxes.

    Raises:
        KeyError: `info` has no `success`.
    """
    return float(bool(episode.turns) and fact(episode, episode.turns[-1].info, "success"))
