"""Create an environment's translator and scripted players, which may need its spaces."""

import json
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from threading import Thread
from typing import Any

from agentrl import user_code
from agentrl.actions.action_chunks import action_tag_of
from agentrl.actions.dialect import Dialect, Resize, open_dialect
from agentrl.actions.players.player import Player
from agentrl.actions.players.state_estimating_player import StateEstimatingPlayer
from agentrl.actions.translator import Translator
from agentrl.config import EnvConfig
from agentrl.env_registry import interface_of, translator_for
from agentrl.errors import ConfigError, EnvError, boundary, describe_error
from agentrl.rollout.environments.env_processes import interface_in_process
from agentrl.rollout.environments.env_server import CLOSE_S
from agentrl.rollout.environments.resolved_env import ResolvedEnv, close_env, named_parameters
from agentrl.rollout.environments.state_schemas import state_schema_of
from agentrl.rollout.user_code_guard import remember_streams, reopen_closed_streams
from agentrl.text.name_suggestions import known_names

log = logging.getLogger(__name__)

ResizeOf = Callable[[Dialect], Resize]
"""Returns how the playing model resizes screens."""
_interfaces: dict[str, dict[str, Any]] = {}
"""Cached results of `read_interface`, keyed by configuration."""


def open_translator(env: ResolvedEnv, resize_of: ResizeOf | None = None) -> Translator:
    """Return the translator of an environment.

    Args:
        env: the environment, including the dialect of its actions if configured.
        resize_of: how the playing model resizes screens; None if it sees them unchanged.

    Raises:
        ConfigError: the dialect does not exist, the environment's sections contradict each other,
            or the translator rejects its arguments, or does not support dialects or several actions
            per reply.
    """
    given = {**env.shared(env.settings.kwargs), **env.settings.translator_kwargs}
    given = {**_interface_for(user_code.load(env.registration.translator), env), **given}
    with env.named_keys():
        translator = translator_for(env.registration, given)
    _set_dialect(translator, env.settings, resize_of, f"the translator of {env.id}")
    most = env.settings.max_actions_per_reply
    if most > 1 and action_tag_of(translator) is None:
        what = f"the translator of {env.id}"
        if env.settings.dialect is not None:
            what = f"the dialect {env.settings.dialect}"
        raise ConfigError(
            f"env.max_actions_per_reply={most}: {what} writes one action per reply (it has no "
            "action_tag); remove env.max_actions_per_reply"
        )
    return translator


def _set_dialect(speaker: Any, config: EnvConfig, resize_of: ResizeOf | None, what: str) -> None:
    """Set the configured dialect, if any, on a translator or a player."""
    if config.dialect is None:
        return
    # Dataclasses declare the attribute; other classes set it in their constructor.
    declared = any(
        "dialect" in getattr(kind, "__annotations__", ()) for kind in type(speaker).__mro__
    )
    if not declared and not hasattr(speaker, "dialect"):
        raise ConfigError(
            f"env.dialect={config.dialect}: {what} has no attribute `dialect`, so it does not "
            "support dialects; remove env.dialect, or use a translator that supports them"
        )
    dialect = open_dialect(config.dialect, config.dialect_kwargs)
    if resize_of is not None:
        dialect.resize = resize_of(dialect)
    speaker.dialect = dialect


def load_player(env: ResolvedEnv, name: str, resize_of: ResizeOf | None = None) -> Player:
    """Create a scripted player of an environment, with the settings that it accepts.

    With `env.state_estimation`, it also writes state estimates.

    Raises:
        ConfigError: the environment has no such player, or none of its players accepts a setting
            of `env.player_kwargs`.
    """
    player, schema = _load_player(env, name, resize_of), state_schema_of(env.settings)
    if schema is None:
        return player
    translator = open_translator(env, resize_of)
    return StateEstimatingPlayer(player, schema, translator, env.settings.max_actions_per_reply)


