"""Check an environment (`agentrl check env`): what is wrong, and how to fix it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache, partial

from agentrl.check_process import within_deadline
from agentrl.config import EnvConfig
from agentrl.devices.device_sources import open_device
from agentrl.errors import AgentRLError, DeviceError, describe_error
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
    phone gets a virtual one, which its checks share.

    Args:
        config: the environment, with its translator.
        steps: maximum length of an episode with random actions.
        deadline_s: of each check; exceeding it is a finding.
    """
    first = _run_check(deadline_s, "construction", partial(checks.check_creation, config))
    yield first
    if first.state == "wrong":
        return
    with _phone_for(config) as phone:
        found = environment_checks(config, steps, deadline_s, phone)
        for what in list(found):
            if what == first.what:
                continue
            finding = _run_check(deadline_s, what, found[what])
            if finding.state == "wrong":  # it may not have let go of the phone
                found = environment_checks(config, steps, deadline_s)
            yield finding


def environment_checks(
    config: EnvConfig, steps: int = 50, deadline_s: float = 120.0, phone: str | None = None
) -> Checks:
    """All checks of an environment by name, the construction first.

    Args:
        config: see `check_environment`.
        steps: see `check_environment`.
        deadline_s: of each check.
        phone: serial of a phone that the checks may use, one at a time; None if each construction
            of the environment has to find its own.
    """
    short = min(steps, 10)
    alone = config if phone is None else replace(config, kwargs=config.kwargs | {"device": phone})
    play_twice = cache(lambda: (play_randomly(alone, steps), play_randomly(alone, steps)))
    found: dict[str, Callable[[], Finding]] = {
        "construction": partial(checks.check_creation, config),
        "gymnasium's checker": partial(checks.check_gymnasium, alone),
        "seeds": partial(checks.check_seeds, alone, play_twice),
        "observations": partial(checks.check_observations, play_twice),
        "info": partial(checks.check_info, alone, play_twice),
        "reset after episode": partial(checks.check_reset, alone),
        "speed": partial(checks.check_speed, play_twice),
        "shown to the model": partial(checks.check_observation, play_twice),
        "instructions": partial(checks.check_instructions, alone),
        "replies": partial(checks.check_replies, alone),
        "memory": partial(checks.check_memory, alone, short),
        "two instances": partial(checks.check_instances, config, short),
        "another process": partial(checks.check_other_process, alone, short, deadline_s),
    }
    for name in env_registration(config).players:
        found[f"player {name}"] = partial(checks.check_player, alone, name)
    return found


@contextmanager
def _phone_for(config: EnvConfig) -> Iterator[str | None]:
    """The serial of a virtual phone with the environment's app; None if it has no app."""
    app = env_registration(config).app
    if app is None:
        yield None
        return
    try:
        # Touches take effect quickly: otherwise most of the time would be spent waiting for them.
        device = open_device("virtual", apps=[app], tempo="quick", effect_delay_ms=(10, 30))
    except DeviceError:  # each check tries again, and reports it
        yield None
        return
    with closing(device):
        yield device.serial


def _run_check(deadline_s: float, what: str, check: Callable[[], Finding]) -> Finding:
    return within_deadline(deadline_s, what, check, partial(_failed, what))


def _failed(what: str, error: BaseException) -> Finding:
    if isinstance(error, AgentRLError):
        return wrong(what, str(error), "correct what the message names")
    return wrong(what, describe_error(error), "the code must not raise here")
