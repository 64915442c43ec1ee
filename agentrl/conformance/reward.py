"""Checks of a reward function; settings are its keyword arguments, and `run=RUN` for its episodes.

Without a run, it gets a made-up episode of a question with a picture.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.config import RewardConfig
from agentrl.conformance.checking import reference
from agentrl.conformance.support.sample_episode import sample_episode, truncated
from agentrl.errors import ConfigError
from agentrl.replay import open as open_run
from agentrl.rollout.reward_adapters import awaited, inputs_of
from agentrl.rollout.scoring import RewardFunctions, load_reward_function
from agentrl.types import Episode, ScoredEpisode

TAKES_NAMES = True
"""The checks get a target's name: a lambda, a partial or an instance does not know its own."""
_EPISODES = 20


def check_arguments(target: Any, settings: Mapping[str, Any]) -> None:
    """It accepts its keyword arguments."""
    _functions(target, settings)


def check_finite(target: Any, settings: Mapping[str, Any]) -> None:
    """It returns a finite number, or one per turn."""
    functions = _functions(target, settings)
    for episode in _episodes(settings):
        _score(functions, episode, settings)


def check_repeatable(target: Any, settings: Mapping[str, Any]) -> None:
    """The same episode has the same reward each time, also from another instance."""
    one, other = _functions(target, settings), _functions(target, settings)
    for episode in _episodes(settings):
        first = _score(one, episode, settings).components
        assert first == one.score(episode).components, f"{episode.id}: differs the second time"
        assert first == other.score(episode).components, f"{episode.id}: differs by instance"


def check_unchanged(target: Any, settings: Mapping[str, Any]) -> None:
    """It does not change the episode, which is recorded afterwards."""
    functions = _functions(target, settings)
    for episode in _episodes(settings):
        before = copy.deepcopy([dict(turn.info) for turn in episode.turns])
        _score(functions, episode, settings)
        after = [dict(turn.info) for turn in episode.turns]
        assert before == after, f"{episode.id}: the info of a turn was changed; work on a copy"


def check_batches(target: Any, settings: Mapping[str, Any]) -> None:
    """A batch function returns one row for each of several episodes."""
    reward = load_reward_function(_config(target, settings))
    if not reward.is_batch:
        return
    given = [inputs_of(episode) for episode in _episodes(settings)[:1] * 2]
    rows = awaited(reward.function(given))
    assert isinstance(rows, Sequence), f"returned {type(rows).__name__}, not a list"
    assert len(rows) == len(given), f"returned {len(rows)} rows for {len(given)} episodes"


def check_ends(target: Any, settings: Mapping[str, Any]) -> None:
    """Truncated episodes, episodes of one turn and empty ones are scored too."""
    functions = _functions(target, settings)
    episode = _episodes(settings)[0]
    _score(functions, truncated(episode), settings)
    if "run" not in settings:
        functions.score(sample_episode(1))
        assert functions.score(sample_episode(0)).rewards == ()


def usage(target: str) -> str:
    """The setting that adds this reward."""
    return f"rewards=[{{function: {target}}}]"


def _functions(target: Any, settings: Mapping[str, Any]) -> RewardFunctions:
    return RewardFunctions([_config(target, settings)])


def _config(target: Any, settings: Mapping[str, Any]) -> RewardConfig:
    kwargs = {name: value for name, value in settings.items() if name != "run"}
    return RewardConfig(function=reference(target), kwargs=kwargs)


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
        raise ConfigError(f"run={settings['run']}: it has no valid episode")
    return [run.episode(id).episode for id in valid]
