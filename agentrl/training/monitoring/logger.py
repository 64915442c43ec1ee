"""Destinations of a job's metrics: the base class, and functions to check and open loggers."""

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any, ClassVar

from agentrl.config import LoggerConfig, parse_loggers
from agentrl.errors import ConfigError, describe_error, must_propagate
from agentrl.extension_points import LOGGER
from agentrl.training.monitoring.progress import PlannedWork

_OFFLINE = ("offline", "local", "dryrun", "disabled")


class Logger(ABC):
    """One destination of a job's metrics.

    Loggers are constructed when the job starts. A subclass may take further keyword arguments,
    which come from the `kwargs` of its entry in `logging`. Only `log` must be implemented.

    Args:
        run: the run's folder.
        amounts: the planned work of the job.
    """

    library: ClassVar[str | None] = None
    """Import name of the optional library that the logger needs; imported on use."""
    install: ClassVar[str] = ""
    """The command that installs the library; `pip install LIBRARY` if empty."""

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        """Do nothing; subclasses may open files or connections."""

    @abstractmethod
    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of one step of a stage, such as `warm start` or `reinforcement`."""

    def stage(self, name: str) -> None:
        """Note that a new stage of the job begins; `log` also receives the stage."""

    def progress(self, done: float, total: float, note: str) -> None:
        """Report progress of the current stage or step: `done` of `total`."""

    def note(self, text: str) -> None:
        """Show a sentence about the job."""

    def rewind(self, step: int) -> None:
        """Note that a resumed job repeats all after this step; -1 includes its warm start."""

    def finish(self, results: Mapping[str, Any]) -> None:
        """Note that the job is complete; `results` of all players and stages also went to `log`."""

    def close(self) -> None:
        """Close the logger: no more metrics follow."""

    @classmethod
    def is_installed(cls) -> bool:
        """Whether the logger's library is installed."""
        return cls.library is None or find_spec(cls.library) is not None

    @classmethod
    def check_login(cls) -> list[str]:
        """Check that the logger can log in, without contacting a server.

        Returns:
            Assumptions that only a server can confirm, for the job's plan.

        Raises:
            ConfigError: the logger is not logged in; the message says how to log in.
        """
        return []


OpenLogger = Callable[[type[Logger], LoggerConfig, Path, PlannedWork], Logger]


def check_loggers(entries: Sequence[Any]) -> list[tuple[type[Logger], LoggerConfig]]:
    """Check that all loggers exist, are installed and accept their arguments.

    Args:
        entries: entries as in `logging`; `NAME?` need not be installed.

    Returns:
        The class and the entry of each installed logger.

    Raises:
        ConfigError: a check failed; the message says what to do.
    """
    found = []
    for config in parse_loggers(entries):
        cls: type[Logger] = LOGGER.resolve(config.name)
        if not cls.is_installed():
            if config.optional:
                continue
            install = cls.install or f"pip install {cls.library}"
            raise ConfigError(
                f"logging: {cls.library} is not installed. Install it with {install}, or write "
                f"'{config.name}?' to skip this logger where {cls.library} is missing."
            )
        try:
            inspect.signature(cls).bind(None, None, **config.kwargs)
        except TypeError as error:
            raise ConfigError(
                f"logging: {config.name} does not accept kwargs={config.kwargs}: {error}. Its "
                "constructor must take `run` and `amounts`, followed by the names in kwargs"
            ) from None
        found.append((cls, config))
    return found


def check_logins(entries: Sequence[Any]) -> list[str]:
    """Check that all installed loggers can log in, without contacting a server.

    Returns:
        Assumptions that only a server can confirm, as strings.

    Raises:
        ConfigError: see `Logger.check_login`.
    """
    classes = [LOGGER.resolve(config.name) for config in parse_loggers(entries)]
    return [text for cls in classes if cls.is_installed() for text in cls.check_login()]


def open_loggers(
    run: Path,
    entries: Sequence[Any],
    amounts: PlannedWork,
    open_one: OpenLogger | None = None,
) -> list[Logger]:
    """Open the loggers of `logging`, each once; skip `NAME?` if it is not installed.

    Raises:
        ConfigError: see `check_loggers`; or a logger cannot be constructed.
    """
    open_one = open_one or open_logger
    opened: list[Logger] = []
    try:
        for cls, config in check_loggers(entries):
            opened.append(open_one(cls, config, run, amounts))
    except BaseException:
        # The loggers that are already open have open files and connections.
        for logger in opened:
            logger.close()
        raise
    return opened


def open_logger(cls: type[Logger], config: LoggerConfig, run: Path, amounts: PlannedWork) -> Logger:
    """Construct a logger.

    Raises:
        ConfigError: the logger cannot be constructed.
        OSError: the logger cannot write, for example because the disk is full.
    """
    try:
        return cls(run, amounts, **config.kwargs)
    except (ConfigError, OSError):
        raise
    except BaseException as error:
        if must_propagate(error):
            raise
        raise ConfigError(
            f"logging: {config.name} cannot be opened: {describe_error(error)}"
        ) from error


def plain_name(name: str) -> str:
    """Replace all characters of a name but letters, digits, dots and underscores."""
    return "".join(c if c.isalnum() or c in "._" else "_" for c in name)


def check_account(name: str, *, netrc_file: str, default_mode: str) -> list[str]:
    """Check that a service with an account is logged in, or set to work offline.

    Args:
        name: name of the service, and prefix of its environment variables.
        netrc_file: file in which the service's `login` command stores the API key.
        default_mode: mode if the variable `..._MODE` is not set.

    Returns:
        Assumptions that only the service's server can confirm.

    Raises:
        ConfigError: the service is neither logged in nor offline.
    """
    key, mode = f"{name.upper()}_API_KEY", f"{name.upper()}_MODE"
    if os.environ.get(mode, default_mode) in _OFFLINE:
        return []
    if not os.environ.get(key) and not _has_netrc_entry(name, netrc_file):
        raise ConfigError(
            f"logging: {name} is not logged in. Run `{name} login`, set {key}, or set "
            f"{mode}=offline to log into the run's folder"
        )
    return [f"whether {name} accepts the API key"]


def _has_netrc_entry(name: str, file: str) -> bool:
    server = os.environ.get(f"{name.upper()}_BASE_URL", "")
    try:
        hosts = netrc(Path(os.environ.get("NETRC", file)).expanduser()).hosts
    except (OSError, NetrcParseError):
        return False
    # A self-hosted server may have any host name, but its address is in the environment.
    return any(name in host or host in server for host in hosts)
