"""Recorded episodes that a warm start teaches: which ones, and what is left out.

They are read once, as a job is checked: what was checked is what is taught.
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
    """As `choose`, and tell what is left out.

    Raises:
        ConfigError: as `choose`.
    """
    found = choose(config)
    if found.left_out or found.only_shown:
        log.warning("warm_start.recorded: %s", found)
    if found.told_otherwise:
        log.warning(
            "warm_start.recorded: %d of %d episodes were played under other instructions; they are "
            "taught under this job's",
            found.told_otherwise,
            len(found.episodes),
        )
    return found


def choose(config: Config) -> Choice:
    """The recorded episodes that a job's warm start teaches.

    Left out is what is void, what has a turn that shows nothing or no reply that was an action, and
    what was played on the seeds that the job is evaluated on.

    Raises:
        ConfigError: there is no such run, nothing of it is as it should be, or it cannot be
            taught: of another environment, without words or pictures, or in another style.
    """
    found = Choice()
    warm = config.warm_start
    if warm is None or not warm.recorded:
        return found
    try:
        where = replay.Filter(**asdict(warm.recorded_where))
    except ConfigError as error:
        raise ConfigError(f"warm_start.recorded_where.{error}") from None
    judge = Judge(config, warm)
    for path in warm.recorded:
        for judged in judge.judge(path, where):
            if isinstance(judged, Chosen):
                found.episodes.append(judged)
            else:
                found.left_out[judged] += 1
    if not found.episodes:
        asked = {k: v for k, v in asdict(warm.recorded_where).items() if v is not None}
        raise ConfigError(
            f"warm_start.recorded={warm.recorded}: nothing can be taught: {found}. "
            f"{f'Wanted are those with {asked}; ' if asked else ''}agentrl episodes RUN shows "
            "what is there"
        )
    return found


def digest(taught: Sequence[Chosen]) -> str:
    """The same where the same recorded episodes are taught."""
    told = hashlib.sha256()
    for chosen in taught:
        told.update(json.dumps(to_json(chosen.episode), sort_keys=True).encode() + b"\0")
    return told.hexdigest()
