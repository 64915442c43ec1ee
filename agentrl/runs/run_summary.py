"""Summarize runs, for the rows of `agentrl runs`."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from agentrl.errors import ConfigError
from agentrl.files import is_locked
from agentrl.confidence_intervals import Estimate, estimate, student_estimate
from agentrl.runs.annotations import read_tags
from agentrl.runs.episode_summary import Summary
from agentrl.runs.job_failure import JobFailure, read_failure
from agentrl.runs.metrics_file import STAGE_FILE, first_entry, last_training_step
from agentrl.runs.file_reading import as_integer, as_object, is_number, read_text
from agentrl.runs.run_folder import COMMAND_FILE, CONFIG_FILE, RunFolder
from agentrl.runs.episode_index import EpisodeIndex
from agentrl.runs.run_start_records import RunStart, last_start
from agentrl.text.formatting import duration_in_words, printable

State = Literal["running", "finished", "failed", "stopped"]
ENDS = ("before", "after")
_COMPARED = ("reward", "success", "accuracy", "score", "loss", "token_accuracy", "unscored")
RESULT_METRICS = ("success", "accuracy", "score", "reward", "token_accuracy", "loss")
"""Candidates for a run's result; the first metric that was measured counts."""
ARCHIVE = "archive"
"""Name of the folder of archived runs, next to the other runs."""
_LONGEST_STAGE = 200
"""Maximum length of a stage's name in characters; real names have about ten."""
_ON_DATA = {
    "agentrl sft": "sft",
    "agentrl dpo": "dpo",
    "agentrl train-reward-model": "reward_model",
}
"""Configuration section of each command that trains on data."""
_BySeed = Mapping[str, Mapping[str, float]]


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
    best_player: tuple[str, float] | None = None
    """The best scripted player and its result."""
    config: Mapping[str, Any]
    """Contents of `config.yaml`; empty if the file cannot be read."""

    @property
    def result(self) -> str:
        """The result, such as `accuracy 0.56 -> 0.98 (0.95 to 1.00)`; empty if none is known yet."""
        ends = [f"{one.mean:.3g}" for one in (self.before, self.after) if one is not None]
        if self.metric is None or not ends:
            return ""
        last = self.after or self.before
        within = ""
        if last is not None and last.low is not None and last.high is not None:
            within = f" ({last.low:.3g} to {last.high:.3g})"
        return f"{self.metric} {' -> '.join(ends)}{within}"

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
            **{
                end: one and {
                    "mean": round(one.mean, 6), "episodes": one.count,
                    "interval": [one.low, one.high],
                }
                for end, one in (("before", self.before), ("after", self.after))
            },
            "result": self.result,
        }  # fmt: skip


def find_runs(folder: Path) -> list[Path]:
    """Return the runs in a folder and in the folders of its sweeps and pipelines, newest first.

    Raises:
        ConfigError: the folder does not exist.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: no such folder. Start a job here, for example agentrl train sokoban, or "
            "pass the folder that contains your runs"
        )
    # Sweeps and pipelines keep their runs one folder level deeper.
    runs, groups = list[Path](), [folder]
    while groups:
        for file in (place := groups.pop()).glob("[!.]*"):
            if (file / CONFIG_FILE).is_file():
                runs.append(file)
            elif place == folder and file.is_dir() and file.name != ARCHIVE:
                groups.append(file)
    found = {run: (run / CONFIG_FILE).stat().st_mtime for run in runs}
    return sorted(found, key=lambda run: (found[run], run.name), reverse=True)


def is_folder_of_runs(path: str | Path) -> bool:
    """Return whether a folder contains runs or is empty, and is not a run itself."""
    folder = Path(path)
    is_run = (folder / CONFIG_FILE).is_file() or (folder / "episodes").is_dir()
    if is_run or not folder.is_dir():
        return False
    return bool(find_runs(folder)) or not any(folder.iterdir())


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
        with suppress(ConfigError):
            known = EpisodeIndex(run).all() if episodes is None else episodes
            played = [one for one in known if not one.outcome.void]
    metric, before, after = _result(results, _evaluated(run), _metrics(played))
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
        best_player=_best_player(results, metric),
        config=config,
    )


def job_state(run: Path) -> State | None:
    """Return the state of a run's job, `failed` if an error ended it; None without a job.

    A job writes `summary.json` when it ends; if the job was resumed later, `state.json` is ahead.
    """
    worked_in = is_locked(run)
    if worked_in is None or worked_in:
        return "running" if worked_in else None
    if read_failure(run) is not None:
        return "failed"
    summary, state = RunFolder(run).read_summary(), RunFolder(run).read_state()
    # An evaluation writes its policy when it starts, and adds its results when it ends.
    if "policy" in summary:
        return "finished" if "reward" in summary else "stopped"
    ended = "steps" in summary and summary["steps"] == state.get("step")
    return "finished" if ended else "stopped"


def job_stage(run: Path) -> str | None:
    """Return a running job's stage, such as `warm start`, or None if unknown."""
    if not is_locked(run):
        return None
    return printable((read_text(run / STAGE_FILE) or "").strip()[:_LONGEST_STAGE]) or None


