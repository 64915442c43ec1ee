"""Checks of users' own extensions and of the machines, phones and clusters they run on.

`agentrl check KIND TARGET` runs the checks of an extension, and so does a test:

    import pytest
    from agentrl.check import checks

    @pytest.mark.parametrize("check", checks("logger", "my_logger.py:MyLogger"))
    def test_my_logger(check):
        check()

Each kind has a module of checks in `agentrl.check.extensions`: functions `check_...(target)` or
`check_...(target, settings)`, where `target` is the object that the name selects and `settings`
are the `key=value` arguments. The first line of a check's docstring is its description; a failed
check raises AssertionError or ConfigError. If the settings form a section of the configuration,
the module defines `config_of(target, settings)`, and its checks get that section, made once. A
module whose checks depend on the target defines `checks_of(target, settings)` instead. If a kind
accepts only certain settings, `SETTINGS` lists them.
`agentrl.check.pytest_fixtures` has pytest fixtures.
"""

from agentrl.check.extension_catalog import Listed, listed, point_of, points
from agentrl.check.extensions import check_own_classes, checks, findings, next_command
from agentrl.check.runner import Check, findings_in_process

__all__ = [
    "Check",
    "Listed",
    "check_own_classes",
    "checks",
    "findings",
    "findings_in_process",
    "listed",
    "next_command",
    "point_of",
    "points",
]
