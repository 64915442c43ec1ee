"""Checks of a translator, a class of `env.translator_class`; settings are a job's."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from agentrl.actions.action_chunks import read_actions
from agentrl.check.environments import checks as env_checks
from agentrl.check.extension_catalog import reference
from agentrl.check.extensions.env import env_config_from
from agentrl.check.finding import Finding
from agentrl.check.runner import Check
from agentrl.check.support.open_env import open_env
from agentrl.check.support.random_episodes import SEED, equal_values, play_randomly
from agentrl.config import EnvConfig
from agentrl.extension_points import TRANSLATOR
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.types import IMAGE

USAGE = "env.translator_class={}"
"""The setting that selects this translator."""
_STEPS = 10


def checks_of(target: Any, settings: Sequence[str]) -> list[Check]:
    """Return the checks of a translator with its environment, which `env.id=...` names."""
    name = reference(target)
    # Built-in translators have environment names, except "space", which fits any action space.
    id = "FrozenLake-v1" if name == "space" else None if ":" in name else name
    config = replace(
        env_config_from(settings, id, f"agentrl check translator {name}"), translator_class=name
    )
    TRANSLATOR.resolve(name)
    # Playing is the slow part, and several checks use the same two episodes.
    play_twice = cache(lambda: (play_randomly(config, _STEPS), play_randomly(config, _STEPS)))
    run: dict[str, tuple[str, Callable[[], Finding | None]]] = {
        "instructions": ("instructions", partial(env_checks.check_instructions, config)),
        "observations": ("shown to the model", partial(env_checks.check_observation, play_twice)),
        "messages": ("Each <image> in a message has an image", partial(_check_messages, config)),
        "replies": ("replies", partial(env_checks.check_replies, config)),
        "players": ("The players' replies become actions", partial(_check_players, config)),
        "no_action": ("no_action() is an action or None", partial(_check_no_action, config)),
        "memory": ("A reply means the same each time", partial(_check_memory, config)),
    }
    return [Check(name=key, description=what, run=check) for key, (what, check) in run.items()]


def _check_messages(config: EnvConfig) -> None:
    translator = open_translator(resolve_env(config))
    for view in play_randomly(config, _STEPS).translated:
        message = translator.to_message(view)
        markers = message.text.count(IMAGE)
        assert message.role == "user", f"the role is {message.role!r}, not 'user'"
        assert markers == len(message.images), (
            f"to_message: the text has {markers} {IMAGE} for {len(message.images)} images: "
            f"{message.text[:80]!r}"
        )


def _check_players(config: EnvConfig) -> None:
    translator = open_translator(resolve_env(config))
    space, replies = env_checks.space_and_replies(config, np.random.default_rng(SEED))
    for reply in replies:
        for action in read_actions(translator, reply, config.max_actions_per_reply):
            assert env_checks.is_action(space, action), (
                f"to_action({reply[:60]!r}) is {action!r}, not in {space}"
            )


def _check_no_action(config: EnvConfig) -> None:
    with open_env(config) as env:
        space = env.action_space
    action = open_translator(resolve_env(config)).no_action()
    assert action is None or env_checks.is_action(space, action), (
        f"no_action() is {action!r}, not in {space}"
    )


def _check_memory(config: EnvConfig) -> None:
    translator, other = open_translator(resolve_env(config)), open_translator(resolve_env(config))
    _, replies = env_checks.space_and_replies(config, np.random.default_rng(SEED))
    most = config.max_actions_per_reply
    for reply in replies:
        first = read_actions(translator, reply, most)
        again = read_actions(translator, reply, most)
        assert equal_values(first, again), f"{reply[:60]!r} changes its meaning"
        elsewhere = read_actions(other, reply, most)
        assert equal_values(first, elsewhere), f"{reply[:60]!r} differs by instance"
