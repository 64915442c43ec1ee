"""Environments by name: registration, making, and what a game brings beside its `gymnasium.Env`."""

import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from agentrl import registry
from agentrl.errors import ConfigError, told
from agentrl.text import did_you_mean
from agentrl.types import Message, Observation

TRANSLATOR = "agentrl.actions.space_translator:SpaceTranslator"
"""Of environments that bring none of their own."""


class Translator(Protocol):
    """All the words of a game: what the model is told, and what its reply means.

    Three more members are there for those who have a use for them: `render_mode`, which the
    environment is made with; `meet(env)`, called with the environment before its first reset; and
    `how()`, the part of the instructions that says how to answer, which a person who plays is told
    where the instructions are empty.
    """

    def instructions(self) -> str:
        """How to play; goes before the first observation. May be empty."""

    def to_observation(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        """What of an environment's observation the model is shown."""

    def to_message(self, observation: Observation) -> Message:
        """The user's turn; `<image>` in its text stands for the next picture."""

    def to_action(self, reply: str) -> Any:
        """The action that a reply means.

        Raises:
            ActionError: it is none; the environment is then given `no_action`.
        """

    def no_action(self) -> Any:
        """What the environment is given for a reply that is no action; None skips the step."""


class Player(Protocol):
    """A scripted player: answers as a model would, but knows the truth."""

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """The reply to the state whose truth stands in `info`."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Game:
    """What agentrl knows of an environment beside its Gymnasium spec."""

    id: str
    """Gymnasium's."""
    entry_point: str | Callable[..., Any]
    """`module:Class` of the environment, or what makes it."""
    translator: str = TRANSLATOR
    """`module:name` of the translator's class; takes `translator` keyword arguments."""
    players: Mapping[str, str] = field(default_factory=dict)
    """Scripted players by name, each `module:name` of a class without required arguments, but for
    `action_space`, which is given to those that take it."""
    app: str | None = None
    """`module:name` of the app that a phone must run; None for an environment without phone."""


_GAMES: dict[str, Game] = {}
_RANDOM = {"random": "agentrl.actions.space_translator:RandomPlayer"}
"""Who plays where the translator is the common one."""


def register(
    id: str,
    entry_point: str,
    *,
    translator: str = TRANSLATOR,
    players: Mapping[str, str] | None = None,
    app: str | None = None,
    **spec: Any,
) -> None:
    """Make an environment known to Gymnasium and to agentrl.

    Args:
        id: `Name-v0`.
        entry_point: `module:Class` of the `gymnasium.Env`.
        translator: `module:Class` of its translator; the default takes its words from the
            configuration.
        players: scripted players, `{name: "module:Class"}`; with the default translator there is a
            `random` one in any case.
        app: `module:Class` of the phone app it plays, if it plays one.
        **spec: further arguments of `gymnasium.register`.
    """
    known = gymnasium.registry.get(id)
    if known is None or known.entry_point != entry_point:  # a script may be imported once more
        gymnasium.register(id=id, entry_point=entry_point, **spec)
    _GAMES[id] = Game(
        id=id,
        entry_point=entry_point,
        translator=translator,
        players={**(_RANDOM if translator == TRANSLATOR else {}), **(players or {})},
        app=app,
    )


def game(id: str) -> Game:
    """What stands behind an environment's name.

    Args:
        id: `Name-v0` of agentrl or of Gymnasium, `module:Name-v0` where a module registers it,
            `path/file.py:Name-v0`, the class itself: `module:Class`, `path/file.py:Class`, or
            `http://HOST:PORT` of what serves one.

    Raises:
        ConfigError: the module or the environment does not exist.
    """
    if id.startswith(("http://", "https://")):
        return _remote_game(id)
    module, _, name = id.rpartition(":")
    loaded = registry.import_module(module or "agentrl.envs")
    if name in _GAMES:
        return _GAMES[name]
    kind = getattr(loaded, name, None)
    if module and isinstance(kind, type) and issubclass(kind, gymnasium.Env):
        return _class_as_game(id, kind)
    try:
        return _game_of_gymnasium(name)
    except ConfigError:
        if not module or re.search(r"-v\d+$", name):
            raise
        known = [n for n, one in vars(loaded).items() if isinstance(one, type)]
        lack = "is no gymnasium.Env" if kind is not None else "is not there"
        raise ConfigError(f"env.id={id}: {name!r} {lack}{did_you_mean(name, known)}") from None


def games() -> list[Game]:
    """All that are registered with agentrl, by their ids."""
    registry.import_module("agentrl.envs")
    return [_GAMES[id] for id in sorted(_GAMES)]


def foreign() -> dict[str, str]:
    """The ids that Gymnasium knows beside those of agentrl, its own and installed packages'.

    Returns:
        Why each cannot be made here; empty where nothing stands against it.
    """
    registry.import_module("agentrl.envs")
    ids = sorted(id for id in gymnasium.registry if id not in _GAMES and ":" not in id)
    return {id: _hindrance(id) for id in ids}


def _hindrance(id: str) -> str:
    """What an environment lacks. Gymnasium's own are made, others' modules only imported."""
    point = gymnasium.spec(id).entry_point
    try:
        module = point if isinstance(point, str) else getattr(point, "__module__", "")
        if module.startswith("gymnasium."):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there is a newer version, say
                gymnasium.make(id, disable_env_checker=True).close()
        elif isinstance(point, str):
            registry.load(point)
    except Exception as error:  # foreign modules fail in as many ways as there are
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def _class_as_game(id: str, kind: Any) -> Game:
    """An environment that nobody has registered."""
    module = re.split(r"\W+", id.rpartition(":")[0].removesuffix(".py").strip("/"))
    own = f"{module[-1]}/{kind.__name__}-v0"
    if own in gymnasium.registry and gymnasium.registry[own].entry_point is not kind:
        own = f"{'-'.join(module)}/{kind.__name__}-v0"  # another module's class has the short name
        gymnasium.registry.pop(own, None)  # a file may be loaded once more
    if own not in gymnasium.registry:
        gymnasium.register(id=own, entry_point=kind)
    return Game(id=own, entry_point=kind, players=_RANDOM)


def _remote_game(url: str) -> Game:
    """An environment that a server plays."""
    remote = "agentrl.serving.remote_env:served"
    own = f"remote/{re.sub(r'[^A-Za-z0-9.-]+', '-', url.partition('//')[2]).strip('-')}-v0"
    if own not in gymnasium.registry:
        gymnasium.register(id=own, entry_point=remote, kwargs={"agentrl_url": url})
    return Game(id=own, entry_point=remote, players=_RANDOM)


def _game_of_gymnasium(name: str) -> Game:
    try:
        spec = gymnasium.spec(name)
    except gymnasium.error.DeprecatedEnv as error:
        raise ConfigError(f"env.id: {error}") from error
    except gymnasium.error.Error as error:
        known = [*_GAMES, *gymnasium.registry]
        raise ConfigError(
            f"env.id: no environment {name!r} is registered{did_you_mean(name, known)}. "
            f"Of agentrl: {', '.join(sorted(_GAMES)) or 'none'}. Gymnasium's own and those of "
            "installed packages: agentrl envs list --all. A module of yours must call "
            "agentrl.register(...) when imported, or name its class as module:Class."
        ) from error
    if spec.entry_point is None:
        raise ConfigError(f"env.id: {name} can be made as a vector of environments alone")
    return Game(id=spec.id, entry_point=spec.entry_point, players=_RANDOM)


def apps() -> list[str]:
    """The phone apps of all registered games, each `module:Class`."""
    registry.import_module("agentrl.envs")
    return sorted({game.app for game in _GAMES.values() if game.app is not None})


def make_translator(id: str, kwargs: Mapping[str, Any] = MappingProxyType({})) -> Translator:
    """The translator of an environment.

    Args:
        id: as `game` takes it.
        kwargs: what the translator is made with; an `action_space` that it takes and is not given
            is seen by making the environment.

    Raises:
        ConfigError: the environment does not exist, or its translator refuses the arguments.
    """
    found = game(id)
    if found.translator == TRANSLATOR and "action_space" not in kwargs:
        with closing(make(id)) as made:
            kwargs = {**kwargs, "action_space": made.action_space}
    return translator_of(found, kwargs)


def translator_of(game: Game, kwargs: Mapping[str, Any]) -> Translator:
    """A game's translator, made with these arguments.

    Raises:
        ConfigError: it does not exist, or refuses them.
    """
    try:
        translator: Translator = registry.load(game.translator)(**kwargs)
    except ConfigError:
        raise
    except Exception as error:
        shown = {name: value for name, value in kwargs.items() if name != "action_space"}
        raise ConfigError(
            f"env.translator: {game.id} does not take {shown}: {told(error)}"
        ) from error
    return translator


def make(id: str, **kwargs: Any) -> "gymnasium.Env[Any, Any]":
    """Make an environment.

    Args:
        id: as `game` takes it.
        **kwargs: for its constructor.

    Raises:
        ConfigError: it does not exist, or does not take these arguments.
    """
    spec: EnvSpec = gymnasium.spec(game(id).id)
    try:
        return gymnasium.make(spec, **kwargs)
    except TypeError as error:
        raise ConfigError(f"env.kwargs: {id} does not take them: {error}") from error
    except (gymnasium.error.Error, ImportError) as error:  # a package that it needs, say
        raise ConfigError(f"env.id: {id} cannot be made: {error}") from error
