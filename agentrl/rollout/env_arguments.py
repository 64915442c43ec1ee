"""Make an environment, with the arguments of `env.kwargs` and `env.translator_kwargs`.

An argument that both the environment and the translator take, such as a game mode, is passed to
both, in whichever section it is set.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import gymnasium

from agentrl import env, registry
from agentrl.config import EnvConfig, EvalConfig, WrapperConfig
from agentrl.errors import ConfigError, describe_error
from agentrl.text import did_you_mean

Split = Literal["train", "eval", "demo"]
_OF_GYMNASIUM = ("max_episode_steps", "render_mode")
"""Arguments of `gymnasium.make` itself."""
_ALLOW = "allow"


def make_env(
    config: EnvConfig, render_mode: str | None = None, **place: str
) -> "gymnasium.Env[Any, Any]":
    """The environment with its wrappers.

    Gymnasium's passive checker is off: repeated for every lease of a phone, it would take longer
    than a turn. `agentrl envs check` runs it.

    Args:
        config: the environment.
        render_mode: used unless `env.kwargs` names one.
        **place: `device`, for an environment that is played on a phone.

    Raises:
        ConfigError: it does not exist, or its arguments are rejected.
    """
    kwargs: dict[str, Any] = {**env_kwargs(config), **place}
    if render_mode is not None:
        kwargs.setdefault("render_mode", render_mode)
    made = env.make(config.id, **kwargs, disable_env_checker=True)
    for wrapper in config.wrappers:
        made = _wrapped(made, wrapper)
    return made


def _wrapped(made: "gymnasium.Env[Any, Any]", config: WrapperConfig) -> "gymnasium.Env[Any, Any]":
    kind = registry.load(config.wrapper)
    try:
        wrapped: gymnasium.Env[Any, Any] = kind(made, **config.kwargs)
    except Exception as error:
        raise ConfigError(
            f"env.wrappers: {config.wrapper} failed with kwargs={config.kwargs}: "
            f"{describe_error(error)}"
        ) from error
    return wrapped


def configured_game(config: EnvConfig) -> env.EnvRegistration:
    """The registered environment, with the translator and players of the configuration.

    Raises:
        ConfigError: there is no such environment.
    """
    known = env.find_env(config.id)
    return replace(
        known,
        translator=config.translator_class or known.translator,
        players={**known.players, **config.players},
    )


def env_kwargs(config: EnvConfig) -> dict[str, Any]:
    """The arguments of the environment, except its phone.

    Raises:
        ConfigError: there is no such environment, or its two sections contradict each other.
    """
    return {**shared_arguments(config, config.translator_kwargs), **config.kwargs}


def env_config_of(config: EnvConfig, evaluation: EvalConfig, split: Split) -> EnvConfig:
    """The environment of a split: held-out episodes may have their own settings (`eval.kwargs`)."""
    if split != "eval" or not evaluation.kwargs:
        return config
    return replace(config, kwargs={**config.kwargs, **evaluation.kwargs})


def with_allowed_apps(config: EnvConfig, allow: Sequence[str]) -> EnvConfig:
    """The same environment, given the packages that may be in front besides its own app.

    Raises:
        ConfigError: there are such packages, but the environment does not take them.
    """
    game = configured_game(config)
    if game.app is None or not allow:
        return config
    kind = environment_class(game)
    if _ALLOW not in named_parameters(kind) and not _takes_any(kind):
        raise ConfigError(
            f"devices.allow={list(allow)}: {config.id} does not guard its phone (its constructor "
            f"takes no `{_ALLOW}`); leave the setting out"
        )
    return replace(config, kwargs={**config.kwargs, _ALLOW: list(allow)})


def baseline_players(config: EnvConfig, evaluation: EvalConfig) -> list[str]:
    """The scripted players that the model is compared with."""
    if evaluation.baselines is not None:
        return evaluation.baselines
    players = configured_game(config).players
    return [name for name in ("random", "expert") if name in players]


def check_env_kwargs(config: EnvConfig, section: str = "env.kwargs") -> int | None:
    """Check that an environment takes its arguments, without making it.

    An environment that needs more than that, such as a data set, has a class method
    `check_kwargs`.

    Args:
        config: the environment.
        section: of its arguments, for error messages.

    Returns:
        The number of distinct episodes, if `check_kwargs` returns it; else None.

    Raises:
        ConfigError: as `env_kwargs`; or its constructor does not take an argument, or lacks one.
    """
    game = configured_game(config)
    if game.app is not None and "device" in config.kwargs:
        raise ConfigError(
            f"{section}.device={config.kwargs['device']}: each episode gets one of the phones of "
            "devices.source; name your phone there"
        )
    if game.app is not None and _ALLOW in config.kwargs:
        raise ConfigError(f"{section}.{_ALLOW}: set devices.allow instead")
    kind = environment_class(game)
    taken = named_parameters(kind)
    for name in config.kwargs:
        if name not in (*taken, *_OF_GYMNASIUM) and not _takes_any(kind):
            raise ConfigError(
                f"{section}.{name}: {config.id} takes no such argument"
                f"{did_you_mean(name, taken)}. It takes: {', '.join(taken) or 'none'}"
            )
    given = {"device", *(gymnasium.spec(game.id).kwargs or {}), *env_kwargs(config)}
    needed = [name for name, parameter in taken.items() if parameter.default is parameter.empty]
    if lacking := [name for name in needed if name not in given]:
        raise ConfigError(f"{section}: {config.id} requires {', '.join(lacking)}")
    if (check := getattr(kind, "check_kwargs", None)) is None:
        return None
    try:
        found = check(**{k: v for k, v in env_kwargs(config).items() if k not in _OF_GYMNASIUM})
    except ConfigError as error:
        raise ConfigError(f"{section}: {error}") from error
    return found if type(found) is int else None


def shared_arguments(config: EnvConfig, section: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of one section that both the environment and its translator take.

    The generic translator shares none: equal names of an environment mean something else.
    """
    game = configured_game(config)
    if game.translator == env.TRANSLATOR:
        return {}
    both = set(named_parameters(environment_class(game))) & set(
        named_parameters(registry.load(game.translator))
    )
    for name in both & config.kwargs.keys() & config.translator_kwargs.keys():
        if config.kwargs[name] != config.translator_kwargs[name]:
            raise ConfigError(
                f"env.translator_kwargs.{name}={config.translator_kwargs[name]} contradicts "
                f"env.kwargs.{name}={config.kwargs[name]}: environment and translator share it; "
                "set it only once"
            )
    return {name: section[name] for name in section if name in both}


def environment_class(game: env.EnvRegistration) -> Any:
    """The class or function that makes an environment."""
    return game.entry_point if callable(game.entry_point) else registry.load(game.entry_point)


def named_parameters(kind: Any) -> dict[str, inspect.Parameter]:
    """The named parameters of a class or function; empty if its signature is unknown."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in _signature(kind).items() if p.kind in by_name}


def _takes_any(kind: Any) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in _signature(kind).values())


def _signature(kind: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(kind).parameters
    except (TypeError, ValueError):  # a compiled function may have no signature
        return {"anything": inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD)}
