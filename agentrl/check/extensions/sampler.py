"""Checks of a task sampler, a class of `sampling.name`; settings belong to its section."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from agentrl import config as configuration
from agentrl.check.extension_catalog import reference
from agentrl.check.support.sample_steps import sample_turn, scored_episode
from agentrl.config import RolloutConfig, SamplerConfig
from agentrl.training.sampling.task_pool import TaskSet
from agentrl.training.sampling.task_sampler import (
    PlayedTask,
    TaskSampler,
    chosen_tasks,
    load_sampler,
)
from agentrl.types import ScoredEpisode

_SETS = (
    TaskSet(env="rows", weight=0.75, count=12),
    TaskSet(env="endless", weight=0.25, count=None),
)
_GROUPS, _SIZE, _STEPS = 8, 4, 60
_VISITS = 4 * _STEPS
"""Steps in which every task must have been chosen at least once."""


def config_of(target: type[TaskSampler], settings: Mapping[str, Any]) -> SamplerConfig:
    """Return the section `sampling` with these settings.

    Raises:
        ConfigError: a setting does not exist, or a value (maybe a default) is invalid.
    """
    return configuration.from_dict({"sampling": {**settings, "name": reference(target)}}).sampling


def check_settings(target: type[TaskSampler], config: SamplerConfig) -> None:
    """The sampler's docstring says what it does, and its settings survive a save and load."""
    text = getattr(target, "about", None)
    assert isinstance(text, str), f"{target.__name__}.about must be a string"
    saved = configuration.from_dict({"sampling": asdict(config)}).sampling
    assert saved == config, f"after a save and load, {asdict(config)} became {asdict(saved)}"


def check_choice(target: type[TaskSampler], config: SamplerConfig) -> None:
    """The sampler chooses one of the job's tasks per group, whatever the outcomes."""
    for solved in (0.0, 0.5, 1.0):
        with _folder() as folder:
            _train(_made(config, folder), solved, range(1, _STEPS))


def check_no_starvation(target: type[TaskSampler], config: SamplerConfig) -> None:
    """Every task keeps being chosen, however often it was solved."""
    for solved in (0.0, 1.0):
        with _folder() as folder:
            sampler = _made(config, folder)
            # A sampler could only start to ignore a task once it has evidence.
            _train(sampler, solved, range(1, _STEPS))
            chosen = _train(sampler, solved, range(_STEPS, _STEPS + _VISITS))
            tasks = [played.task for step in chosen for played in step]
            for one in sampler.tasks.sets:
                assert one.env in {task.env for task in tasks}, (
                    f"environment {one.env!r} was not chosen in {_VISITS} steps"
                )
            missing = {*range(len(sampler.tasks))} - {sampler.tasks.arm(task) for task in tasks}
            assert not (target.repeats and missing), (
                f"tasks {sorted(missing)} were not chosen in {_VISITS} steps"
            )


def check_resumed(target: type[TaskSampler], config: SamplerConfig) -> None:
    """A sampler restored from a checkpoint continues with the same choices."""
    with _folder() as folder:
        sampler = _made(config, folder)
        _train(sampler, 0.5, range(1, 20))
        # Checkpoints store the state as JSON.
        saved = json.dumps(sampler.state())
        resumed = _made(config, folder)
        resumed.tasks.restore(sampler.tasks.state(19))
        resumed.restore(json.loads(saved))
        assert json.loads(json.dumps(resumed.state())) == json.loads(saved), (
            "restore() loses part of what state() returned"
        )
        before = [[p.task for p in step] for step in _train(sampler, 0.5, range(20, 30))]
        again = [[p.task for p in step] for step in _train(resumed, 0.5, range(20, 30))]
        assert again == before, "a resumed sampler chooses other tasks"


def check_bounded(target: type[TaskSampler], config: SamplerConfig) -> None:
    """The sampler's state does not grow with the number of steps."""
    with _folder() as folder:
        sampler = _made(config, folder)
        _train(sampler, 0.5, range(1, 101))
        size = len(json.dumps(sampler.state()))
        _train(sampler, 0.5, range(101, 201))
        grown = len(json.dumps(sampler.state()))
        assert grown < 1.5 * size + 1000, f"grew from {size} to {grown} characters in 100 steps"


def check_metrics(target: type[TaskSampler], config: SamplerConfig) -> None:
    """The sampler's metrics are finite numbers."""
    with _folder() as folder:
        sampler = _made(config, folder)
        _train(sampler, 0.5, range(1, 10))
        for name, value in sampler.metrics().items():
            assert np.isfinite(value), f"{name} is {value}"


def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="agentrl-sampler-")


def _made(config: SamplerConfig, folder: str) -> TaskSampler:
    rollout = RolloutConfig(groups=_GROUPS, group_size=_SIZE)
    # Success is judged by the reward: the made-up environments report no success.
    return load_sampler(
        replace(config, success_at=1.0), _SETS, rollout, run_seed=0,
        folder=Path(folder) / "sampler",
    )  # fmt: skip


def _train(sampler: TaskSampler, solved: float, steps: range) -> list[list[PlayedTask]]:
    """Let the sampler choose and observe steps in which this share of each group succeeds."""
    found = []
    for step in steps:
        numbers = count()
        tasks = chosen_tasks(sampler, step, _GROUPS, 0)
        played = [
            PlayedTask(task=task, episodes=[
                _episode(f"{step}-{next(numbers)}", task.seed, member < solved * _SIZE, step)
                for member in range(_SIZE)
            ])
            for task in tasks
        ]  # fmt: skip
        for one in played:
            list(sampler.replay(step, one))
        sampler.observe(step, played)
        found.append(played)
    return found


def _episode(name: str, seed: Any, is_solved: bool, step: int) -> ScoredEpisode:
    """Return a one-turn episode played with the weights before a step."""
    turn = replace(sample_turn(3, None), reply_versions=(step - 1,) * 3)
    scored = scored_episode([turn], [float(is_solved)])
    return replace(scored, episode=replace(scored.episode, id=name, seed=seed))
