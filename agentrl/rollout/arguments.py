"""Who is given what of `env.kwargs` and `env.translator`.

What both an environment and its translator take, such as a mode of play, is given to both,
wherever it is named.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium

from agentrl import env, plugins
from agentrl.config import Config, EnvConfig
from agentrl.errors import ConfigError, told
from agentrl.rollout.ticket import Split

_OF_GYMNASIUM = ("max_episode_steps", "render_mode")
"""What `gymnasium.make` takes for itself."""
_ALLOW = "allow"


def env_kwargs(config: EnvConfig) -> dict[str, Any]:
    """What the environment is made with, beside its phone.

    Raises:
        ConfigError: there is no such environment, or its two sections contradict each other.
    """
    return {**_for_both(config, config.translator), **config.kwargs}


def env_of(config: Config, split: Split) -> EnvConfig:
    """The environment of one kind of episodes: held-out ones may have settings of their own."""
    if split != "eval" or not config.eval.kwargs:
        return config.env
    return replace(config.env, kwargs={**config.env.kwargs, **config.eval.kwargs})


def with_allowed(config: EnvConfig, allow: Sequence[str]) -> EnvConfig:
    """The same environment, told which packages may be in front beside its own app.

    Raises:
        ConfigError: there are some, and it does not take them.
    """
    game = env.game(config.id)
    if game.app is None or not allow:
        return config
    kind = plugins.load(game.entry_point)
    if _ALLOW not in _named(kind) and not _takes_any(kind):
        raise ConfigError(
            f"devices.allow={list(allow)}: {config.id} guards no phone, its constructor takes no "
            f"`{_ALLOW}`; leave the setting out"
        )
    return replace(config, kwargs={**config.kwargs, _ALLOW: list(allow)})


def open_translator(config: EnvConfig) -> env.Translator:
    """The translator of an environment.

    Raises:
        ConfigError: as `env_kwargs`; or it refuses its arguments.
    """
    return env.make_translator(config.id, {**_for_both(config, config.kwargs), **config.translator})


def load_player(config: EnvConfig, name: str) -> env.Player:
    """A scripted player of an environment, with those of both sections' settings that it takes.

    Raises:
        ConfigError: the environment has no such player.
    """
    players = env.game(config.id).players
    if name not in players:
        raise ConfigError(
            f"{config.id} has no player {name!r}{plugins.did_you_mean(name, players)}. "
            f"It has: {', '.join(sorted(players)) or 'none'}."
        )
    kind = plugins.load(players[name])
    given = {**config.kwargs, **config.translator}
    try:
        player: env.Player = kind(**{k: given[k] for k in _named(kind) if k in given})
    except Exception as error:
        raise ConfigError(f"the player {name!r} of {config.id} fails: {told(error)}") from error
    return player


def check_env_kwargs(config: EnvConfig, section: str = "env.kwargs") -> None:
    """See whether an environment takes its arguments, without making it.

    Args:
        config: the environment.
        section: where its arguments stand, for the error.

    Raises:
        ConfigError: as `env_kwargs`; or its constructor does not take one, or lacks one.
    """
    game = env.game(config.id)
    if game.app is not None and "device" in config.kwargs:
        raise ConfigError(
            f"{section}.device={config.kwargs['device']}: an episode is given one of the phones "
            "in devices.source; name yours there"
        )
    if game.app is not None and _ALLOW in config.kwargs:
        raise ConfigError(f"{section}.{_ALLOW}: name these packages in devices.allow")
    kind = plugins.load(game.entry_point)
    named = _named(kind)
    for name in config.kwargs:
        if name not in (*named, *_OF_GYMNASIUM) and not _takes_any(kind):
            raise ConfigError(
                f"{section}.{name}: {config.id} takes no such argument"
                f"{plugins.did_you_mean(name, named)}. It takes: {', '.join(named) or 'none'}"
            )
    given = {"device", *(gymnasium.spec(game.id).kwargs or {}), *env_kwargs(config)}
    needed = [name for name, parameter in named.items() if parameter.default is parameter.empty]
    if lacking := [name for name in needed if name not in given]:
        raise ConfigError(f"{section}: {config.id} cannot do without {', '.join(lacking)}")


def _for_both(config: EnvConfig, section: Mapping[str, Any]) -> dict[str, Any]:
    """What of one section is for the environment and its translator alike."""
    game = env.game(config.id)
    takers = (game.entry_point, game.translator)
    both = set.intersection(*(set(_named(plugins.load(taker))) for taker in takers))
    for name in both & config.kwargs.keys() & config.translator.keys():
        if config.kwargs[name] != config.translator[name]:
            raise ConfigError(
                f"env.translator.{name}={config.translator[name]} contradicts env.kwargs.{name}="
                f"{config.kwargs[name]}: both are given what one of them names; name it once"
            )
    return {name: section[name] for name in section if name in both}


def _named(kind: Any) -> dict[str, inspect.Parameter]:
    """What a class or function takes by name; nothing where it does not say."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in _signature(kind).items() if p.kind in by_name}


def _takes_any(kind: Any) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in _signature(kind).values())


def _signature(kind: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(kind).parameters
    except (TypeError, ValueError):  # compiled ones need not tell
        return {"anything": inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD)}
