"""Checks of a scripted player, a class of `env.players`; settings are a job's."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from agentrl.actions.action_chunks import read_actions
from agentrl.actions.players.player import scripted_reply
from agentrl.check.environments import checks as env_checks
from agentrl.check.extension_catalog import reference
from agentrl.check.extensions.env import env_config_from
from agentrl.check.runner import Check
from agentrl.check.support.random_episodes import SEED
from agentrl.config import EnvConfig
from agentrl.extension_points import PLAYER
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.resolved_env import resolve_env

USAGE = "env.players.mine={}"
"""The setting that adds this player."""
_NAME = "checked"
_STEPS = 10


def checks_of(target: Any, settings: Sequence[str]) -> list[Check]:
    """Return the checks of a player with its environment, which `env.id=...` names."""
    name = reference(target)
    id, slash, _ = name.rpartition("/")
    # Built-in players are named ENV/PLAYER; for others the environment has to be given.
    known = id if slash and ":" not in name else None
    config = env_config_from(settings, known, f"agentrl check player {name}")
    # Raise ConfigError here for a player that cannot be loaded, instead of failing every check.
    PLAYER.resolve(name)
    config = replace(config, players={**config.players, _NAME: name})
    return [
        Check(
            name="episode",
            description="The player's replies are valid actions",
            run=partial(env_checks.check_player, config, _NAME),
        ),
        Check(
            name="repeatable",
            description="Equal random numbers give equal replies",
            run=partial(_check_repeatable, config),
        ),
    ]


def _check_repeatable(config: EnvConfig) -> None:
    first, second = _replies(config), _replies(config)
    for step, (one, other) in enumerate(zip(first, second, strict=True)):
        assert one == other, (
            f"reply {step} is {one[:60]!r} and then {other[:60]!r}; draw from the given rng alone"
        )


def _replies(config: EnvConfig) -> list[str]:
    resolved = resolve_env(config)
    translator, player = open_translator(resolved), load_player(resolved, _NAME)
    rng, replies = np.random.default_rng(SEED), []
    with closing(resolved.make()) as env:
        observation, info = env.reset(seed=SEED)
        for _ in range(_STEPS):
            replies.append(scripted_reply(player, observation, info, rng))
            for action in read_actions(translator, replies[-1], config.max_actions_per_reply):
                observation, _, terminated, truncated, info = env.step(action)
                if terminated or truncated:
                    return replies
    return replies
