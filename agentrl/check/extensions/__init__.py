"""Find the checks of users' extensions: one module per kind, with functions `check_...`."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import Any

from agentrl import config as configuration
from agentrl.check.extension_catalog import description_of, point_of, points
from agentrl.check.finding import Finding, ok, wrong
from agentrl.check.runner import Check, describe_failure, run_checks
from agentrl.errors import ConfigError
from agentrl.extension_points import ALGORITHM, LOSS

_DEADLINE_S = 120.0
"""Deadline of each check of a job's own classes."""


def checks(kind: str, target: Any, *settings: str) -> list[Check]:
    """Return the checks of an extension, for `pytest.mark.parametrize`.

    Args:
        kind: kind of extension, such as `logger`; see `agentrl list`.
        target: a name as in the configuration, or the class or function itself.
        settings: `key=value` arguments, as for `agentrl check`.

    Raises:
        ConfigError: the kind or target does not exist, or the kind takes no settings.
    """
    module = _module_of(kind)
    if hasattr(module, "checks_of"):
        made: list[Check] = module.checks_of(target, settings)
        return made
    found = point_of(kind).resolve(target) if isinstance(target, str) else target
    if getattr(module, "TAKES_NAMES", False):
        found = target
    given = configuration.arguments(settings)
    # Don't silently ignore a misspelled setting.
    if given and not any(map(_takes_settings, _check_functions(module))):
        raise ConfigError(f"agentrl check {kind} accepts no settings; remove {', '.join(settings)}")
    for name in given.keys() - getattr(module, "SETTINGS", given.keys()):
        raise ConfigError(
            f"{name}={given[name]}: agentrl check {kind} accepts only "
            f"{' and '.join(module.SETTINGS)}"
        )
    if hasattr(module, "config_of"):
        if "name" in given:
            raise ConfigError(f"name={given['name']}: remove it, since {target} is checked")
        given = module.config_of(found, given)
    return _checks(module, found, given)


def check_own_classes(algorithm: "configuration.AlgorithmConfig") -> None:
    """Check a job's algorithm and loss in this process, if they are the user's own.

    Raises:
        ConfigError: a check fails.
    """
    config: Any
    for point, config in ((LOSS, algorithm.loss), (ALGORITHM, algorithm)):
        if point.target(config.name).startswith("agentrl."):
            continue
        made = _checks(_module_of(point.kind), point.resolve(config.name), config)
        # Skip the check of descriptions, which matter only in lists.
        needed = [check for check in made if check.name != "description"]
        for found in run_checks(needed, _DEADLINE_S):
            if found.state == "wrong":
                raise ConfigError(
                    f"{point.setting}={config.name}: the check {found.what!r} fails: "
                    f"{found.detail.rstrip('.')}. To run all checks: agentrl check {point.kind} "
                    f"{config.name} KEY=VALUE ..."
                )


def findings(
    kind: str,
    target: str,
    settings: Sequence[str],
    deadline_s: float,
    options: Mapping[str, Any] = MappingProxyType({}),
    begun: Callable[[str], None] = lambda what: None,
) -> Iterator[Finding]:
    """Run all checks of a target.

    Args:
        kind: kind of extension, such as `logger`.
        target: a name as in the configuration.
        settings: `key=value` arguments of the kind.
        deadline_s: time limit of each check.
        options: further arguments of `check_environment`.
        begun: called with the description of each check when it starts.

    Raises:
        ConfigError: the kind does not accept these options, or the target these settings.
    """
    module = _module_of(kind)
    if hasattr(module, "findings"):
        yield from module.findings(target, settings, deadline_s, begun=begun, **options)
        return
    if options:
        names = ", ".join(f"--{name.removesuffix('_s')}" for name in options)
        raise ConfigError(f"agentrl check {kind} does not accept {names}; agentrl check env does")
    # Importing the target runs the user's code, so report its exceptions as findings.
    try:
        loaded = point_of(kind).resolve(target)
        if hasattr(module, "config_of"):
            module.config_of(loaded, {})
    except Exception as error:
        yield wrong("The target can be loaded", describe_failure(error), "")
        return
    yield ok("The target can be loaded", "")
    yield from run_checks(checks(kind, target, *settings), deadline_s, begun)


def next_command(kind: str, target: str) -> tuple[str, ...]:
    """Return the arguments of an `agentrl` command that uses the target."""
    module = _module_of(kind)
    if hasattr(module, "next_command"):
        command: tuple[str, ...] = module.next_command(target)
        return command
    setting: str = getattr(module, "USAGE", f"{point_of(kind).setting}={{}}")
    return ("train", "CONFIG.yaml", setting.format(target))


def _module_of(kind: str) -> ModuleType:
    point_of(kind)
    name = f"{__name__}.{kind}"
    if find_spec(name) is None:
        known = [other for other in points() if find_spec(f"{__name__}.{other}") is not None]
        raise ConfigError(f"there are no checks for {kind!r}; choose from {', '.join(known)}")
    return importlib.import_module(name)


def _check_functions(module: ModuleType) -> list[Callable[..., None]]:
    """Return the checks that a module defines, in order of definition."""
    return [
        member
        for name, member in vars(module).items()
        if name.startswith("check_") and inspect.isfunction(member)
        # Imported functions may also be named `check_...`, such as `check_loggers`.
        if member.__module__ == module.__name__
    ]


def _takes_settings(function: Callable[..., None]) -> bool:
    return len(inspect.signature(function).parameters) > 1


def _checks(module: ModuleType, target: Any, settings: Any) -> list[Check]:
    made = []
    for function in _check_functions(module):
        given = (target, settings) if _takes_settings(function) else (target,)
        name = function.__name__.removeprefix("check_")
        description = description_of(function).rstrip(".")
        made.append(Check(name=name, description=description, run=partial(function, *given)))
    return made