def _load_player(env: ResolvedEnv, name: str, resize_of: ResizeOf | None) -> Player:
    if name not in env.players:
        raise ConfigError(
            f"{env.id} has no player {name!r}"
            f"{known_names(name, sorted(env.players), label='It has')}."
        )
    cls, settings = user_code.load(env.players[name]), env.settings
    needed = _needed_players(env, cls)
    if name in needed:
        raise ConfigError(
            f"env.players.{name}: {cls.__name__} needs another player with this name; use a "
            "different name"
        )
    # Each setting applies to the players that accept it; if none does, it is a mistake.
    if settings.player_kwargs:
        classes = [user_code.load(player) for player in env.players.values()]
        accepted = {
            argument
            for kind in classes
            for argument in named_parameters(kind)
            if argument not in _needed_players(env, kind)
        }
        for key in settings.player_kwargs:
            if key not in accepted:
                raise ConfigError(
                    f"env.player_kwargs.{key}: no player of {env.id} accepts it"
                    f"{known_names(key, sorted(accepted), label='They accept')}"
                )
    given = {
        **_interface_for(cls, env),
        "max_actions_per_reply": settings.max_actions_per_reply,
        **settings.kwargs,
        **settings.translator_kwargs,
        **settings.player_kwargs,
    }
    if "translator" in named_parameters(cls):
        given["translator"] = open_translator(env, resize_of)
    if needed:
        # The environment's arguments are meant for the other players: the tree game has a `noise`.
        given = {**settings.player_kwargs, **{n: _load_player(env, n, resize_of) for n in needed}}
    what = f"the player {name!r} of {env.id}"
    with boundary(ConfigError, f"{what} cannot be constructed"):
        player: Player = cls(**{k: given[k] for k in named_parameters(cls) if k in given})
    _set_dialect(player, settings, resize_of, what)
    return player


def _needed_players(env: ResolvedEnv, cls: Any) -> list[str]:
    """Return the environment's players that a player's class requires as arguments."""
    required = (n for n, p in named_parameters(cls).items() if p.default is p.empty)
    return [name for name in required if name in env.players]


def _interface_for(cls: Any, env: ResolvedEnv) -> dict[str, Any]:
    """Return the facts about the environment that a translator or player's class accepts."""
    taken = named_parameters(cls)
    if "action_space" not in taken:
        return {}
    return {name: value for name, value in read_interface(env).items() if name in taken}


def read_interface(env: ResolvedEnv) -> dict[str, Any]:
    """Create a phoneless environment once, and return its spaces and render modes.

    Raises:
        ConfigError: the environment cannot be created, or needs a phone.
    """
    if env.app is not None:
        raise ConfigError(
            f"{env.id} is played on a phone, so its action space is unknown until a phone is "
            "connected; it needs a custom translator and players"
        )
    settings = env.settings
    wrappers = [asdict(wrapper) for wrapper in settings.wrappers]
    key = json.dumps(
        [settings.id, settings.kwargs, settings.translator_kwargs, wrappers], default=str
    )
    if key not in _interfaces:
        try:
            read = interface_in_process if settings.processes else _interface_in_thread
            _interfaces[key] = read(env)
        except EnvError as error:
            raise _not_constructed(env, error) from error
    return _interfaces[key]


def _interface_in_thread(env: ResolvedEnv) -> dict[str, Any]:
    """Create an environment, read its interface, and close it, all in one thread."""
    # Only log a `close()` that fails or hangs, as episodes can still be played.
    interface: Future[dict[str, Any]] = Future()

    def work() -> None:
        remember_streams()
        try:
            instance = env.make()
            found = interface_of(instance)
            if closed := reopen_closed_streams():
                raise EnvError(f"it closed the job's {' and '.join(closed)}")
        except ConfigError as error:
            interface.set_exception(error)
        # An environment may even raise SystemExit.
        except BaseException as error:
            reopen_closed_streams()
            interface.set_exception(_not_constructed(env, error))
        else:
            interface.set_result(found)
            close_env(instance, env.id)

    thread = Thread(target=work, name="interface", daemon=True)
    thread.start()
    found = interface.result()
    thread.join(CLOSE_S)
    if thread.is_alive():
        log.warning("closing %s failed: it did not close within %g s", env.id, CLOSE_S)
    return found


def _not_constructed(env: ResolvedEnv, error: BaseException) -> ConfigError:
    what = f"env.id: {env.id} cannot be constructed"
    return ConfigError(f"{what}: {describe_error(error)}{env.eval_note}")
