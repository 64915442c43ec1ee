"""Make the translator and the scripted players of an environment, and read its action space."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from threading import Thread
from typing import Any

from agentrl import registry
from agentrl.actions.dialect import Dialect, Resize, open_dialect
from agentrl.config import EnvConfig
from agentrl.data.prompt_templates import render_instructions
from agentrl.env import Player, Translator, interface_of, translator_for
from agentrl.errors import ConfigError, EnvError, boundary, describe_error
from agentrl.rollout.environments.env_processes import interface_in_process
from agentrl.rollout.environments.env_server import CLOSE_S
from agentrl.rollout.environments.resolved_env import ResolvedEnv, close_env, named_parameters
from agentrl.rollout.process_guard import remember_streams, reopen_closed_streams
from agentrl.text import known_names
from agentrl.types import Message, Observation, give_images

log = logging.getLogger(__name__)

_interfaces: dict[str, dict[str, Any]] = {}
"""Results of `read_interface`, by configuration."""
ResizeOf = Callable[[Dialect], Resize]
"""The resize that the model that plays applies to screens."""


def open_translator(env: ResolvedEnv, resize_of: ResizeOf | None = None) -> Translator:
    """Return the translator of an environment.

    Args:
        env: the environment, and the dialect of its actions if it names one.
        resize_of: of the model that plays; None for one that sees screens unchanged.

    Raises:
        ConfigError: there is no such dialect, the sections of the environment contradict each
            other, the translator rejects its arguments, or it writes no actions in dialects.
    """
    given = {**env.shared(env.settings.kwargs), **env.settings.translator_kwargs}
    given = {**_interface_for(registry.load(env.registration.translator), env), **given}
    with env.named_keys():
        translator = translator_for(env.registration, given)
    _set_dialect(translator, env.settings, resize_of, f"the translator of {env.id}")
    return translator


def _set_dialect(speaker: Any, config: EnvConfig, resize_of: ResizeOf | None, what: str) -> None:
    """Have a translator or a player use the configured dialect, if there is one."""
    if config.dialect is None:
        return
    # Dataclasses declare the attribute, and others set it in their constructor.
    declared = any(
        "dialect" in getattr(kind, "__annotations__", ()) for kind in type(speaker).__mro__
    )
    if not declared and not hasattr(speaker, "dialect"):
        raise ConfigError(
            f"env.dialect={config.dialect}: {what} has no attribute `dialect`, so its actions are "
            "not written in dialects; leave it out, or use a translator that has one"
        )
    dialect = open_dialect(config.dialect, config.dialect_kwargs)
    if resize_of is not None:
        dialect.resize = resize_of(dialect)
    speaker.dialect = dialect


def instructions_for(
    prompt: str | None, translator: Translator, reset_info: Mapping[str, Any] | None = None
) -> str:
    """Return the instructions of an episode, inside the job's prompt template if it has one.

    Raises:
        ConfigError: the translator fails, or the prompt does not exist or cannot be rendered.
    """
    own = None if reset_info is None else getattr(translator, "system_message", None)
    with boundary(ConfigError, "env.translator_kwargs: instructions() failed"):
        instructions = translator.instructions() if own is None else own(reset_info)
    return render_instructions(prompt, instructions)


def preceding_for(translator: Translator, reset_info: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the earlier questions and replies that an episode's first message continues.

    Raises:
        EnvError: the translator fails, or they are not questions and replies in turns.
    """
    find = getattr(translator, "preceding_messages", None)
    if find is None:
        return ()
    with boundary(EnvError, "the translator's preceding_messages()"):
        found = tuple(find(reset_info))
        replies = [message.role == "assistant" for message in found]
        if replies != [False, True] * (len(found) // 2):
            raise ValueError(
                f"returned messages of the roles {[message.role for message in found]}, not "
                "questions and replies in turns, of which the last is a reply"
            )
    return found


def compose_message(
    prompt: str | None,
    translator: Translator,
    observation: Observation,
    preceding: Sequence[Message] = (),
) -> Message:
    """Compose a message; a system message in it is put inside the job's prompt template."""
    if preceding:
        preceding, images = give_images(preceding, observation.images)
        observation = replace(observation, images=images)
    message = translator.to_message(observation)
    if message.system is not None:
        system = render_instructions(prompt, message.system)
        message = replace(message, system=system)
    return replace(message, preceding=tuple(preceding)) if preceding else message


def load_player(env: ResolvedEnv, name: str, resize_of: ResizeOf | None = None) -> Player:
    """Make a scripted player of an environment, with the settings that it takes.

    Raises:
        ConfigError: the environment has no such player, or no player takes a setting of
            `env.player_kwargs`.
    """
    if name not in env.players:
        raise ConfigError(
            f"{env.id} has no player {name!r}"
            f"{known_names(name, sorted(env.players), label='It has')}."
        )
    cls, settings = registry.load(env.players[name]), env.settings
    # A setting is for the players that take it; one that none takes is a mistake.
    if settings.player_kwargs:
        accepted = {
            argument
            for player in env.players.values()
            for argument in named_parameters(registry.load(player))
        }
        for key in settings.player_kwargs:
            if key not in accepted:
                raise ConfigError(
                    f"env.player_kwargs.{key}: no player of {env.id} takes it"
                    f"{known_names(key, sorted(accepted), label='They take')}"
                )
    given = {
        **_interface_for(cls, env),
        **settings.kwargs,
        **settings.translator_kwargs,
        **settings.player_kwargs,
    }
    what = f"the player {name!r} of {env.id}"
    with boundary(ConfigError, f"{what} cannot be constructed"):
        player: Player = cls(**{k: given[k] for k in named_parameters(cls) if k in given})
    _set_dialect(player, settings, resize_of, what)
    return player


def _interface_for(cls: Any, env: ResolvedEnv) -> dict[str, Any]:
    """Return the facts about the environment that a translator or player takes."""
    taken = named_parameters(cls)
    if "action_space" not in taken:
        return {}
    return {name: value for name, value in read_interface(env).items() if name in taken}


def read_interface(env: ResolvedEnv) -> dict[str, Any]:
    """Make an environment without a phone once, and return its spaces and render modes.

    Raises:
        ConfigError: it cannot be made, or is played on a phone.
    """
    if env.app is not None:
        raise ConfigError(
            f"{env.id} is played on a phone, so its action space is unknown until one is "
            "connected: it needs its own translator and players"
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
    """Make an environment, read its interface, and close it in the thread that made it."""
    # A `close()` that fails or hangs is only logged: episodes can be played nevertheless.
    interface: Future[dict[str, Any]] = Future()

    def work() -> None:
        remember_streams()
        try:
            instance = env.make()
            found = interface_of(instance)
            if closed := reopen_closed_streams():
                raise EnvError(f"it closed {' and '.join(closed)} of the process of the job")
        except ConfigError as error:
            interface.set_exception(error)
        # An environment may also raise SystemExit.
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
        log.warning("closing %s: it did not close within %g s", env.id, CLOSE_S)
    return found


def _not_constructed(env: ResolvedEnv, error: BaseException) -> ConfigError:
    what = f"env.id: {env.id} cannot be constructed"
    return ConfigError(f"{what}: {describe_error(error)}{env.eval_note}")
