"""An environment named in a configuration, with all its names resolved once.

An argument that both the environment and the translator accept, such as a game mode, is passed to
both, whichever section sets it.
"""

import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import gymnasium

from agentrl import env_registry, user_code
from agentrl.config import EnvConfig, History, parse_history
from agentrl.data.gymnasium_spaces import AnyText
from agentrl.errors import (
    ConfigError,
    InvalidArgument,
    boundary,
    describe_error,
    must_propagate,
)
from agentrl.extension_points import DIALECT, PLAYER, TRANSLATOR
from agentrl.rollout.environments.env_server import is_text_space
from agentrl.text.name_suggestions import known_names

log = logging.getLogger(__name__)

_MAKE_ARGUMENTS = ("max_episode_steps", "render_mode")
"""Arguments of `gymnasium.make` itself."""
_ALLOW = "allow"


@dataclass(kw_only=True, frozen=True, eq=False)
class ResolvedEnv:
    """The environment of a job in one split, with its class, translator and players.

    Made by `resolve_env`.
    """

    settings: EnvConfig
    """The section `env`; in evaluation, its `kwargs` include `overrides`."""
    registration: env_registry.EnvRegistration
    """The environment's registration, with the translator and players from the settings."""
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Keyword arguments by the section that overrides `env.kwargs` with them, such as `eval.kwargs`
    or `eval.rings.levels`; later sections win. Empty when training."""
    section: str = "env.kwargs"
    """The configuration key of `settings.kwargs`, for messages."""
    allowed_apps: Sequence[str] = ()
    """Packages allowed in the foreground in addition to the environment's own app."""

    @property
    def id(self) -> str:
        """The id that the user wrote."""
        return self.settings.id

    @property
    def app(self) -> str | None:
        """The app that the phone must run; None for an environment without a phone."""
        return self.registration.app

    @property
    def players(self) -> Mapping[str, str]:
        """`module:Class` of each scripted player, by name."""
        return self.registration.players

    @cached_property
    def entry_point(self) -> Any:
        """The class or function that creates the environment."""
        point = self.registration.entry_point
        return point if callable(point) else user_code.load(point)

    @cached_property
    def history(self) -> History:
        """The history in prompts; see `history_of`."""
        return history_of(self.settings)

    @cached_property
    def stop_texts(self) -> tuple[str, ...]:
        """Stop strings of the configured dialect, except one that ends each of several actions."""
        settings = self.settings
        if settings.dialect is None:
            return ()
        dialect = DIALECT.resolve(settings.dialect)
        ends_action = f"</{dialect.action_tag}>" if settings.max_actions_per_reply > 1 else None
        return tuple(stop for stop in dialect.stop if stop != ends_action)

    @property
    def eval_note(self) -> str:
        """The evaluation arguments, for messages that do not name one; empty when training."""
        given = ", ".join(f"{section}={dict(kwargs)}" for section, kwargs in self._given.items())
        return f" (with {given})" if given else ""

    @property
    def _given(self) -> dict[str, Mapping[str, Any]]:
        return {section: kwargs for section, kwargs in self.overrides.items() if kwargs}

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The named parameters of the entry point; empty if its signature is unknown."""
        return named_parameters(self.entry_point)

    @cached_property
    def kwargs(self) -> dict[str, Any]:
        """The environment's arguments, except its phone.

        Raises:
            ConfigError: `env.kwargs` and `env.translator_kwargs` contradict each other.
        """
        return {**self.shared(self.settings.translator_kwargs), **self.settings.kwargs}

    @property
    def own_kwargs(self) -> dict[str, Any]:
        """`kwargs` without the arguments of `gymnasium.make`."""
        return {k: v for k, v in self.kwargs.items() if k not in _MAKE_ARGUMENTS}

    @property
    def all_kwargs(self) -> dict[str, Any]:
        """`kwargs` with the entry point's defaults."""
        return {**{name: one.default for name, one in self.parameters.items()}, **self.kwargs}

    def remote_kwargs(self, deadline_s: float) -> dict[str, Any]:
        """Return a remote environment's extra arguments for how long its client waits."""
        if self.id.startswith("openenv://"):
            return {"agentrl_deadline_s": deadline_s}
        if not self.id.startswith("http://"):
            return {}
        patience_s = self.settings.patience_s
        return {"agentrl_deadline_s": deadline_s, "agentrl_patience_s": patience_s}

    def with_allowed_apps(self, allow: Sequence[str]) -> "ResolvedEnv":
        """Allow more packages in the foreground than the environment's own app.

        Raises:
            ConfigError: packages are given, but the environment does not accept them.
        """
        if self.app is None or not allow:
            return self
        if _ALLOW not in self.parameters and not _takes_any_keyword(self.entry_point):
            raise ConfigError(
                f"devices.allow={list(allow)}: {self.id} does not guard its phone (its constructor "
                f"has no parameter `{_ALLOW}`); remove devices.allow"
            )
        return replace(self, allowed_apps=tuple(allow))

    def crash_hint(self) -> str:
        """Return a hint to use `env.processes` if an environment may have killed a process."""
        if self.settings.processes or self.app is not None:
            return ""
        return f". If {self.id}, which runs in its threads, is the cause, set env.processes=1"

    def make(self, render_mode: str | None = None, **place: Any) -> "gymnasium.Env[Any, Any]":
        """Create the environment with its wrappers.

        Args:
            render_mode: used unless `env.kwargs` sets a render mode.
            **place: `device` for an environment played on a phone, or `remote_kwargs`.

        Raises:
            ConfigError: the environment cannot be created, or rejects its arguments.
        """
        kwargs: dict[str, Any] = {**self.kwargs, **place}
        if self.allowed_apps:
            kwargs[_ALLOW] = list(self.allowed_apps)
        if render_mode is not None:
            kwargs.setdefault("render_mode", render_mode)
        # Turn off Gymnasium's passive checker: running for every lease of a phone, it would take
        # longer than a turn. `agentrl check env` runs it instead.
        with self.named_keys():
            instance = env_registry.make_registered(
                self.registration, self.id, {"disable_env_checker": True, **kwargs}
            )
            for wrapper in self.settings.wrappers:
                cls = user_code.load(wrapper.wrapper)
                what = f"env.wrappers: {wrapper.wrapper} failed with kwargs={wrapper.kwargs}"
                with boundary(ConfigError, what):
                    instance = cls(instance, **wrapper.kwargs)
        return with_text_actions(instance)

    def check_arguments(self) -> int | None:
        """Check once that the environment accepts its arguments, without creating it.

        An environment that needs further checks, such as reading a data set, has a class method
        `check_kwargs`.

        Returns:
            The number of distinct episodes, if `check_kwargs` returns it; else None.

        Raises:
            ConfigError: as in `kwargs`; or the constructor rejects an argument, or lacks one.
        """
        # Cached, because counting may read a whole data set.
        return self._num_episodes

    @cached_property
    def _num_episodes(self) -> int | None:
        given = self.settings.kwargs
        if self.app is not None and "device" in given:
            raise ConfigError(
                f"{self._section_of('device')}.device={given['device']}: each episode gets one of "
                "the phones of devices.source; name your phone there"
            )
        if self.app is not None and _ALLOW in given:
            raise ConfigError(f"{self._section_of(_ALLOW)}.{_ALLOW}: set devices.allow instead")
        for name in given:
            known = name in self.parameters or name in _MAKE_ARGUMENTS
            if not known and not _takes_any_keyword(self.entry_point):
                raise ConfigError(
                    f"{self._section_of(name)}.{name}: {self.id} does not accept this argument"
                    f"{known_names(name, self.parameters, label='It accepts')}"
                )
        section = next(reversed(self._given), self.section)
        registered = gymnasium.spec(self.registration.id).kwargs or {}
        required = [n for n, p in self.parameters.items() if p.default is p.empty]
        missing = [n for n in required if n not in {"device", *registered, *self.kwargs}]
        if missing:
            raise ConfigError(f"{section}: {self.id} requires {', '.join(missing)}")
        if (check := getattr(self.entry_point, "check_kwargs", None)) is None:
            return None
        try:
            episodes = check(**self.own_kwargs)
        except InvalidArgument as error:
            raise ConfigError(f"{self._section_of(error.name)}.{error}") from error
        except ConfigError as error:
            raise ConfigError(f"{section}: {error}") from error
        return episodes if type(episodes) is int else None

    def first_observations(self) -> Iterator[env_registry.FirstObservation]:
        """Yield the start of each episode if the environment knows all of its episodes."""
        if (first := getattr(self.entry_point, "first_observations", None)) is not None:
            yield from first(**self.own_kwargs)

    @contextmanager
    def named_keys(self) -> Iterator[None]:
        """Report rejected arguments by their full key, such as `env.kwargs.cards`.

        Raises:
            ConfigError: replaces an `InvalidArgument`; in evaluation, also any other ConfigError.
        """
        try:
            yield
        except InvalidArgument as error:
            raise ConfigError(f"{self._section_of(error.name)}.{error}") from error
        except ConfigError as error:
            if not self._given:
                raise
            raise ConfigError(f"{error}{self.eval_note}") from error

    def _section_of(self, name: str) -> str:
        """Return the configuration section that sets an argument."""
        for section in reversed(list(self.overrides)):
            if name in self.overrides[section]:
                return section
        settings = self.settings
        shared = name in settings.translator_kwargs and name not in settings.kwargs
        return "env.translator_kwargs" if shared else self.section

    def shared(self, section: Mapping[str, Any]) -> dict[str, Any]:
        """Return one section's arguments that both environment and translator accept."""
        # The generic translator shares no arguments: the same names mean something else there.
        if self.registration.translator == env_registry.TRANSLATOR:
            return {}
        settings = self.settings
        translator = user_code.load(self.registration.translator)
        both = self.parameters.keys() & named_parameters(translator).keys()
        for name in both & settings.kwargs.keys() & settings.translator_kwargs.keys():
            if settings.kwargs[name] != settings.translator_kwargs[name]:
                raise ConfigError(
                    f"env.translator_kwargs.{name}={settings.translator_kwargs[name]} contradicts "
                    f"env.kwargs.{name}={settings.kwargs[name]}; the environment and its "
                    "translator share this argument, so set it only once"
                )
        return {name: section[name] for name in section if name in both}


