"""Create an environment once to read its spaces and render modes."""

import json
import logging
from concurrent.futures import Future
from dataclasses import asdict
from threading import Thread
from typing import Any

from agentrl.env import interface_of
from agentrl.errors import ConfigError, EnvError, describe_error
from agentrl.rollout.environments.env_plan import EnvPlan, close_env
from agentrl.rollout.environments.env_processes import interface_in_process
from agentrl.rollout.environments.env_server import CLOSE_S
from agentrl.rollout.process_guard import remember_streams, reopen_closed_streams

log = logging.getLogger(__name__)

_interfaces: dict[str, dict[str, Any]] = {}
"""Cached results of `read_interface`, keyed by configuration."""


def read_interface(env: EnvPlan) -> dict[str, Any]:
    """Create a phoneless environment once, and return its spaces and render modes.

    Raises:
        ConfigError: the environment cannot be created, or needs a phone.
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


def _interface_in_thread(env: EnvPlan) -> dict[str, Any]:
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
        log.warning("closing %s: it did not close within %g s", env.id, CLOSE_S)
    return found


def _not_constructed(env: EnvPlan, error: BaseException) -> ConfigError:
    what = f"env.id: {env.id} cannot be constructed"
    return ConfigError(f"{what}: {describe_error(error)}{env.eval_note}")
