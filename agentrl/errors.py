"""All error types that agentrl raises.

::

    AgentRLError
    ├── ConfigError           a user's mistake, found before any work starts
    │   ├── InvalidArgument       an argument of an environment, by name
    │   └── EpisodeRemoved        the requested episode was pruned
    ├── ActionError           a reply without a valid action; costs a turn, never the episode
    ├── ClusterError          Ray did not start, or its cluster cannot be joined
    ├── EngineMismatch        the engine disagrees with transformers; ends the job
    ├── UnreliableReward      the running audit of a job's reward exceeds its limit; ends the run
    ├── LearnerError          a learner rank failed, or training diverged; ends the run
    │   └── LearnerLost           a rank died or did not answer; resuming the run may help
    └── WorldError            an infrastructure failure; discards the episode, never a reward
        ├── DeviceError       a phone failed
        │   ├── DeviceOffline     it is not connected (anymore)
        │   ├── DeviceTimeout     it did not answer within its deadline
        │   ├── CaptureError      it returned no usable screenshot
        │   ├── BatteryError      its battery is empty or too hot
        │   ├── LeaseLost         the lease has ended; another client may hold the phone
        │   ├── AppLeft           something covered the app, and not through the agent's action
        │   ├── AppNotInFront     an action was withheld because another app was in front
        │   ├── ScreenRotated     the screen rotated between a screenshot and the action on it
        │   └── NoDevice          the pool has no phone to lease at the moment
        │       └── PoolEmpty         all phones of the pool have been in quarantine for too long
        ├── EnvError          an environment raised or broke its contract
        │   ├── EnvCrashed        its process ended or hung while it executed this call
        │   └── EnvLost           another environment in the same process ended the process
        ├── EngineError       an engine failed or did not answer in time
        │   ├── EndpointRefused       a chat completions server answered with an error
        │   └── EndpointUnreachable   it cannot be reached, or the connection broke
        ├── WorkerLost        a process, its engine or its node died, or does not answer
        ├── PhonePoolLost     the process that leases a node's phones died, or does not answer
        └── RewardError       a reward function raised or returned an invalid value
"""

import asyncio
import functools
import sysconfig
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class AgentRLError(Exception):
    """Base class of all errors that agentrl raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling calls an exception's class with `args`, which fails if its constructor takes
        # other arguments, as the class of a user may.
        return _restore_error, (type(self), self.args, vars(self))


def _restore_error(kind: type[AgentRLError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(AgentRLError):
    """A user's mistake; the message says which setting and value are wrong, and what to do."""

    def _render_traceback_(self) -> list[str]:
        """Return the message without a traceback, for display in IPython and notebooks."""
        return [f"{type(self).__name__}: {self}"]


class InvalidArgument(ConfigError):
    """An argument of an environment or translator has an invalid value.

    Args:
        name: name of the argument.
        value: the invalid value.
        expected: completes the sentence "must be ...".
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(name, value, expected)
        self.name, self.value, self.expected = name, value, expected

    def __str__(self) -> str:
        """The message, which begins with the argument's name."""
        return f"{self.name}={self.value!r}: must be {self.expected}"


class EpisodeRemoved(ConfigError):
    """An episode's file has been pruned; its scores are still recorded."""


class ActionError(AgentRLError):
    """A reply that cannot be parsed as an action."""


class ClusterError(AgentRLError):
    """Ray did not start, or its cluster cannot be joined."""


class UnreliableReward(AgentRLError):
    """A job's reward disagrees with the ground truth more often than `reward_audit` allows."""


class EngineMismatch(AgentRLError):
    """An engine's log-probabilities or actions differ from transformers' (`engine_check`)."""


class LearnerError(AgentRLError):
    """A learner rank died or did not answer, or training diverged; the run cannot continue."""


class LearnerLost(LearnerError):
    """A learner rank died, lost its connection, ran out of memory, or did not answer in time."""


class WorldError(AgentRLError):
    """An infrastructure failure, attributed to the component that failed."""

    @property
    def cause(self) -> str:
        """Cause under which episodes voided by this error are counted."""
        return type(self).__name__


class DeviceError(WorldError):
    """A phone failed."""


class DeviceOffline(DeviceError):
    """A phone is not connected (anymore)."""


class DeviceTimeout(DeviceError):
    """A phone did not answer within its deadline."""


class CaptureError(DeviceError):
    """A phone returned no usable screenshot."""


class BatteryError(DeviceError):
    """A phone's battery is empty or too hot, which no recovery step can fix."""


class LeaseLost(DeviceError):
    """A command arrived under an ended or expired lease; no part of it was executed."""


class AppLeft(DeviceError):
    """Something covered the app, not through the agent's action, and could not be dismissed.

    Args:
        kind: kind of window that covered it (`call`, `anr`, `foreign_app`, ...); the episode's
            cause.
        message: message of this error.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind, self.message = kind, message

    def __str__(self) -> str:
        """The message, which begins with the kind."""
        return f"{self.kind}: {self.message}"

    @property
    def cause(self) -> str:
        """Kind of window that covered the app."""
        return self.kind


class AppNotInFront(DeviceError):
    """An action was withheld because another app was in front; it may be retried."""


class ScreenRotated(DeviceError):
    """The screen rotated without the app's request between a screenshot and the action on it.

    A position chosen in one orientation is meaningless in the other.
    """


class NoDevice(DeviceError):
    """No phone could be leased in time; a later attempt may succeed."""


class PoolEmpty(NoDevice):
    """All phones of the pool have been in quarantine for the maximum time."""


class EnvError(WorldError):
    """An environment raised or broke its contract."""


class EnvCrashed(EnvError):
    """An environment's process (`env.processes`) ended or hung during a call to the environment.

    Any of several calls that were in progress may be the cause.
    """


class EnvLost(EnvError):
    """An environment's process was ended by another environment in the same process."""


