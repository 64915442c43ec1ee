"""What is wrong with an environment, in plain words, and how to mend it."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from threading import Thread

from agentrl.config import EnvConfig
from agentrl.errors import AgentRLError, told
from agentrl.findings import Finding, wrong
from agentrl.rollout.env_arguments import game_of
from agentrl.rollout.env_check import checks
from agentrl.rollout.env_check.random_play import play

__all__ = ["Finding", "examine"]


def examine(config: EnvConfig, steps: int = 50, deadline_s: float = 120.0) -> Iterator[Finding]:
    """Everything worth knowing about an environment, what has to be so for the rest first.

    It is made several times and played with random actions; one on a phone is given a virtual one.

    Args:
        config: which one, with its translator.
        steps: of a game with random actions, at most.
        deadline_s: of each finding; an environment that hangs is told so.
    """
    first = _within(deadline_s, "made", partial(checks.made, config))
    yield first
    if first.state == "wrong":
        return
    for what, find in _trials(config, steps, deadline_s).items():
        yield _within(deadline_s, what, find)


def _trials(
    config: EnvConfig, steps: int, deadline_s: float
) -> Mapping[str, Callable[[], Finding]]:
    few = min(steps, 10)
    twice = cache(lambda: (play(config, steps), play(config, steps)))
    found: dict[str, Callable[[], Finding]] = {
        "gymnasium's checker": partial(checks.gymnasium, config),
        "seeds": partial(checks.seeds, config, twice),
        "info": partial(checks.infos, config, twice),
        "reset after the end": partial(checks.again, config),
        "speed": partial(checks.speed, twice),
        "what is shown": partial(checks.shown, twice),
        "words": partial(checks.words, config),
        "replies": partial(checks.replies, config),
        "copies": partial(checks.copies, config, few),
        "another process": partial(checks.elsewhere, config, few, deadline_s),
    }
    for name in game_of(config).players:
        found[f"player {name}"] = partial(checks.player, config, name)
    return found


def _within(deadline_s: float, what: str, find: Callable[[], Finding]) -> Finding:
    """What is found in time; a thread that hangs is left behind."""
    found: list[Finding] = []

    def work() -> None:
        try:
            found.append(find())
        except BaseException as error:
            mend = "mend it" if isinstance(error, AgentRLError) else "it must not raise"
            found.append(wrong(what, told(error), mend))

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(deadline_s)
    late = wrong(what, f"no answer within {deadline_s:g} s", "no call may wait without an end")
    return found[0] if found else late
