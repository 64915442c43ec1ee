"""Recorded episodes that a warm start teaches: which ones, and what is left out."""

import hashlib
import logging
from dataclasses import asdict

from agentrl import replay
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.replay.layout import episode_file
from agentrl.training.choosing import Choice, Judge

log = logging.getLogger(__name__)


def check(config: Config) -> Choice:
    """As `choose`, and tell what is left out.

    Raises:
        ConfigError: as `choose`.
    """
    found = choose(config)
    if found.left_out:
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

    Left out is what is void, what has a turn that shows nothing or was no action, and what was
    played on the seeds that the job is evaluated on.

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
        judge.judge(path, where, found)
    if not found.episodes:
        asked = {k: v for k, v in asdict(warm.recorded_where).items() if v is not None}
        raise ConfigError(
            f"warm_start.recorded={warm.recorded}: nothing can be taught: {found}. "
            f"{f'Wanted are those with {asked}; ' if asked else ''}agentrl replay RUN --list shows "
            "what is there"
        )
    return found


def digest(config: Config) -> str:
    """The same where the same recorded episodes are taught."""
    told = hashlib.sha256()
    for chosen in choose(config).episodes:
        told.update(chosen.summary.id.encode() + b"\0")
        told.update(episode_file(chosen.run.path, chosen.summary.id).read_bytes())
    return told.hexdigest()
