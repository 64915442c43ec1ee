"""Every error that agentrl raises on purpose.

::

    AgentRLError
    ├── ConfigError           a user's mistake, found before any work starts
    │   └── EpisodeRemoved        an episode was asked for that retention has removed
    ├── ActionError           a reply that is no action; costs the agent a turn, never the episode
    └── WorldError            a failure of the world; voids the episode and is never a reward
        ├── DeviceError       a phone
        │   ├── DeviceOffline     it is not there (any more)
        │   ├── DeviceTimeout     it did not answer within the deadline
        │   ├── CaptureError      it gave no usable picture
        │   ├── LeaseLost         it is lent to somebody else by now
        │   ├── AppLeft           something else came in front of the app, and not by the agent
        │   ├── NotInFront        an action was not done, for another app was in front
        │   ├── ScreenTurned      the screen was turned between a picture and the action on it
        │   └── NoDevice          the pool has no phone to lease just now
        │       └── PoolEmpty         nor is one expected: all its phones are in quarantine
        ├── EnvError          an environment that raised or broke its contract
        ├── EngineError       an engine that failed or fell silent
        │   ├── EndpointRefused       a server of chat completions answered with an error
        │   └── EndpointUnreachable   it is not there, or broke off
        └── RewardError       a reward function that raised or returned nonsense
"""

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class AgentRLError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(AgentRLError):
    """A user's mistake: the message says what, which value, and what to do."""


class EpisodeRemoved(ConfigError):
    """Retention has removed the file of an episode; its scores are still there."""


class ActionError(AgentRLError):
    """A reply that cannot be read as an action."""


class WorldError(AgentRLError):
    """A failure of the world, attributed to one boundary."""


class DeviceError(WorldError):
    """A phone failed."""


class DeviceOffline(DeviceError):
    """A phone is not connected (any more)."""


class DeviceTimeout(DeviceError):
    """A phone did not answer within its deadline."""


class CaptureError(DeviceError):
    """A phone gave no usable picture."""


class LeaseLost(DeviceError):
    """A command under a lease that has ended or expired; nothing of it was done."""


class AppLeft(DeviceError):
    """Something came in front of the app, not by the agent's doing, and would not go away.

    The message begins with what it was, as `call: ...`: void episodes are counted by that.
    """


class NotInFront(DeviceError):
    """An action was not done, for another app was in front; it may be done later."""


class ScreenTurned(DeviceError):
    """The screen was turned, and not by its app, while an action was on its way to it.

    Nobody can tell what a position meant that was chosen upright and touched across.
    """


class NoDevice(DeviceError):
    """No phone could be leased in time; a later lease may find one."""


class PoolEmpty(NoDevice):
    """Every phone of the pool is in quarantine, and has been for as long as may be waited."""


class EnvError(WorldError):
    """An environment raised or broke its contract."""


class EngineError(WorldError):
    """An engine failed or did not answer within its deadline."""


class EndpointRefused(EngineError):
    """A server of chat completions answered with an error.

    Args:
        message: of this error.
        status: of HTTP.
        said: the server's words.
    """

    def __init__(self, message: str, status: int = 0, said: str = "") -> None:
        super().__init__(message)
        self.status, self.said = status, said


class EndpointUnreachable(EngineError):
    """A server of chat completions is not there, or broke off."""


class RewardError(WorldError):
    """A reward function raised or returned something that is no reward."""


@contextmanager
def boundary(error: type[WorldError], what: str) -> Iterator[None]:
    """Turn whatever a foreign piece raises into one typed error; our own errors pass unchanged.

    Args:
        error: the type to raise.
        what: names the call, with its values, for the message.

    Raises:
        WorldError: of the type given, with the foreign error as its cause.
    """
    try:
        yield
    except AgentRLError:
        raise
    except BaseException as cause:
        if is_ours(cause):
            raise
        raise error(f"{what}: {told(cause)}") from cause


def is_ours(cause: BaseException) -> bool:
    """Whether an exception is no failure of the foreign code that it came through.

    That code may raise what is no `Exception`: `SystemExit`, or the panic of a library in Rust.
    Ours are Ctrl-C, the end of a generator, and a cancelled task; outside an event loop nothing is
    cancelled, and somebody's code has raised that too.
    """
    if isinstance(cause, asyncio.CancelledError):
        return _in_event_loop()
    return isinstance(cause, KeyboardInterrupt | GeneratorExit)


def told(cause: BaseException) -> str:
    """Type, words and place of an error: `ValueError: too small (game.py:12)`."""
    deepest = traceback.extract_tb(cause.__traceback__)[-1:]
    place = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in deepest)
    return f"{type(cause).__name__}: {cause}{place}"


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
