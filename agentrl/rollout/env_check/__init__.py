"""Check an environment (`agentrl check env`): what is wrong, and how to fix it."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from agentrl.check_process import within_deadline
from agentrl.config import EnvConfig
from agentrl.errors import AgentRLError, describe_error
from agentrl.findings import Finding, wrong
from agentrl.rollout.env_check import checks
from agentrl.rollout.env_check.random_play import play_randomly
from agentrl.rollout.make_env import env_registration

Checks = Mapping[str, Callable[[], Finding]]


def check_environment(
    config: EnvConfig, steps: int = 50, deadline_s: float = 120.0
) -> Iterator[Finding]:
    """Run all checks of an environment; stops after the first if it cannot be constructed.

    The environment is constructed several times and played with random actions; one that needs a
    phone gets a virtual one.

    Args:
        config: the environment, with its translator.
        steps: maximum length of an episode with random actions.
        deadline_s: of each check; exceeding it is a finding.
    """
    first = _run_check(deadline_s, "construction", partial(checks.check_creation, config))
    yield first
    if first.state == "wrong":
        return
    for what, check in environment_checks(config, steps, deadline_s).items():
        if what != first.what:
            yield _run_check(deadline_s, what, check)


def environment_checks(config: EnvConfig, steps: int = 50, deadline_s: float = 120.0) -> Checks:
    """All checks of an environment by name, the construction first; see `check_environment`."""
    short = min(steps, 10)
    play_twice = cache(lambda: (play_randomly(config, steps), play_randomly(config, steps)))
    found: dict[str, Callable[[], Finding]] = {
        "construction": partial(checks.check_creation, config),
        "gymnasium's checker": partial(checks.check_gymnasium, config),
        "seeds": partial(checks.check_seeds, config, play_twice),
        "info": partial(checks.check_info, config, play_twice),
        "reset after episode": partial(checks.check_reset, config),
        "speed": partial(checks.check_speed, play_twice),
        "shown to the model": partial(checks.check_observation, play_twice),
        "instructions": partial(checks.check_instructions, config),
        "replies": partial(checks.check_replies, config),
        "two instances": partial(checks.check_instances, config, short),
        "another process": partial(checks.check_other_process, config, short, deadline_s),
    }
    for name in env_registration(config).players:
        found[f"player {name}"] = partial(checks.check_player, config, name)
    return found


def _run_check(deadline_s: float, what: str, check: Callable[[], Finding]) -> Finding:
    return within_deadline(deadline_s, what, check, partial(_failed, what))


def _failed(what: str, error: BaseException) -> Finding:
    if isinstance(error, AgentRLError):
        return wrong(what, str(error), "correct what the message names")
    return wrong(what, describe_error(error), "the code must not raise here")
