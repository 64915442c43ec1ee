"""Make an environment, with the arguments of `env.kwargs` and `env.translator_kwargs`.

An argument that both the environment and the translator take, such as a game mode, is passed to
both, in whichever section it is set.
"""

import inspect
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium

from agentrl import env, registry
from agentrl.config import Config, EnvConfig, EvalConfig, WrapperConfig
from agentrl.data.observations import AnyText
from agentrl.errors import (
    ConfigError,
    InvalidArgument,
    boundary,
    describe_error,
    must_propagate,
)
from agentrl.extension_points import PLAYER, TRANSLATOR
from agentrl.rollout.env_server import is_text_space
from agentrl.text import known_names
from agentrl.types import Split

log = logging.getLogger(__name__)

_MAKE_ARGUMENTS = ("max_episode_steps", "render_mode")
"""Arguments of `gymnasium.make` itself."""
_ALLOW = "allow"


def make_env(
    config: EnvConfig, render_mode: str | None = None, **place: Any
) -> "gymnasium.Env[Any, Any]":
    """The environment with its wrappers.

    Gymnasium's passive checker is off: repeated for every lease of a phone, it would take longer
    than a turn. `agentrl check env` runs it.

    Args:
        config: the environment.
        render_mode: used unless `env.kwargs` names one.
        **place: `device`, for an environment that is played on a phone; or `remote_kwargs`.

    Raises:
        ConfigError: it does not exist, or its arguments are rejected.
    """
    kwargs: dict[str, Any] = {**env_kwargs(config), **place}
    if render_mode is not None:
        kwargs.setdefault("render_mode", render_mode)
    with full_keys(config):
        instance = env.make(config.id, **kwargs, disable_env_checker=True)
    for wrapper in config.wrappers:
        instance = _wrap(instance, wrapper)
    return with_text_actions(instance)


def close_env(instance: "gymnasium.Env[Any, Any]", name: str) -> None:
    """Close an environment, which is abandoned either way; what it raises is logged.

    Args:
        instance: the environment.
        name: names it in the log.
    """
    try:
        instance.close()
    except BaseException as error:
        if must_propagate(error):
            raise
        log.warning("closing %s: %s", name, describe_error(error))


def with_text_actions(instance: "gymnasium.Env[Any, Any]") -> "gymnasium.Env[Any, Any]":
    """The environment; if its actions are texts of another package's space, they are `AnyText`.

    Such a space, as in MiniWoB and BrowserGym, contains all texts, but cannot be sampled.
    """
    space = instance.action_space
    if isinstance(space, gymnasium.spaces.Text) or not is_text_space(space):
        return instance
    return _TextActions(instance)


class _TextActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: "gymnasium.Env[Any, Any]") -> None:
        super().__init__(env)
        self.action_space = AnyText()


@contextmanager
def full_keys(config: EnvConfig) -> Iterator[None]:
    """Name a rejected argument by its full key, such as `env.kwargs.cards`.

    Raises:
        ConfigError: in place of an `InvalidArgument`.
    """
    try:
        yield
    except InvalidArgument as error:
        raise ConfigError(f"{_section_of(error.name, config)}.{error}") from error


def _section_of(name: str, config: EnvConfig, section: str = "env.kwargs") -> str:
    """The section that sets an argument; `section` unless it is the translator's."""
    shared = name in config.translator_kwargs and name not in config.kwargs
    return "env.translator_kwargs" if shared else section


@contextmanager
def eval_keys(evaluation: EvalConfig, split: Split = "eval") -> Iterator[None]:
    """Name the keys of `eval.kwargs` in errors about an environment that is made with them.

    Raises:
        ConfigError: with these keys.
    """
    try:
        yield
    except ConfigError as error:
        if split != "eval" or not evaluation.kwargs:
            raise
        names = "|".join(map(re.escape, evaluation.kwargs))
        text, found = re.subn(rf"\benv\.kwargs\.({names})\b", r"eval.kwargs.\1", str(error))
        more = "" if found else f" (with eval.kwargs={evaluation.kwargs})"
        raise ConfigError(f"{text}{more}") from error


def _wrap(instance: "gymnasium.Env[Any, Any]", config: WrapperConfig) -> "gymnasium.Env[Any, Any]":
    cls = registry.load(config.wrapper)
    what = f"env.wrappers: {config.wrapper} failed with kwargs={config.kwargs}"
    with boundary(ConfigError, what):
        wrapped: gymnasium.Env[Any, Any] = cls(instance, **config.kwargs)
    return wrapped


def env_registration(config: EnvConfig) -> env.EnvRegistration:
    """The registered environment, with the translator and players of the configuration.

    Raises:
        ConfigError: there is no such environment.
    """
    known = env.find_env(config.id)
    own = config.translator_class
    return replace(
        known,
        translator=known.translator if own is None else TRANSLATOR.target(own),
        players={**known.players, **{k: PLAYER.target(v) for k, v in config.players.items()}},
    )


def env_kwargs(config: EnvConfig) -> dict[str, Any]:
    """The arguments of the environment, except its phone.

    Raises:
        ConfigError: there is no such environment, or its two sections contradict each other.
    """
    return {**shared_arguments(config, config.translator_kwargs), **config.kwargs}


