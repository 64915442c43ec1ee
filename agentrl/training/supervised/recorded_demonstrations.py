"""Select the recorded episodes that a warm start trains on (`warm_start.recorded`).

They are read once, when the job is checked, so what was checked is what is trained on.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict

from agentrl import replay
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.replay.episode_encoding import to_json
from agentrl.training.supervised.demonstration_filter import Choice, Chosen, Judge

log = logging.getLogger(__name__)


def check(config: Config) -> Choice:
    """Select as `choose` does, and log what was skipped.

    Raises:
        ConfigError: as `choose`.
    """
    choice = choose(config)
    if choice.left_out or choice.only_shown:
        log.warning("warm_start.recorded: %s", choice)
    if choice.told_otherwise:
        log.warning(
            "warm_start.recorded: %d of %d episodes were played with other instructions; they are "
            "used with the instructions of this job",
            choice.told_otherwise,
            len(choice.episodes),
        )
    return choice


def choose(config: Config) -> Choice:
    """The recorded episodes that a job's warm start trains on.

    Skipped are void episodes, those with a turn that shows nothing or without any valid action,
    and those on the seeds that the job is evaluated on.

    Raises:
        ConfigError: there is no such run, none of its episodes qualifies, or they cannot be used:
            they are of another environment, lack texts or images, or are in another format.
    """
    choice = Choice()
    warm = config.warm_start
    if warm is None or not warm.recorded:
        return choice
    try:
        where = replay.Filter(**asdict(warm.recorded_filter))
    except ConfigError as error:
        raise ConfigError(f"warm_start.recorded_filter.{error}") from None
    judge = Judge(config, warm)
    for path in warm.recorded:
        for judged in judge.judge(path, where):
            if isinstance(judged, Chosen):
                choice.episodes.append(judged)
            else:
                choice.left_out[judged] += 1
    if not choice.episodes:
        filters = {k: v for k, v in asdict(warm.recorded_filter).items() if v is not None}
        raise ConfigError(
            f"warm_start.recorded={warm.recorded}: no episode can be used: {choice}. "
            f"{f'The filter is {filters}; ' if filters else ''}agentrl episodes RUN shows "
            "the episodes"
        )
    return choice


def digest(taught: Sequence[Chosen]) -> str:
    """Hex SHA-256 over the recorded episodes."""
    content = hashlib.sha256()
    for chosen in taught:
        content.update(json.dumps(to_json(chosen.episode), sort_keys=True).encode() + b"\0")
    return content.hexdigest()