def results_of(found: Any) -> dict[str, float]:
    """Return the metrics by which runs are compared, from sampled play or held-out examples."""
    numbers = as_object(as_object(found).get("sampled", found))
    return {name: numbers[name] for name in _COMPARED if is_number(numbers.get(name))}


def estimates_of(
    run: Path, results: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, Estimate]]:
    """Estimate `before`, `after` and their `difference`, paired by seed, for each metric."""
    played = {end: by_seed for end, by_seed in _evaluated(run).items() if end in ENDS}
    found: dict[str, dict[str, Estimate]] = {}
    for metric in results["after"]:
        values = {end: _values(played.get(end, {}), metric) for end in ENDS}
        estimates = {end: estimate([*own.values()]) for end, own in values.items() if own}
        # A mixture's result is weighted, so results by seed do not show its precision.
        if any(
            not math.isclose(one.mean, results[end].get(metric, math.nan), abs_tol=1e-3)
            for end, one in estimates.items()
        ):
            continue
        before, after = values.values()
        if shared := [after[seed] - before[seed] for seed in before if seed in after]:
            estimates["difference"] = student_estimate(shared)
        found[metric] = estimates
    return found


def _evaluated(run: Path) -> dict[str, _BySeed]:
    """Return metrics of sampled play by seed: `before`, `after`, and at the `latest` step."""
    played = dict[str, _BySeed]()
    for line in RunFolder(run).evaluations():
        end, _, decoding = line["name"].partition(" ")
        by_seed = as_object(line.get("by_seed"))
        if decoding == "sampled":
            played[end] = by_seed
        elif end == "step":
            played["latest"] = by_seed
    return played


def _metrics(episodes: Sequence[Summary]) -> dict[str, list[float]]:
    """Return the episodes' values of the metrics by which runs are compared."""
    found = dict[str, list[float]]()
    for one in episodes:
        success = {} if one.success is None else {"success": float(one.success)}
        for name, value in {**one.metrics, "reward": one.reward, **success}.items():
            if name in _COMPARED:
                found.setdefault(name, []).append(value)
    return found


def _result(
    results: Mapping[str, Any],
    evaluated: Mapping[str, _BySeed],
    played: Mapping[str, Sequence[float]],
) -> tuple[str | None, Estimate | None, Estimate | None]:
    """Return a run's result: the metric, and its estimates before and after training."""
    if "policy" in results:
        ends = {"after": results_of(results)}
    elif played:
        ends = {"after": {name: fmean(values) for name, values in played.items()}}
    else:
        ends = {end: results_of(results.get(end)) for end in ENDS}
    names = {name for end in ends.values() for name in end}
    metric = next((name for name in RESULT_METRICS if name in names), None)
    if metric is None:
        return None, None, None
    found = dict[str, Estimate]()
    for end, numbers in ends.items():
        values = played.get(metric) or [*_values(evaluated.get(end, {}), metric).values()]
        if metric in numbers:
            mean = numbers[metric]
            own = estimate(values) if values else None
            is_same = own is not None and math.isclose(own.mean, mean, abs_tol=1e-3)
            found[end] = own if own and is_same else Estimate(mean=mean, count=len(values))
    if "after" not in found and (latest := _values(evaluated.get("latest", {}), metric)):
        found["after"] = estimate([*latest.values()])
    return metric, found.get("before"), found.get("after")


def _best_player(results: Mapping[str, Any], metric: str | None) -> tuple[str, float] | None:
    """Return the scripted player with the best result."""
    players = {
        name: numbers[metric]
        for name, numbers in results.items()
        if name not in ENDS and isinstance(numbers, Mapping) and is_number(numbers.get(metric))
    }
    best = max(players, key=players.__getitem__, default=None)
    return None if best is None else (printable(best), players[best])


def _values(by_seed: _BySeed, metric: str) -> dict[str, float]:
    rows = ((seed, as_object(row).get(metric)) for seed, row in by_seed.items())
    return {seed: float(value) for seed, value in rows if is_number(value)}


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
