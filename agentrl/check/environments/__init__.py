"""Check an environment (`agentrl check env`): report problems and how to fix them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache, partial

from agentrl.actions.players.noop_player import NOOP
from agentrl.check.environments import checks, doing_nothing, side_effects
from agentrl.check.environments.side_effects import CLOSE, FirstInstance, ProcessState
from agentrl.check.finding import Finding, note, wrong
from agentrl.check.runner import Check
from agentrl.check.support.random_episodes import RandomEpisode, play_randomly
from agentrl.config import EnvConfig, RewardConfig
from agentrl.devices.device_sources import open_device
from agentrl.errors import AgentRLError, DeviceError, describe_error, message_of
from agentrl.rollout.environments.resolved_env import resolve_env

_QUICK_STEPS = 5
_STOPS = ("construction", CLOSE)
"""Checks that must pass for the others to run."""
_LONG = (
    "gymnasium's checker", "reset after episode", "memory", "two instances", "another process",
    doing_nothing.WHAT,
)  # fmt: skip
"""Checks that `quick` skips, in addition to checks of players, because they play the most."""
_SLOW = "no call may block; if it is slow, raise --deadline, or check only a few steps with --quick"


def check_environment(
    config: EnvConfig,
    steps: int = 50,
    deadline_s: float = 120.0,
    limit_s: float = 600.0,
    begun: Callable[[str], None] = lambda what: None,
    *,
    rewards: Sequence[RewardConfig] = (),
    quick: bool = False,
) -> Iterator[Finding]:
    """Run all checks of an environment; stop if one fails that the others depend on.

    The environment is constructed several times and played with random actions. If it needs a
    phone, its checks share a virtual phone.

    Args:
        config: the environment, with its translator.
        steps: maximum length of an episode with random actions; slow environments play fewer.
        deadline_s: time limit of each check; exceeding it is a finding.
        limit_s: time limit of all checks together; a note lists the checks left out.
        begun: called with the name of each check when it starts.
        rewards: the job's rewards; none for the environment's own.
        quick: play only a few steps, and skip the checks that play the most.
    """
    end = time.monotonic() + limit_s
    steps = min(steps, _QUICK_STEPS) if quick else steps
    first_checks = _first_checks(config)

    def run(check: Check) -> Finding:
        begun(check.description)
        return check.finding(min(deadline_s, max(1.0, end - time.monotonic())))

    for check in first_checks:
        yield (first := run(check))
        if first.state == "wrong" and check.description in _STOPS:
            return
    with _phone_for(config) as phone:
        found = _played_checks(config, steps, deadline_s, phone, rewards=rewards, quick=quick)
        for number in range(len(found)):
            finding = None if time.monotonic() > end else run(found[number])
            # Don't count a check as failed if it was cut short by the limit.
            if finding is None or (finding.state == "wrong" and time.monotonic() > end):
                names = ", ".join(check.description for check in found[number:])
                fix = "raise --limit, or check only a few steps with --quick"
                yield note("time limit", f"not checked within {limit_s:g} s: {names}", fix)
                return
            # A failed check may still be using the phone, so the remaining checks open others.
            if finding.state == "wrong":
                found = _played_checks(config, steps, deadline_s, rewards=rewards, quick=quick)
            yield finding


def environment_checks(config: EnvConfig, rewards: Sequence[RewardConfig] = ()) -> list[Check]:
    """Return all checks of an environment with its rewards, starting with its construction."""
    return [*_first_checks(config), *_played_checks(config, rewards=rewards)]


def _first_checks(config: EnvConfig) -> list[Check]:
    """Return the checks of the first instance, including its side effects on the process."""
    first, before = cache(lambda: FirstInstance(config)), ProcessState.now()
    return [
        _check("construction", partial(checks.check_creation, config, first)),
        _check(CLOSE, partial(side_effects.check_close, first)),
        _check("side effects", partial(side_effects.check_side_effects, first, before)),
    ]


def _played_checks(
    config: EnvConfig,
    steps: int = 50,
    deadline_s: float = 120.0,
    phone: str | None = None,
    *,
    rewards: Sequence[RewardConfig] = (),
    quick: bool = False,
) -> list[Check]:
    """Return the remaining checks, which play the environment.

    Args:
        config: see `check_environment`.
        steps: see `check_environment`.
        deadline_s: time limit of each check.
        phone: serial of a phone for the checks to use, one at a time; None if each instance of the
            environment has to find a phone.
        rewards: see `check_environment`.
        quick: see `check_environment`.
    """
    short, budget_s = min(steps, 10), deadline_s / 4
    alone = config if phone is None else replace(config, kwargs=config.kwargs | {"device": phone})

    @cache
    def play_twice() -> tuple[RandomEpisode, RandomEpisode]:
        one = play_randomly(alone, steps, end=time.monotonic() + budget_s)
        return one, play_randomly(alone, len(one.rewards))

    found: dict[str, Callable[[], Finding]] = {
        "gymnasium's checker": partial(checks.check_gymnasium, alone),
        "seeds": partial(checks.check_seeds, alone, play_twice, budget_s),
        "observations": partial(checks.check_observations, play_twice),
        "info": partial(checks.check_info, alone, play_twice),
        "reset after episode": partial(checks.check_reset, alone, budget_s),
        "speed": partial(checks.check_speed, play_twice),
        "shown to the model": partial(checks.check_observation, play_twice),
        "instructions": partial(checks.check_instructions, alone),
        "replies": partial(checks.check_replies, alone),
        "memory": partial(checks.check_memory, alone, short),
        "two instances": partial(checks.check_instances, config, short),
        "another process": partial(checks.check_other_process, alone, short, deadline_s),
        doing_nothing.WHAT: partial(doing_nothing.check_doing_nothing, alone, rewards, budget_s),
    }
    if quick:
        found = {name: run for name, run in found.items() if name not in _LONG}
    else:
        for name in resolve_env(config).players:
            if name != NOOP:
                found[f"player {name}"] = partial(checks.check_player, alone, name, budget_s)
    return [_check(name, run) for name, run in found.items()]


def _check(what: str, run: Callable[[], Finding]) -> Check:
    return Check(
        name=what.replace(" ", "_"), description=what, run=run, failed=_failed, fix_if_late=_SLOW
    )


@contextmanager
def _phone_for(config: EnvConfig) -> Iterator[str | None]:
    """Yield the serial of a virtual phone with the environment's app; None without an app."""
    app = resolve_env(config).app
    if app is None:
        yield None
        return
    try:
        # Use short delays of touches, since waiting for them would take most of the time.
        device = open_device("virtual", apps=[app], tempo="quick", effect_delay_ms=(10, 30))
    except DeviceError:
        # Each check will try again and report the error.
        yield None
        return
    with closing(device):
        yield device.serial


def _failed(what: str, error: BaseException) -> Finding:
    if isinstance(error, AgentRLError):
        return wrong(what, message_of(error), "correct what the message describes")
    return wrong(what, describe_error(error), "the environment must not raise an exception here")
