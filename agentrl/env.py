"""Environments by name: registration, making, and what a game brings beside its `gymnasium.Env`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from agentrl import plugins
from agentrl.errors import ConfigError, told
from agentrl.types import Message, Observation


class Translator(Protocol):
    """All the words of a game: what the model is told, and what its reply means."""

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
    entry_point: str
    """`module:Class` of the environment."""
    translator: str
    """`module:name` of the translator's class; takes `translator` keyword arguments."""
    players: Mapping[str, str] = field(default_factory=dict)
    """Scripted players by name, each `module:name` of a class without required arguments."""
    app: str | None = None
    """`module:name` of the app that a phone must run; None for an environment without phone."""


_GAMES: dict[str, Game] = {}


def register(
    id: str,
    entry_point: str,
    *,
    translator: str = "agentrl.data.discrete:DiscreteTranslator",
    players: Mapping[str, str] | None = None,
    app: str | None = None,
    **spec: Any,
) -> None:
    """Make an environment known to Gymnasium and to agentrl.

    Args:
        id: `Name-v0`.
        entry_point: `module:Class` of the `gymnasium.Env`.
        translator: `module:Class` of its translator; the default takes the `names` of a few
            discrete actions from the configuration.
        players: scripted players, `{name: "module:Class"}`.
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
        players=dict(players or {}),
        app=app,
    )


def game(id: str) -> Game:
    """What is registered under `Name-v0`, `module:Name-v0` or `path/file.py:Name-v0`.

    Raises:
        ConfigError: the module or the environment does not exist.
    """
    module, _, name = id.rpartition(":")
    plugins.import_module(module or "agentrl.envs")
    if name not in _GAMES:
        raise ConfigError(
            f"env.id: no environment {name!r} is registered"
            f"{plugins.did_you_mean(name, _GAMES)}. Known: {', '.join(sorted(_GAMES)) or 'none'}. "
            "A module of yours must call agentrl.register(...) when imported."
        )
    return _GAMES[name]


def apps() -> list[str]:
    """The phone apps of all registered games, each `module:Class`."""
    plugins.import_module("agentrl.envs")
    return sorted({game.app for game in _GAMES.values() if game.app is not None})


def make_translator(id: str, kwargs: Mapping[str, Any] = MappingProxyType({})) -> Translator:
    """The translator of an environment.

    Raises:
        ConfigError: the environment does not exist, or its translator refuses the arguments.
    """
    try:
        translator: Translator = plugins.load(game(id).translator)(**kwargs)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"env.translator: {id} does not take {dict(kwargs)}: {told(error)}"
        ) from error
    return translator


def make(id: str, **kwargs: Any) -> "gymnasium.Env[Any, Any]":
    """Make an environment by `Name-v0`, `module:Name-v0` or `path/file.py:Name-v0`.

    Args:
        id: which one.
        **kwargs: for its constructor.

    Raises:
        ConfigError: it does not exist, or does not take these arguments.
    """
    spec: EnvSpec = gymnasium.spec(game(id).id)
    try:
        return gymnasium.make(spec, **kwargs)
    except TypeError as error:
        raise ConfigError(f"env.kwargs: {id} does not take them: {error}") from error
