"""The registry of environments, which also makes them and their translators."""

import importlib.util
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentrl import extras, user_code
from agentrl.actions.translator import Translator
from agentrl.errors import ConfigError, boundary, message_of, with_short_mistakes
from agentrl.extension_points import ENV
from agentrl.text.name_suggestions import did_you_mean, list_names

TRANSLATOR = "agentrl.actions.default_translator:SpaceTranslator"
"""Default translator for environments that do not have one."""


@dataclass(slots=True, kw_only=True, frozen=True)
class FirstObservation:
    """First observation of an episode, from an environment that knows all its episodes in advance.

    The environment yields these from a class method `first_observations(**kwargs)`, omitting the
    rows passed as `skip_rows`.
    """

    row: int
    """Identifies the episode."""
    name: str
    """Identifies the episode in messages."""
    observation: Any
    info: Mapping[str, Any]
    """Info that `reset` returns for this episode."""


@dataclass(slots=True, kw_only=True, frozen=True)
class EnvRegistration:
    """An environment's registration, beyond its Gymnasium spec."""

    id: str
    """Id in Gymnasium's registry."""
    entry_point: str | Callable[..., Any]
    """`module:Class` of the environment, or a callable that makes it."""
    translator: str = TRANSLATOR
    """`module:Class` of the translator; takes the keyword arguments of `env.translator_kwargs`."""
    players: Mapping[str, str] = field(default_factory=dict)
    """Scripted players by name, each `module:Class`. The class must not require any argument other
    than `action_space`, `translator`, and other players, such as `expert`."""
    app: str | None = None
    """`module:Class` of the app that a phone must run; None for an environment without a phone."""
    state_schema: str | None = None
    """`module:Class` of the fields for state estimates (`env.state_estimation`), if any."""


_ENVS: dict[str, EnvRegistration] = {}
_RANDOM = {"random": "agentrl.actions.players.random_player:RandomPlayer"}
"""Players that all environments with the default translator have."""
_NOOP = {"noop": "agentrl.actions.players.noop_player:NoopPlayer"}
"""Players that all environments have."""
_NOISY = {"noisy": "agentrl.actions.players.noisy_player:NoisyPlayer"}
"""Players that all environments with an expert and a random player have."""
_REMOTE = "agentrl.rollout.environments.env_client:make_remote_env"
_FOREIGN = {
    "http://": _REMOTE,
    "https://": _REMOTE,
    "openenv://": "agentrl.rollout.environments.openenv_client:OpenEnvClient",
    "pettingzoo:": "agentrl.rollout.environments.pettingzoo_game:PettingZooGame",
}
"""Maps id prefixes to entry points, which receive the rest of the id."""
_PHONE_ARGUMENT = (
    '. An environment that is registered with an app must take `device: str = "virtual"` and open '
    "it with agentrl.devices.open_device(device, apps=[...])"
)


def register(
    id: str,
    entry_point: str,
    *,
    translator: str = TRANSLATOR,
    players: Mapping[str, str] | None = None,
    app: str | None = None,
    state_schema: str | None = None,
    **spec: Any,
) -> None:
    """Make an environment known to Gymnasium and to agentrl.

    Args:
        id: id of the environment, such as `Name-v0`.
        entry_point: `module:Class` of the `gymnasium.Env`.
        translator: `module:Class` of its translator; the default translator is configured by
            `env.translator_kwargs`.
        players: scripted players, `{name: "module:Class"}`; the default translator always comes
            with a `random` player.
        app: `module:Class` of the phone app that the environment plays, if any.
        state_schema: `module:Class` of its `StateSchema`, for `env.state_estimation`, if any.
        **spec: other arguments of `gymnasium.register`.
    """
    known = gymnasium.registry.get(id)
    if known is None or known.entry_point != entry_point:  # a script may be imported twice
        gymnasium.register(id=id, entry_point=entry_point, **spec)
    _ENVS[id] = EnvRegistration(
        id=id,
        entry_point=entry_point,
        translator=translator,
        players=with_common({**(_RANDOM if translator == TRANSLATOR else {}), **(players or {})}),
        app=app,
        state_schema=state_schema,
    )


def with_common(players: Mapping[str, str]) -> dict[str, str]:
    """Add the player `noop`, and `noisy` if an environment has the players that it mixes."""
    mixed = _NOISY if {"expert", "random"} <= players.keys() else {}
    return {**mixed, **players, **{name: _NOOP[name] for name in _NOOP.keys() - players.keys()}}


