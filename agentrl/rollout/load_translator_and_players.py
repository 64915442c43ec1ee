"""Make the translator and the scripted players of an environment, and read its action space."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from threading import Thread
from typing import Any

import gymnasium

from agentrl import env, registry
from agentrl.actions.dialect import Dialect, Resize
from agentrl.actions.open_dialect import open_dialect
from agentrl.config import EnvConfig, History, parse_history
from agentrl.data.prompt_templates import render_instructions
from agentrl.errors import ConfigError, EnvError, boundary, describe_error
from agentrl.extension_points import DIALECT
from agentrl.rollout.env_processes import interface_in_process
from agentrl.rollout.env_server import CLOSE_S
from agentrl.rollout.make_env import (
    close_env,
    env_registration,
    full_keys,
    make_env,
    named_parameters,
    shared_arguments,
)
from agentrl.rollout.process_guard import remember_streams, reopen_closed_streams
from agentrl.text import known_names
from agentrl.types import Message, Observation, give_images

log = logging.getLogger(__name__)

_interfaces: dict[str, dict[str, Any]] = {}
"""Results of `read_interface`, by configuration."""
ResizeOf = Callable[[Dialect], Resize]
"""The resize that the model that plays applies to screens."""


def open_translator(config: EnvConfig, resize_of: ResizeOf | None = None) -> env.Translator:
    """The translator of an environment.

    Args:
        config: the environment, and the dialect of its actions if it names one.
        resize_of: of the model that plays; None for one that sees screens unchanged.

    Raises:
        ConfigError: there is no such environment or dialect, its sections contradict each other,
            the translator rejects its arguments, or it writes no actions in dialects.
    """
    spec = env_registration(config)
    given = {**shared_arguments(config, config.kwargs), **config.translator_kwargs}
    given = {**_interface_for(registry.load(spec.translator), config), **given}
    with full_keys(config):
        translator = env.translator_for(spec, given)
    _set_dialect(translator, config, resize_of, f"the translator of {config.id}")
    return translator


def _set_dialect(speaker: Any, config: EnvConfig, resize_of: ResizeOf | None, what: str) -> None:
    """Have a translator or a player use the configured dialect, if there is one."""
    if config.dialect is None:
        return
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


def history_of(config: EnvConfig) -> History:
    """Return the history in prompts: `env.history`, or else that of the dialect.

    Raises:
        ConfigError: there is no such dialect, or its history is invalid.
    """
    if config.history is not None:
        return parse_history(config.history)
    if config.dialect is None:
        return History()
    return parse_history(DIALECT.resolve(config.dialect).history)


def stop_texts_of(config: EnvConfig) -> tuple[str, ...]:
    """Texts that end a reply in the configured dialect."""
    return () if config.dialect is None else tuple(DIALECT.resolve(config.dialect).stop)


def instructions_for(
    config: EnvConfig, translator: env.Translator, reset_info: Mapping[str, Any] | None = None
) -> str:
    """The instructions at the start of an episode, inside the job's prompt template if it has one.

    Args:
        config: the environment.
        translator: writes the instructions.
        reset_info: of the episode, which may have a system message of its own; None for any.

    Raises:
        ConfigError: the translator fails, or the prompt does not exist or cannot be rendered.
    """
    own = None if reset_info is None else getattr(translator, "system_message", None)
    with boundary(ConfigError, "env.translator_kwargs: instructions() failed"):
        instructions = translator.instructions() if own is None else own(reset_info)
    return render_instructions(config.prompt, instructions)


def preceding_for(translator: env.Translator, reset_info: Mapping[str, Any]) -> tuple[Message, ...]:
    """The earlier questions and replies that an episode's first message continues.

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


def check_nothing_is_lost(
    config: EnvConfig, translator: env.Translator, reset_info: Mapping[str, Any]
) -> None:
    """Check that a served question's own messages reach the model.

    Raises:
        ConfigError: the translator that is the default for servers leaves them out.
    """
    if config.translator_class is not None or not config.id.startswith("http"):
        return
    for key, what, method in (
        ("system", "a system message", "system_message"),
        ("preceding", "earlier messages", "preceding_messages"),
    ):
        if reset_info.get(key) and not hasattr(translator, method):
            raise ConfigError(
                f"env.id={config.id}: an episode has {what} (info[{key!r}]), which the default "
                "translator leaves out: set env.translator_class=QA-v0, or env.translator_class="
                "space if the model is not to see it"
            )


