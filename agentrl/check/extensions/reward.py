"""Checks of a reward function.

Settings are its keyword arguments, and `run=RUN` to score that run's episodes. Without a run, it
gets a made-up episode: a question with a picture.
"""

from collections.abc import Mapping
from typing import Any

from agentrl.check.extension_catalog import reference
from agentrl.check.support.sample_episode import sample_episode, truncated
from agentrl.config import RewardConfig
from agentrl.errors import ConfigError, RewardError
from agentrl.replay import open as open_run
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.types import Episode, ScoredEpisode

TAKES_NAMES = True
"""The checks get the target's name, because lambdas, partials and instances have none."""
USAGE = "rewards=[{{function: {}}}]"
"""The setting that adds this reward."""
_EPISODES = 20


def check_arguments(target: Any, settings: Mapping[str, Any]) -> None:
    """The reward function accepts the keyword arguments."""
    _functions(target, settings).close()


def check_finite(target: Any, settings: Mapping[str, Any]) -> None:
    """The reward function returns a finite number, or one per turn."""
    with _functions(target, settings) as functions:
        for episode in _episodes(settings):
            _score(functions, episode, settings)


def check_repeatable(target: Any, settings: Mapping[str, Any]) -> None:
    """An episode's reward is the same each time, even in another process."""
    # Each runs in its own process.
    with _functions(target, settings) as one, _functions(target, settings) as other:
        for episode in _episodes(settings):
            first = _score(one, episode, settings).components
            assert first == one.score(episode).components, f"{episode.id}: the second score differs"
            assert first == other.score(episode).components, (
                f"{episode.id}: the score differs between processes"
            )


def check_batches(target: Any, settings: Mapping[str, Any]) -> None:
    """A batch function returns one row for each of several episodes."""
    with _functions(target, settings, retries=False) as functions:
        for scored in functions.score_all(_episodes(settings)[:1] * 2):
            if isinstance(scored, RewardError):
                raise scored


def check_ends(target: Any, settings: Mapping[str, Any]) -> None:
    """Truncated, one-turn and empty episodes are scored too."""
    with _functions(target, settings) as functions:
        _score(functions, truncated(_episodes(settings)[0]), settings)
        # Made-up episodes lack the columns of a run's data set.
        if "run" not in settings:
            functions.score(sample_episode(1))
            assert functions.score(sample_episode(0)).rewards == ()


def _functions(
    target: Any, settings: Mapping[str, Any], *, retries: bool = True
) -> RewardFunctions:
    kwargs = {name: value for name, value in settings.items() if name != "run"}
    config = RewardConfig(function=reference(target), kwargs=kwargs)
    return RewardFunctions([config], retries=retries)


def _score(
    functions: RewardFunctions, episode: Episode, settings: Mapping[str, Any]
) -> ScoredEpisode:
    try:
        return functions.score(episode)
    except ConfigError as error:
        if "run" in settings:
            raise
        raise ConfigError(
            f"{error}. The made-up episode has no other columns: add run=RUN, the folder of a run "
            "with episodes of your data set, such as one of `agentrl eval CONFIG --policy expert`"
        ) from error


def _episodes(settings: Mapping[str, Any]) -> list[Episode]:
    if "run" not in settings:
        return [sample_episode()]
    run = open_run(settings["run"])
    valid = [one.id for one in run.episodes() if not one.outcome.void][:_EPISODES]
    if not valid:
        raise ConfigError(f"run={settings['run']}: the run has no valid episode")
    return [run.episode(id).episode for id in valid]
