"""Check an environment (`agentrl envs check`): what is wrong, and how to fix it."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread

from agentrl.config import EnvConfig
from agentrl.errors import AgentRLError, describe_error
from agentrl.findings import Finding, wrong
from agentrl.rollout.env_check import checks
from agentrl.rollout.env_check.random_play import play_randomly
from agentrl.rollout.make_env import env_registration

_START_S = 30.0
"""For the process to start, in addition to the deadline of a check."""


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
    for what, check in _all_checks(config, steps, deadline_s).items():
        yield _run_check(deadline_s, what, check)


def _all_checks(
    config: EnvConfig, steps: int, deadline_s: float
) -> Mapping[str, Callable[[], Finding]]:
    short = min(steps, 10)
    play_twice = cache(lambda: (play_randomly(config, steps), play_randomly(config, steps)))
    found: dict[str, Callable[[], Finding]] = {
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
    """The finding of a check, or that it took too long; a thread that hangs is abandoned."""
    found: list[Finding] = []

    def work() -> None:
        try:
            found.append(check())
        except BaseException as error:
            if isinstance(error, AgentRLError):
                found.append(wrong(what, str(error), "correct what the message names"))
            else:
                found.append(wrong(what, describe_error(error), "the code must not raise here"))

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(deadline_s)
    late = wrong(what, f"not finished within {deadline_s:g} s", "no call may block")
    return found[0] if found else late


def check_environment_isolated(
    config: EnvConfig, steps: int = 50, deadline_s: float = 120.0
) -> Iterator[Finding]:
    """As `check_environment`; also finds one that ends its process or never releases the GIL."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_findings, args=(config, steps, deadline_s, sender))
    child.start()
    sender.close()
    last = "construction"
    try:
        while receiver.poll(deadline_s + _START_S):
            found: Finding | Exception | None = receiver.recv()
            if found is None:
                return
            if isinstance(found, Exception):
                raise found
            yield found
            last = found.what
        what = f"not finished within {deadline_s:g} s, and no other thread could run meanwhile"
        yield wrong(f"after {last}", what, "it must release Python's GIL while it waits")
    except EOFError:
        child.join()
        what = f"the environment ended its process with exit code {child.exitcode}"
        yield wrong(f"after {last}", what, "it must not exit")
    finally:
        child.kill()
        child.join()
        receiver.close()


def _send_findings(config: EnvConfig, steps: int, deadline_s: float, answer: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    try:
        for found in check_environment(config, steps, deadline_s):
            answer.send(found)
        answer.send(None)
    except Exception as error:
        answer.send(error)
    answer.close()
    os._exit(0)  # do not wait for threads that hang
