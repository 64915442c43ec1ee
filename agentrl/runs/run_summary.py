"""Summarize runs, for the rows of `agentrl runs`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl.confidence_intervals import Estimate, with_interval
from agentrl.runs.annotations import read_tags
from agentrl.runs.episode_index import readable_episodes
from agentrl.runs.episode_summary import Summary
from agentrl.runs.file_reading import as_integer, as_object, is_number
from agentrl.runs.job_failure import JobFailure, read_failure
from agentrl.runs.job_state import State, job_stage, job_state
from agentrl.runs.metrics_file import first_entry, last_training_step
from agentrl.runs.rings import SEEDS, ring_of, ring_rows_of
from agentrl.runs.run_folder import COMMAND_FILE, CONFIG_FILE, RunFolder
from agentrl.runs.run_results import best_player, episode_metrics, evaluated_metrics, result_of
from agentrl.runs.run_start_records import RunStart, last_start
from agentrl.text.formatting import duration_in_words, printable

_ON_DATA = {
    "agentrl sft": "sft",
    "agentrl dpo": "dpo",
    "agentrl train-reward-model": "reward_model",
}
"""Configuration section of each command that trains on data."""


@dataclass(slots=True, kw_only=True, frozen=True)
class RunSummary:
    """Summary of one run."""

    path: Path
    name: str
    """The run's path relative to the folder of runs."""
    command: str
    """Command that started the run, such as `agentrl train`."""
    environment: str
    """The environment played or the data trained on."""
    algorithm: str
    """Name of the algorithm; empty if the run only plays."""
    seed: int
    step: int
    """The last finished training step."""
    steps: int | None
    """Number of planned training steps; None if the run only plays."""
    state: State | None
    """The job's state; None if no job has worked in the folder, as in a recording."""
    stage: str | None
    """A running job's current stage, such as `warm start`; None for other runs."""
    started: float
    """Time of the first start, in seconds since 1970."""
    start: RunStart | None
    """The run's latest start; None if no start is recorded."""
    tags: Sequence[str]
    """Tags that people gave the run."""
    failure: JobFailure | None
    """The error that ended the job; None for other runs."""
    seconds: float
    """Wall-clock time of the finished stages."""
    metric: str | None
    """The result's metric; None until something has been evaluated."""
    before: Estimate | None
    """The result before training."""
    after: Estimate | None
    """The result after training, or in the latest evaluation."""
    rings: Mapping[str, Estimate] = field(default_factory=dict)
    """The result on unseen `levels` and under unseen `rules`, after training; empty if not played
    (`eval.rings`)."""
    best_player: tuple[str, float] | None = None
    """The best scripted player and its result."""
    config: Mapping[str, Any]
    """Contents of `config.yaml`; empty if the file cannot be read."""

    @property
    def result(self) -> str:
        """The result, such as `accuracy 0.56 -> 0.98 (0.95 to 1.00)`; empty if not known yet."""
        if self.metric is None or (last := self.after or self.before) is None:
            return ""
        first = f"{self.before.mean:.3g} -> " if self.before and self.after else ""
        return f"{self.metric} {first}{with_interval(last)}"

    @property
    def headline(self) -> str:
        """The result with its interval, the best scripted player and the time, in one sentence."""
        parts = [self.result.replace(" (", " (95% interval ")] if self.result else []
        if self.best_player is not None and self.result:
            parts.append(f"{self.best_player[0]} {self.best_player[1]:.3g}")
        return ", ".join([*parts, f"in {duration_in_words(self.seconds)}"]) if parts else ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, with intervals as [low, high]."""
        return {
            "name": self.name, "path": str(self.path), "command": self.command,
            "environment": self.environment, "algorithm": self.algorithm, "seed": self.seed,
            "step": self.step, "steps": self.steps, "state": self.state, "stage": self.stage,
            "started": self.started, "seconds": round(self.seconds, 1), "metric": self.metric,
            "host": self.start and self.start.host, "commit": self.start and self.start.commit,
            "tags": list(self.tags),
            "error": None if self.failure is None else str(self.failure),
            "before": self.before and _as_json(self.before),
            "after": self.after and _as_json(self.after),
            "rings": {ring: _as_json(one) for ring, one in self.rings.items()},
            "result": self.result,
        }  # fmt: skip


def summarize(
    run: Path, folder: Path | None = None, episodes: Sequence[Summary] | None = None
) -> RunSummary:
    """Summarize a run from its files, treating damaged files as missing.

    Args:
        run: the run's folder.
        folder: the folder that the run's name is relative to; None for the parent folder.
        episodes: the run's episodes if already read.
    """
    files = RunFolder(run)
    config, summary, state = files.read_config(), files.read_summary(), files.read_state()
    results = {**as_object(state.get("results")), **summary}
    job = job_state(run)
    plays = "agentrl eval" if "policy" in summary else None
    # A recorded game has no results or state, and no job has locked its folder.
    if not summary and not state and job is None:
        plays = "agentrl play"
    command = files.command or plays or "agentrl train"
    on_data = _ON_DATA.get(command)
    section = as_object(config.get(on_data or "train"))
    algorithm = on_data or str(as_object(config.get("algorithm")).get("name", ""))
    # Evaluations and games have no results of their own until they end, so use their episodes.
    played = list[Summary]()
    if plays:
        if episodes is None:
            episodes = readable_episodes(run)
        played = [one for one in episodes if not one.outcome.void and ring_of(one.label) == SEEDS]
    metric, before, after = result_of(results, evaluated_metrics(run), episode_metrics(played))
    rings = {one.player: one.estimates for one in ring_rows_of(run, episodes)}
    seconds = _seconds(summary.get("seconds", state.get("seconds")))
    path = run.absolute()
    return RunSummary(
        path=run,
        name=printable(str(path.relative_to(path.parent if folder is None else folder.absolute()))),
        command=printable(command),
        environment=printable(_environment(config, on_data)),
        algorithm="" if plays else printable(algorithm),
        seed=as_integer(config.get("seed")) or 0,
        step=max(as_integer(state.get("step", summary.get("steps"))) or 0, last_training_step(run)),
        steps=None if plays else as_integer(section.get("steps")),
        state=job,
        stage=job_stage(run),
        started=_started(run),
        start=last_start(run),
        tags=read_tags(run),
        failure=read_failure(run) if job == "failed" else None,
        seconds=seconds or sum(one.seconds for one in played),
        metric=metric,
        before=before,
        after=after,
        rings=_without_seeds(rings.get(str(results.get("policy", "after, sampled")), {})),
        best_player=best_player(results, metric),
        config=config,
    )


def _without_seeds(estimates: Mapping[str, Estimate]) -> dict[str, Estimate]:
    return {ring: found for ring, found in estimates.items() if ring != SEEDS}


def _as_json(found: Estimate) -> dict[str, Any]:
    interval = [found.low, found.high]
    return {"mean": round(found.mean, 6), "episodes": found.count, "interval": interval}


def _environment(config: Mapping[str, Any], on_data: str | None) -> str:
    """Return the name of the environment or the data."""
    if on_data is not None:
        return Path(
            str(as_object(as_object(config.get(on_data)).get("train")).get("data", "?"))
        ).name
    mixed = config.get("mixture")
    if isinstance(mixed, list) and mixed:
        return " + ".join(str(as_object(one).get("name", "?")) for one in mixed)
    return str(as_object(config.get("env")).get("id", "?"))


def _started(run: Path) -> float:
    """Return the time of a run's first file or metric."""
    # Resuming rewrites `config.yaml`, and in a copy of a run all files have new times.
    files = [file for file in (run / COMMAND_FILE, run / CONFIG_FILE) if file.is_file()]
    times = [file.stat().st_mtime for file in files]
    first = first_entry(run).get("time")
    if is_number(first) and first > 0:
        times.append(float(first))
    return min(times, default=time.time())


def _seconds(took: Any) -> float:
    parts = [took, *as_object(took).values()]
    total = sum(float(value) for value in parts if is_number(value))
    return total if is_number(total) else 0.0