def find_env(id: str) -> EnvRegistration:
    """Look up an environment.

    Args:
        id: `Name-v0` of agentrl or of Gymnasium; `module:Name-v0` or `path/file.py:Name-v0` if
            that module registers it; the class itself as `module:Class` or `path/file.py:Class`;
            `http://HOST:PORT` of a server (`agentrl serve-env`); `openenv://HOST:PORT` of an
            OpenEnv server; or `pettingzoo:MODULE`.

    Raises:
        ConfigError: the module or the environment does not exist.
    """
    for prefix, point in _FOREIGN.items():
        if id.startswith(prefix):
            return _register_foreign(id, point, id if "http" in prefix else id.removeprefix(prefix))
    module, _, name = id.rpartition(":")
    loaded = user_code.import_module(module or "agentrl.envs")
    if name in _ENVS:
        return _ENVS[name]
    kind = getattr(loaded, name, None)
    if module and isinstance(kind, type) and issubclass(kind, gymnasium.Env):
        return _register_class(id, kind)
    try:
        return _gymnasium_env(name)
    except ConfigError:
        if not module and name in ENV.names():  # from an installed package
            return find_env(ENV.target(name))
        if module and kind is not None:
            raise ConfigError(
                f"env.id={id}: {name!r} is not a gymnasium.Env{_old_gym_hint(kind)}"
            ) from None
        registered = getattr(sys.modules.get("gym.envs.registration"), "registry", {})
        if module and name in registered:
            point = registered[name].entry_point
            hint = _old_gym_hint(user_code.load(point) if isinstance(point, str) else point)
            raise ConfigError(
                f"env.id={id}: {name!r} is not registered with gymnasium{hint}"
            ) from None
        if not module or re.search(r"-v\d+$", name):
            raise
        known = [n for n, member in vars(loaded).items() if isinstance(member, type)]
        raise ConfigError(
            f"env.id={id}: {name!r} does not exist{did_you_mean(name, known)}"
        ) from None


def _old_gym_hint(kind: Any) -> str:
    """Suggest a fix for a class of the old gym package; empty for any other class."""
    if not any(base.__module__.startswith("gym.") for base in getattr(kind, "__mro__", ())):
        return ""
    version = "26" if "seed" in inspect.signature(kind.reset).parameters else "21"
    return (
        f", but an environment of the old gym package; derive {kind.__name__} from gymnasium.Env, "
        f"or wrap it in GymV{version}CompatibilityV0 from the package shimmy"
    )


def env_targets() -> dict[str, str]:
    """Map the id of each built-in environment to its `module:Class`."""
    return {entry.id: str(entry.entry_point) for entry in _builtin_envs()}


def translator_targets() -> dict[str, str]:
    """Map environment ids, and `space` for the default, to the translator's `module:Class`."""
    return {**{entry.id: entry.translator for entry in _builtin_envs()}, "space": TRANSLATOR}


def player_targets() -> dict[str, str]:
    """Map scripted players, as `ID/NAME`, to their `module:Class`; `random` plays in any space."""
    return _RANDOM | {
        f"{entry.id}/{name}": target
        for entry in _builtin_envs()
        for name, target in entry.players.items()
    }


def _builtin_envs() -> list[EnvRegistration]:
    own = f"{__package__}."
    return [entry for entry in registered_envs() if str(entry.entry_point).startswith(own)]


def registered_envs() -> list[EnvRegistration]:
    """Return all environments registered with agentrl, sorted by id."""
    user_code.import_module("agentrl.envs")
    return [_ENVS[id] for id in sorted(_ENVS)]


def third_party_envs() -> dict[str, str]:
    """List the environments of Gymnasium and of installed packages.

    Returns:
        Maps each environment id to the reason it cannot be created here, or "" if it can.
    """
    user_code.import_module("agentrl.envs")
    ids = sorted(id for id in gymnasium.registry if id not in _ENVS and ":" not in id)
    return {id: _why_unavailable(id) for id in ids}


def _why_unavailable(id: str) -> str:
    """Return why an environment cannot be created; only import environments of other packages."""
    point = gymnasium.spec(id).entry_point
    try:
        module = point if isinstance(point, str) else getattr(point, "__module__", "")
        if module.startswith("gymnasium."):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as warnings that a newer version exists
                gymnasium.make(id, disable_env_checker=True).close()
        elif isinstance(point, str):
            user_code.load(point)
    except Exception as error:  # third-party modules may raise anything
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def _register_class(id: str, kind: Any) -> EnvRegistration:
    """Register an environment class named directly."""
    module = re.split(r"\W+", id.rpartition(":")[0].removesuffix(".py").strip("/"))
    own = f"{module[-1]}/{kind.__name__}-v0"
    if own in gymnasium.registry and gymnasium.registry[own].entry_point is not kind:
        # Another module has a class with this name.
        own = f"{'-'.join(module)}/{kind.__name__}-v0"
        gymnasium.registry.pop(own, None)  # a file may be loaded more than once
    if own not in gymnasium.registry:
        gymnasium.register(id=own, entry_point=kind)
    return EnvRegistration(id=own, entry_point=kind, players=_RANDOM)


def _register_foreign(id: str, entry_point: str, target: str) -> EnvRegistration:
    """Register an environment whose id prefix selects a client or an adapter."""
    own = f"foreign/{re.sub(r'[^A-Za-z0-9.-]+', '-', id).strip('-')}-v0"
    if own not in gymnasium.registry:
        gymnasium.register(id=own, entry_point=entry_point, kwargs={"agentrl_target": target})
    return EnvRegistration(id=own, entry_point=entry_point, players=_RANDOM)