class EngineError(WorldError):
    """An engine failed or did not answer within its deadline."""


class EndpointRefused(EngineError):
    """A chat completions server answered with an error.

    Args:
        message: message of this error.
        status: HTTP status code.
        server_message: the server's error text.
    """

    def __init__(self, message: str, status: int = 0, server_message: str = "") -> None:
        super().__init__(message)
        self.status, self.server_message = status, server_message


class EndpointUnreachable(EngineError):
    """An engine's server cannot be reached, or the connection broke."""


class WorkerLost(WorldError):
    """A process of the job, its engine or its node died, or the process does not answer.

    The episodes that a rollout worker was playing are replayed by other workers.
    """


class PhonePoolLost(WorldError):
    """The process that leases a node's phones to rollout workers died, or does not answer.

    The workers are given the phones of a new one, and their episodes are replayed.
    """


class RewardError(WorldError):
    """A reward function raised an exception, or returned an invalid value."""


class boundary:
    """Convert any exception of foreign code into one typed error; our own errors pass unchanged.

    Args:
        error: type of error to raise.
        what: description of the call, with its values, for the message; or a function returning
            it.

    Raises:
        AgentRLError: an error of the given type, with the foreign exception as its cause.
    """

    __slots__ = ("_error", "_what")

    def __init__(self, error: type[AgentRLError], what: str | Callable[[], str]) -> None:
        self._error, self._what = error, what

    def __enter__(self) -> None:
        """Enter the boundary."""

    def __exit__(
        self, kind: type[BaseException] | None, cause: BaseException | None, trace: object
    ) -> None:
        if cause is None or isinstance(cause, AgentRLError) or must_propagate(cause):
            return
        name = self._what() if callable(self._what) else self._what
        raise self._error(f"{name}: {describe_error(cause)}") from cause


def with_short_mistakes(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Hide agentrl's frames in the traceback when a public function raises a user's mistake.

    An exception from foreign code is kept as the cause.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except ConfigError as error:
            raise error.with_traceback(None)  # noqa: B904 -- its own cause stays

    return call


def must_propagate(cause: BaseException) -> bool:
    """Return whether an exception must propagate because it does not come from foreign code.

    Such exceptions are Ctrl-C, the end of a generator, and the cancellation of a task. Outside an
    event loop, there are no tasks to cancel or generators to end, and only the main thread receives
    Ctrl-C; elsewhere, these exceptions come from foreign code, as do other exceptions not derived
    from `Exception`, such as `SystemExit` or the panic of a Rust library.
    """
    if isinstance(cause, asyncio.CancelledError | GeneratorExit):
        return in_event_loop()
    is_main = threading.current_thread() is threading.main_thread()
    return isinstance(cause, KeyboardInterrupt) and is_main


_LONGEST = 2000
"""Maximum length of an error's message; foreign code may include a whole page or array."""


def message_of(cause: BaseException, length: int = _LONGEST) -> str:
    """Return an error's message, truncated to `length`; a foreign error's `__str__` may fail."""
    try:
        text = str(cause)
    except Exception as error:
        return f"an error without a message, because its __str__ raises {type(error).__name__}"
    return text if len(text) <= length else f"{text[:length]}... ({len(text):,} characters)"


def describe_error(cause: BaseException) -> str:
    """Describe an error's type, message and location: `ValueError: too small (game.py:12)`."""
    deepest = traceback.extract_tb(cause.__traceback__)[-1:]
    location = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in deepest)
    return f"{type(cause).__name__}: {message_of(cause)}{location}"


# Exclude `data`, which is Python's prefix and may be /usr, where users may have files.
INSTALLED = tuple(
    sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
)
"""Folders of Python and its packages."""
_OURS = (str(Path(__file__).parents[1] / name) for name in ("agentrl", "virtual_phone"))
_NOT_USERS = (*_OURS, *INSTALLED, "<")
"""Prefixes of the paths of code that is not the user's."""


def users_location(error: BaseException) -> str:
    """Return the last line of user code in a traceback, as ` (my_file.py:12)`, or ""."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_USERS)]
    return "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in own[-1:])


def known_members(error: BaseException | None) -> str:
    """List the members of an agentrl object if user code accessed an unknown name on it."""
    kind = type(error.obj) if isinstance(error, AttributeError) else object
    owner = next(cls for cls in kind.__mro__ if not cls.__name__.startswith("_"))
    if not owner.__module__.startswith("agentrl."):
        return ""
    names = [name for name in dir(owner) if not name.startswith("_")]
    return f". {owner.__module__}.{owner.__qualname__} has {', '.join(names)}"


def in_event_loop() -> bool:
    """Return whether this thread is running an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