def resolve_env(
    settings: EnvConfig,
    overrides: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    *,
    section: str = "env.kwargs",
) -> ResolvedEnv:
    """Look up an environment, with the translator and players that the settings name.

    Args:
        settings: the section `env`.
        overrides: see `ResolvedEnv`.
        section: the configuration key of `settings.kwargs`, for messages.

    Raises:
        ConfigError: the environment does not exist.
    """
    known = env_registry.find_env(settings.id)
    own = settings.translator_class
    players = {name: PLAYER.target(target) for name, target in settings.players.items()}
    registration = replace(
        known,
        translator=known.translator if own is None else TRANSLATOR.target(own),
        players=env_registry.with_common({**known.players, **players}),
    )
    kwargs = dict(settings.kwargs)
    for own_kwargs in overrides.values():
        kwargs |= own_kwargs
    return ResolvedEnv(
        settings=replace(settings, kwargs=kwargs),
        registration=registration,
        overrides=overrides,
        section=section,
    )


def history_of(settings: EnvConfig) -> History:
    """Return the history in prompts: `env.history`, or else the dialect's default.

    Raises:
        ConfigError: the dialect does not exist, or the history is invalid.
    """
    if settings.history is not None:
        return parse_history(settings.history)
    if settings.dialect is None:
        return History()
    return parse_history(DIALECT.resolve(settings.dialect).history)


def close_env(instance: "gymnasium.Env[Any, Any]", name: str) -> None:
    """Close an environment for good; log any error that it raises."""
    try:
        instance.close()
    except BaseException as error:
        if must_propagate(error):
            raise
        log.warning("closing %s failed: %s", name, describe_error(error))


def with_text_actions(instance: "gymnasium.Env[Any, Any]") -> "gymnasium.Env[Any, Any]":
    """If the action space is text and cannot be sampled, replace it with `AnyText`.

    MiniWoB and BrowserGym have such spaces, which contain every string.
    """
    space = instance.action_space
    if isinstance(space, gymnasium.spaces.Text) or not is_text_space(space):
        return instance
    return _TextActions(instance)


class _TextActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: "gymnasium.Env[Any, Any]") -> None:
        super().__init__(env)
        self.action_space = AnyText()


def named_parameters(cls: Any) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a class or function; empty if its signature is unknown."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in _signature(cls).items() if p.kind in by_name}


def _takes_any_keyword(cls: Any) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in _signature(cls).values())


def _signature(cls: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(cls).parameters
    # Compiled functions may have no signature.
    except (TypeError, ValueError):
        return {"anything": inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD)}
