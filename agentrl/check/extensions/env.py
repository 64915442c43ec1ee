"""Checks of an environment with its translator and players; settings are those of a job."""

from collections.abc import Iterator, Sequence
from typing import Any

from agentrl.check.environments import check_environment, environment_checks
from agentrl.check.finding import Finding
from agentrl.check.runner import Check
from agentrl.check.support.job_settings import env_config_of


def checks_of(target: str, settings: Sequence[str]) -> list[Check]:
    """The checks of an environment, which is named as `env.id` or by a YAML file."""
    return environment_checks(env_config_of(target, settings))


def findings(
    target: str, settings: Sequence[str], deadline_s: float, **options: Any
) -> Iterator[Finding]:
    """Run them; `options` are further arguments of `check_environment`."""
    yield from check_environment(env_config_of(target, settings), deadline_s=deadline_s, **options)


def next_command(target: str) -> tuple[str, ...]:
    """A YAML file is trained; for another environment, one is written first."""
    is_file = target.endswith((".yaml", ".yml"))
    return ("train", target) if is_file else ("init", "--env", target)