def compose_message(
    config: EnvConfig,
    translator: env.Translator,
    observation: Observation,
    preceding: Sequence[Message] = (),
) -> Message:
    """The message of a translator; a system message in it is inside the job's prompt template.

    Args:
        config: the environment.
        translator: writes the message.
        observation: what the message shows.
        preceding: see `preceding_for`; their images are the first ones of the observation.
    """
    if preceding:
        preceding, images = give_images(preceding, observation.images)
        observation = replace(observation, images=images)
    message = translator.to_message(observation)
    if message.system is not None:
        system = render_instructions(config.prompt, message.system)
        message = replace(message, system=system)
    return replace(message, preceding=tuple(preceding)) if preceding else message


def load_player(config: EnvConfig, name: str, resize_of: ResizeOf | None = None) -> env.Player:
    """A scripted player of an environment, with those of the environment's settings that it takes.

    Args:
        config: the environment.
        name: of the player.
        resize_of: as for `open_translator`.

    Raises:
        ConfigError: the environment has no such player, or no player takes a setting of
            `env.player_kwargs`.
    """
    players = env_registration(config).players
    if name not in players:
        raise ConfigError(
            f"{config.id} has no player {name!r}"
            f"{known_names(name, sorted(players), label='It has')}."
        )
    cls = registry.load(players[name])
    _check_player(config, players)
    given = {
        **_interface_for(cls, config),
        **config.kwargs,
        **config.translator_kwargs,
        **config.player_kwargs,
    }
    what = f"the player {name!r} of {config.id}"
    with boundary(ConfigError, f"{what} cannot be constructed"):
        player: env.Player = cls(**{k: given[k] for k in named_parameters(cls) if k in given})
    _set_dialect(player, config, resize_of, what)
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
                f"{known_names(name, sorted(accepted), label='They take')}"
            )


def _interface_for(cls: Any, config: EnvConfig) -> dict[str, Any]:
    """Return the facts about the environment that a translator or player takes."""
    taken = named_parameters(cls)
    if "action_space" not in taken:
        return {}
    return {name: value for name, value in read_interface(config).items() if name in taken}


def read_action_space(config: EnvConfig) -> "gymnasium.Space[Any]":
    """The action space of an environment; raises as `read_interface`."""
    space: gymnasium.Space[Any] = read_interface(config)["action_space"]
    return space


def read_interface(config: EnvConfig) -> dict[str, Any]:
    """The spaces and render modes of an environment without a phone, which is made once for that.

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
    if key not in _interfaces:
        _interfaces[key] = _made_interface(config)
    return _interfaces[key]


def _made_interface(config: EnvConfig) -> dict[str, Any]:
    if not config.processes:
        return _interface_in_thread(config)
    try:
        return interface_in_process(config)
    except EnvError as error:
        raise _not_constructed(config, error) from error


def _interface_in_thread(config: EnvConfig) -> dict[str, Any]:
    """Make an environment, read its interface, and close it in the thread that made it.

    A `close()` that fails or hangs is logged: episodes can be played nevertheless.
    """
    interface: Future[dict[str, Any]] = Future()

    def work() -> None:
        remember_streams()
        try:
            instance = make_env(config)
            found = env.interface_of(instance)
            if closed := reopen_closed_streams():
                raise EnvError(f"it closed {' and '.join(closed)} of the process of the job")
        except ConfigError as error:
            interface.set_exception(error)
        except BaseException as error:  # such as SystemExit
            reopen_closed_streams()
            interface.set_exception(_not_constructed(config, error))
        else:
            interface.set_result(found)
            close_env(instance, config.id)

    thread = Thread(target=work, name="interface", daemon=True)
    thread.start()
    found = interface.result()
    thread.join(CLOSE_S)
    if thread.is_alive():
        log.warning("closing %s: it did not close within %g s", config.id, CLOSE_S)
    return found


def _not_constructed(config: EnvConfig, error: BaseException) -> ConfigError:
    return ConfigError(f"env.id: {config.id} cannot be constructed: {describe_error(error)}")
