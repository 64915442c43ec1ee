"""Make the translator and the scripted players of an environment, and read its action space."""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Any

import gymnasium

from agentrl import env, registry
from agentrl.config import EnvConfig
from agentrl.data.prompt_templates import render_instructions
from agentrl.errors import ConfigError, describe_error, must_propagate
from agentrl.rollout.env_processes import action_space_in_process
from agentrl.rollout.make_env import (
    env_registration,
    full_keys,
    make_env,
    named_parameters,
    shared_arguments,
)
from agentrl.text import did_you_mean

_SPACE = "action_space"
_spaces: "dict[str, gymnasium.Space[Any]]" = {}
"""Action spaces of environments, by configuration; each was made once to read it."""


def open_translator(config: EnvConfig) -> env.Translator:
    """The translator of an environment.

    Raises:
        ConfigError: there is no such environment, its sections contradict each other, or the
            translator rejects its arguments.
    """
    spec = env_registration(config)
    given = {**shared_arguments(config, config.kwargs), **config.translator_kwargs}
    given = {**_space_for(registry.load(spec.translator), config), **given}
    with full_keys(config):
        return env.translator_for(spec, given)


def instructions_for(config: EnvConfig, translator: env.Translator) -> str:
    """The instructions at the start of an episode, inside the job's prompt template if it has one.

    Raises:
        ConfigError: the translator fails, or the prompt does not exist or cannot be rendered.
    """
    try:
        instructions = translator.instructions()
    except Exception as error:
        raise ConfigError(
            f"env.translator_kwargs: instructions() failed: {describe_error(error)}"
        ) from error
    return render_instructions(config.prompt, instructions)


def load_player(config: EnvConfig, name: str) -> env.Player:
    """A scripted player of an environment, with those of the environment's settings that it takes.

    Raises:
        ConfigError: the environment has no such player, or no player takes a setting of
            `env.player_kwargs`.
    """
    players = env_registration(config).players
    if name not in players:
        raise ConfigError(
            f"{config.id} has no player {name!r}{did_you_mean(name, players)}. "
            f"It has: {', '.join(sorted(players)) or 'none'}."
        )
    cls = registry.load(players[name])
    _check_player(config, players)
    given = {
        **_space_for(cls, config),
        **config.kwargs,
        **config.translator_kwargs,
        **config.player_kwargs,
    }
    try:
        player: env.Player = cls(**{k: given[k] for k in named_parameters(cls) if k in given})
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the player {name!r} of {config.id} cannot be constructed: {describe_error(error)}"
        ) from error
    return player


def _check_player(config: EnvConfig, players: Mapping[str, str]) -> None:
    """Check that each setting of `env.player_kwargs` is an argument of some player."""
    accepted = {
        argument
        for player in players.values()
        for argument in named_parameters(registry.load(player))
    }
    for name in config.player_kwargs:
        if name not in accepted:
            raise ConfigError(
                f"env.player_kwargs.{name}: no player of {config.id} takes it"
                f"{did_you_mean(name, accepted)}. They take: {', '.join(sorted(accepted))}"
            )


def _space_for(cls: Any, config: EnvConfig) -> dict[str, Any]:
    """The `action_space` argument, if a translator or player takes one."""
    return {_SPACE: read_action_space(config)} if _SPACE in named_parameters(cls) else {}


def read_action_space(config: EnvConfig) -> "gymnasium.Space[Any]":
    """The action space of an environment without a phone, which is made once to read it.

    Raises:
        ConfigError: it cannot be made, or is played on a phone.
    """
    if env_registration(config).app is not None:
        raise ConfigError(
            f"{config.id} is played on a phone, so its action space is unknown until one is "
            "connected: it needs its own translator and players"
        )
    key = json.dumps(
        [config.id, config.kwargs, config.translator_kwargs, [asdict(w) for w in config.wrappers]],
        default=str,
    )
    if key not in _spaces:
        _spaces[key] = _read_space(config)
    return _spaces[key]


def _read_space(config: EnvConfig) -> "gymnasium.Space[Any]":
    try:
        if config.processes:
            return action_space_in_process(config)
        with closing(make_env(config)) as instance:
            return instance.action_space
    except ConfigError:
        raise
    except BaseException as error:
        if must_propagate(error):
            raise
        raise ConfigError(
            f"env.id: {config.id} cannot be constructed: {describe_error(error)}"
        ) from error
