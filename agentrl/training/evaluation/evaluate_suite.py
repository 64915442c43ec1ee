"""Evaluate a policy on every entry of an evaluation suite."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.training.evaluation.evaluate import (
    Evaluation,
    EvaluationJob,
    check_evaluation,
    play_evaluations,
)
from agentrl.training.evaluation.suite import entries_of
from agentrl.training.run_folder import open_target, overridden_name

MEAN = "mean"
"""The column of the report that averages the metrics which all entries have."""


def evaluate_suite(
    target: Config | str | Path,
    suite: str | None = None,
    *,
    episodes: int | None = None,
    policy: str = "model",
    greedy: bool = False,
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
) -> dict[str, Evaluation]:
    """Evaluate the model of a run or of a configuration, or a scripted player, on a suite.

    Each entry is recorded in a folder of its own; the model is loaded once.

    Args:
        target: a run's folder, a configuration, or its file or name.
        suite: its name, `module:Class` or `path/file.py:Class`; None takes `eval.suite`.
        episodes: of each entry; None takes the entry's own.
        policy: see `agentrl.evaluate`.
        greedy: see `agentrl.evaluate`.
        checkpoint: see `agentrl.evaluate`.
        overrides: `key=value` settings.

    Returns:
        The evaluation of each entry, by its name.

    Raises:
        ConfigError: something that an entry names does not exist; nothing is played then.
        WorldError: see `agentrl.evaluate`.
    """
    config, run = open_target(target, overrides)
    suite = suite or config.eval.suite
    if suite is None:
        raise ConfigError("eval.suite is not set: name a suite (agentrl list suite)")
    if episodes is not None and episodes < 1:
        raise ConfigError(f"episodes={episodes}: must be at least 1")
    config = replace(
        config, run=replace(config.run, name=overridden_name(config.run.name, overrides))
    )
    player = None if policy == "model" else policy
    jobs: dict[str, EvaluationJob] = {}
    for entry in entries_of(suite):
        own = (entry if episodes is None else replace(entry, episodes=episodes)).applied_to(config)
        if own.run.name is not None:
            own = replace(own, run=replace(own.run, name=f"{own.run.name}-{_plain(entry.name)}"))
        try:
            jobs[entry.name] = check_evaluation(own, run, target, player, greedy, checkpoint)
        except ConfigError as error:
            raise ConfigError(f"eval.suite={suite}, entry {entry.name!r}: {error}") from error
    next(iter(jobs.values())).warn_if_untrained()
    played = play_evaluations(
        [(job, {"suite": suite, "entry": name}) for name, job in jobs.items()]
    )
    return dict(zip(jobs, played, strict=True))


def summaries(results: Mapping[str, Evaluation]) -> dict[str, dict[str, float]]:
    """The means and counts of each entry, and the mean of the metrics that all entries have."""
    rows = {name: dict(result.summary()) for name, result in results.items()}
    shared = set.intersection(*(set(result.metrics) for result in results.values()))
    first = next(iter(results.values())).metrics
    means = {
        key: round(float(np.mean([result.metrics[key] for result in results.values()])), 4)
        for key in first
        if key in shared
    }
    return {**rows, MEAN: means}


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)
