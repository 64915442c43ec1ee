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
from agentrl.training import seeds
from agentrl.training.supervised.demonstration_filter import (
    DemonstrationFilter,
    DemonstrationSelection,
    SelectedEpisode,
)

log = logging.getLogger(__name__)


def select_demonstrations(config: Config) -> DemonstrationSelection:
    """The recorded episodes that a job's warm start trains on.

    Skipped are void episodes, those with a turn that shows nothing or without any valid action,
    and those on the seeds that the job is evaluated on. The number of each is logged.

    Raises:
        ConfigError: there is no such run, none of its episodes qualifies, or they cannot be used:
            they are of another environment, lack texts or images, or are in another format.
    """
    choice = DemonstrationSelection()
    warm = config.warm_start
    if warm is None or not warm.recorded:
        return choice
    try:
        where = replay.Filter(**asdict(warm.recorded_filter))
    except ConfigError as error:
        raise ConfigError(f"warm_start.recorded_filter.{error}") from None
    held_out = seeds.evaluation_seeds(
        config.eval, max(config.eval.episodes, config.eval.episodes_during)
    )
    demonstrations = DemonstrationFilter(warm, config.env, config.model, held_out)
    for path in warm.recorded:
        for selected in demonstrations.select(path, where):
            if isinstance(selected, SelectedEpisode):
                choice.episodes.append(selected)
            else:
                choice.skipped[selected] += 1
    if not choice.episodes:
        filters = {k: v for k, v in asdict(warm.recorded_filter).items() if v is not None}
        raise ConfigError(
            f"warm_start.recorded={warm.recorded}: no episode can be used: {choice}. "
            f"{f'The filter is {filters}; ' if filters else ''}agentrl episodes RUN shows "
            "the episodes"
        )
    _log_skipped(choice)
    return choice


def _log_skipped(choice: DemonstrationSelection) -> None:
    if choice.skipped or choice.context_turns:
        log.warning("warm_start.recorded: %s", choice)
    if choice.has_other_instructions:
        log.warning(
            "warm_start.recorded: %d of %d episodes were played with other instructions; they are "
            "used with the instructions of this job",
            choice.has_other_instructions,
            len(choice.episodes),
        )


def demonstrations_digest(demonstrations: Sequence[SelectedEpisode]) -> str:
    """Hex SHA-256 over the recorded episodes."""
    content = hashlib.sha256()
    for chosen in demonstrations:
        content.update(json.dumps(to_json(chosen.episode), sort_keys=True).encode() + b"\0")
    return content.hexdigest()