def _gymnasium_env(name: str) -> EnvRegistration:
    try:
        spec = gymnasium.spec(name)
    except gymnasium.error.DeprecatedEnv as error:
        raise ConfigError(f"env.id: {error}") from error
    except gymnasium.error.Error as error:
        own = [entry.id for entry in registered_envs()]
        meant = did_you_mean(name, [*own, *gymnasium.registry])
        known = "" if meant else f" agentrl has: {list_names(own)}."
        raise ConfigError(
            f"env.id: no environment {name!r} is registered{meant}.{_module_hint(name)}{known} "
            "`agentrl envs list --all` lists all, including those of Gymnasium and of installed "
            "packages. For your own environment, call agentrl.register(...) in its module, or "
            "give its class as module:Class."
        ) from error
    if spec.entry_point is None:
        raise ConfigError(
            f"env.id: {name} can only be created as a vector environment, which agentrl does not "
            "support"
        )
    return EnvRegistration(id=spec.id, entry_point=spec.entry_point, players=_RANDOM)


def _module_hint(name: str) -> str:
    """Suggest adding the module to an id that a package registers on import."""
    space, _, rest = name.rpartition("/")
    module = {"ALE": "ale_py"}.get(space, space) or rest.partition("-")[0].lower()
    if not module.isidentifier():
        return ""
    try:
        is_installed = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return ""
    if not is_installed and (command := extras.installation_of(module)) is not None:
        return f" Environments of {module} require it to be installed; run: {command}."
    if not is_installed:
        return f" If a package registers it, add its module: MODULE:{name}." if "-v" in name else ""
    return f" If the installed {module} registers it, use {module}:{name}."


def apps() -> list[str]:
    """Return the phone apps of all registered environments, each `module:Class`."""
    user_code.import_module("agentrl.envs")
    return sorted({entry.app for entry in _ENVS.values() if entry.app is not None})


@with_short_mistakes
def make_translator(id: str, kwargs: Mapping[str, Any] = MappingProxyType({})) -> Translator:
    """Make the translator of an environment.

    Args:
        id: as in `find_env`.
        kwargs: arguments of the translator. If arguments of the default translator that describe
            the environment, such as `action_space`, are missing, the environment is created to read
            them.

    Raises:
        ConfigError: the environment does not exist, or its translator rejects the arguments.
    """
    found = find_env(id)
    if found.translator == TRANSLATOR and "action_space" not in kwargs:
        with closing(make(id)) as made:
            kwargs = {**interface_of(made), **kwargs}
    return translator_for(found, kwargs)


def interface_of(made: "gymnasium.Env[Any, Any]") -> dict[str, Any]:
    """Return the facts about an environment that are passed to the default translator."""
    return {
        "action_space": made.action_space,
        "observation_space": made.observation_space,
        "render_modes": tuple(made.metadata.get("render_modes") or ()),
    }


def translator_for(entry: EnvRegistration, kwargs: Mapping[str, Any]) -> Translator:
    """Make the translator of a registered environment.

    Raises:
        ConfigError: the translator does not exist, or rejects the arguments.
    """
    own = ("action_space", "observation_space", "render_modes")
    shown = {name: value for name, value in kwargs.items() if name not in own}
    what = f"env.translator_kwargs: the translator of {entry.id} rejects {shown}"
    with boundary(ConfigError, what):
        translator: Translator = user_code.load(entry.translator)(**kwargs)
    return translator


@with_short_mistakes
def make(id: str, **kwargs: Any) -> "gymnasium.Env[Any, Any]":
    """Make an environment.

    Args:
        id: as in `find_env`.
        **kwargs: arguments of its constructor.

    Raises:
        ConfigError: the environment does not exist, or rejects the arguments.
    """
    return make_registered(find_env(id), id, kwargs)


def make_registered(
    entry: EnvRegistration, id: str, kwargs: Mapping[str, Any]
) -> "gymnasium.Env[Any, Any]":
    """Make a registered environment.

    Args:
        entry: the environment's registration.
        id: the environment's id as written by the user, for messages.
        kwargs: arguments of the environment's constructor.

    Raises:
        ConfigError: the environment rejects the arguments, or a package is missing.
    """
    spec: EnvSpec = gymnasium.spec(entry.id)
    try:
        return gymnasium.make(spec, **kwargs)
    except TypeError as error:
        why = message_of(error)
        fix = _PHONE_ARGUMENT if entry.app and "'device'" in why else ""
        raise ConfigError(f"env.kwargs: {id} rejects the arguments: {why}{fix}") from error
    except (gymnasium.error.Error, ImportError) as error:  # such as a missing package
        raise ConfigError(f"env.id: {id} cannot be constructed: {message_of(error)}") from error
