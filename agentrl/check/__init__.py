"""Checks that what users provide, and what it runs on, works.

`agentrl check KIND TARGET` runs them, and so does a test:

    import pytest
    from agentrl.check import checks

    @pytest.mark.parametrize("check", checks("logger", "my_logger.py:MyLogger"))
    def test_my_logger(check):
        check()

One module of `agentrl.check.extensions` per kind holds its checks: functions
`check_...(target)`, or `check_...(target, settings)`, in which `target` is what the name selects
and `settings` are the `key=value` arguments. The first line of the docstring is the description; a
failed check raises AssertionError or ConfigError. Where the settings are a section of the
configuration, the module has a function `config_of(target, settings)`, and its checks get that
section, made once. A module whose checks depend on the target has a function
`checks_of(target, settings)` instead. `SETTINGS` names all settings of a kind that takes only
these.
`agentrl.check.fixtures` has pytest fixtures.
"""

from agentrl.check.extension_listing import Listed, listed, point_of, points
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