def remote_kwargs(config: EnvConfig, deadline_s: float) -> dict[str, Any]:
    """Return the extra arguments of a remote environment's client: how long it waits."""
    if config.id.startswith("openenv://"):
        return {"agentrl_deadline_s": deadline_s}
    if not config.id.startswith("http://"):
        return {}
    return {"agentrl_deadline_s": deadline_s, "agentrl_patience_s": config.patience_s}


def crash_hint(config: EnvConfig) -> str:
    """Suggest `env.processes` after a process died, if an environment in it may be the cause."""
    if config.processes or env_registration(config).app is not None:
        return ""
    return f". If {config.id}, which runs in its threads, is the cause: set env.processes=1"


def own_kwargs(config: EnvConfig) -> dict[str, Any]:
    """`env_kwargs` without those of `gymnasium.make`."""
    return {k: v for k, v in env_kwargs(config).items() if k not in _MAKE_ARGUMENTS}


def env_config_for(config: EnvConfig, evaluation: EvalConfig, split: Split) -> EnvConfig:
    """The environment of a split: held-out episodes may have their own settings (`eval.kwargs`)."""
    if split != "eval" or not evaluation.kwargs:
        return config
    return replace(config, kwargs={**config.kwargs, **evaluation.kwargs})


def with_allowed_apps(config: EnvConfig, allow: Sequence[str]) -> EnvConfig:
    """Allow further packages in front, besides the environment's own app.

    Raises:
        ConfigError: there are such packages, but the environment does not take them.
    """
    spec = env_registration(config)
    if spec.app is None or not allow:
        return config
    cls = environment_class(spec)
    if _ALLOW not in named_parameters(cls) and not _takes_any_keyword(cls):
        raise ConfigError(
            f"devices.allow={list(allow)}: {config.id} does not guard its phone (its constructor "
            f"takes no `{_ALLOW}`); leave the setting out"
        )
    return replace(config, kwargs={**config.kwargs, _ALLOW: list(allow)})


def baseline_players(config: Config) -> list[str]:
    """The scripted players that the model is compared with; all environments of a job have them."""
    if config.eval.baselines is not None:
        return config.eval.baselines
    players = [env_registration(job.env).players for job in config.environments().values()]
    return [name for name in ("random", "expert") if all(name in own for own in players)]


def check_env_kwargs(config: EnvConfig, section: str = "env.kwargs") -> int | None:
    """Check that an environment takes its arguments, without making it.

    An environment that needs more than that, such as a data set, has a class method
    `check_kwargs`.

    Args:
        config: the environment.
        section: name of the section, for error messages.

    Returns:
        The number of distinct episodes, if `check_kwargs` returns it; else None.

    Raises:
        ConfigError: as `env_kwargs`; or its constructor does not take an argument, or lacks one.
    """
    spec = env_registration(config)
    if spec.app is not None and "device" in config.kwargs:
        raise ConfigError(
            f"{section}.device={config.kwargs['device']}: each episode gets one of the phones of "
            "devices.source; name your phone there"
        )
    if spec.app is not None and _ALLOW in config.kwargs:
        raise ConfigError(f"{section}.{_ALLOW}: set devices.allow instead")
    cls = environment_class(spec)
    taken = named_parameters(cls)
    for name in config.kwargs:
        if name not in (*taken, *_MAKE_ARGUMENTS) and not _takes_any_keyword(cls):
            raise ConfigError(
                f"{section}.{name}: {config.id} takes no such argument"
                f"{known_names(name, taken, label='It takes')}"
            )
    given = {"device", *(gymnasium.spec(spec.id).kwargs or {}), *env_kwargs(config)}
    required = [name for name, parameter in taken.items() if parameter.default is parameter.empty]
    if missing := [name for name in required if name not in given]:
        raise ConfigError(f"{section}: {config.id} requires {', '.join(missing)}")
    if (check := getattr(cls, "check_kwargs", None)) is None:
        return None
    try:
        episodes = check(**own_kwargs(config))
    except ConfigError as error:
        if isinstance(error, InvalidArgument):
            raise ConfigError(f"{_section_of(error.name, config, section)}.{error}") from error
        raise ConfigError(f"{section}: {error}") from error
    return episodes if type(episodes) is int else None


def shared_arguments(config: EnvConfig, section: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of one section that both the environment and its translator take.

    The generic translator shares none: equal names of an environment mean something else.
    """
    spec = env_registration(config)
    if spec.translator == env.TRANSLATOR:
        return {}
    both = set(named_parameters(environment_class(spec))) & set(
        named_parameters(registry.load(spec.translator))
    )
    for name in both & config.kwargs.keys() & config.translator_kwargs.keys():
        if config.kwargs[name] != config.translator_kwargs[name]:
            raise ConfigError(
                f"env.translator_kwargs.{name}={config.translator_kwargs[name]} contradicts "
                f"env.kwargs.{name}={config.kwargs[name]}: environment and translator share it; "
                "set it only once"
            )
    return {name: section[name] for name in section if name in both}


def environment_class(spec: env.EnvRegistration) -> Any:
    """The class or function that makes an environment."""
    return spec.entry_point if callable(spec.entry_point) else registry.load(spec.entry_point)


def named_parameters(cls: Any) -> dict[str, inspect.Parameter]:
    """The named parameters of a class or function; empty if its signature is unknown."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in _signature(cls).items() if p.kind in by_name}


def _takes_any_keyword(cls: Any) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in _signature(cls).values())


def _signature(cls: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(cls).parameters
    except (TypeError, ValueError):  # a compiled function may have no signature
        return {"anything": inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD)}
