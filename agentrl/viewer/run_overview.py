"""The overview page of a run as JSON values: counts, tables and curves."""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from agentrl.files import open_regular
from agentrl.replay import Run, Summary
from agentrl.replay.episode_summary import void_causes
from agentrl.replay.jsonl import JsonlTail
from agentrl.replay.run_layout import audit_file
from agentrl.text import printable
from agentrl.training.monitoring.metric_descriptions import SECTIONS, describe
from agentrl.training.monitoring.metrics_file import EVALUATION, JOB_LOG, METRICS_FILE, is_number
from agentrl.training.monitoring.progress import TRAINING_STAGES
from agentrl.training.run_summary import summarize
from agentrl.types import UNSCORED

_DATA_STAGES = TRAINING_STAGES[1:]
_COUNTED_STAGES = (*TRAINING_STAGES, EVALUATION)
"""Stages whose steps are training steps."""
_DECODINGS = ("sampled", "greedy")
_MAX_AUDITS = 20
_RECENT = 20
"""Training steps from which the remaining time is extrapolated."""
_MAX_LINES = 200_000
_MAX_POINTS = 2_000
"""Per curve; longer ones are thinned out to between half and all of this."""

Point = tuple[float, float]


def overview(run: Run) -> dict[str, Any]:
    """Counts, tables, configuration and state of a run."""
    episodes = run.episodes()
    line = summarize(run.path, episodes=episodes)
    return {
        "name": run.name,
        "env_id": episodes[-1].env_id if episodes else line.environment,
        "count": len(episodes),
        "turns": sum(s.turns for s in episodes),
        "tokens": _sampled_tokens(episodes, line.config),
        "first": episodes[0].time if episodes else None,
        "last": episodes[-1].time if episodes else None,
        "outcomes": dict(Counter(s.outcome.value for s in episodes)),
        "causes": dict(void_causes(episodes)),
        "configs": list(dict.fromkeys(s.config for s in episodes if s.config)),
        "command": _read(run.path / "command"),
        "job": line.state,
        "stage": line.stage,
        "failure": None if line.failure is None else asdict(line.failure),
        "log": (run.path / JOB_LOG).is_file(),
        "headline": line.headline,
        "steps": line.steps,
        "plays": rows_by_label(run),
        "devices": devices(run),
        "audits": audits(run),
        "config": _read(run.path / "config.yaml"),
        "summary": _object(run.path / "summary.json"),
        "state": _state(run.path / "state.json"),
    }


def _sampled_tokens(episodes: Sequence[Summary], config: Mapping[str, Any]) -> int:
    """The tokens that a model sampled: not those of people, demonstrations and scripted players."""
    named = _names(config, "env", "players") | _names(config, "eval", "baselines")
    scripted = {"human", "demo", "random", "expert"} | named
    return sum(s.tokens for s in episodes if s.label not in scripted)


def _names(config: Mapping[str, Any], section: str, key: str) -> set[str]:
    found = config.get(section)
    names = found.get(key) if isinstance(found, dict) else None
    return {str(name) for name in names} if isinstance(names, list | dict) else set()


def rows_by_label(run: Run) -> list[dict[str, Any]]:
    """Counts and means by label and step; all training steps share one row."""
    by_play: dict[tuple[str, str, int], list[Summary]] = defaultdict(list)
    for s in run.episodes():
        by_play[s.split, s.label, -1 if s.split == "train" else s.step].append(s)
    return [_play(episodes) for episodes in by_play.values()]


def _play(episodes: Sequence[Summary]) -> dict[str, Any]:
    first, last = min(s.step for s in episodes), max(s.step for s in episodes)
    return {
        "label": episodes[0].label, "split": episodes[0].split, "step": last,
        "steps": str(last) if first == last else f"{first} to {last}",
        "count": len(episodes), "void": sum(s.outcome.void for s in episodes),
        "total": _mean([s.reward for s in episodes if not s.outcome.void]),
        "success": _mean([float(s.success) for s in episodes if s.success is not None]),
        "unscored": sum(s.cause == UNSCORED for s in episodes) / len(episodes),
    }  # fmt: skip


def devices(run: Run) -> list[dict[str, Any]]:
    """Episodes and failures of each phone."""
    by_device: dict[str, list[Summary]] = defaultdict(list)
    for summary in run.episodes():
        if summary.device is not None:
            by_device[summary.device].append(summary)
    return [
        {
            "device": device,
            "episodes": len(episodes),
            "void": sum(s.outcome.void for s in episodes),
            "causes": dict(void_causes(episodes)),
            "seconds_per_turn": _mean([s.seconds / s.turns for s in episodes if s.turns]),
            "last": max(s.time for s in episodes),
        }
        for device, episodes in sorted(by_device.items())
    ]


def audits(run: Run) -> list[dict[str, Any]]:
    """The latest reports of `agentrl audit` and of a job's running audit, by name."""
    found = audit_file(run.path, "*").parent.glob("[!.]*.json")
    files = [file for file in found if file.is_file()]
    latest = sorted(files, key=lambda file: file.stat().st_mtime)[-_MAX_AUDITS:]
    named = ((file.stem, _object(file)) for file in sorted(latest))
    return [{**report, "name": name} for name, report in named if report and _is_audit(report)]


def _is_audit(report: dict[str, Any]) -> bool:
    cases = report.get("cases")
    return isinstance(cases, list) and all(isinstance(case, dict) for case in cases)


def _state(path: Path) -> dict[str, Any] | None:
    state = _object(path)
    return state if state and is_number(state.get("step", 0)) else None


def _object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is none."""
    try:
        found = json.loads(_read(path) or "")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _read(path: Path) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace", opener=open_regular) as file:
            return printable(file.read())
    except OSError:
        return None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


@dataclass(slots=True, kw_only=True, frozen=True)
class Curve:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    """(step, value), finite"""
    dots: bool = False
    """Whether to draw the points: there are few, far apart."""
    lone: bool = False
    """Whether to draw only the points: nothing was measured between them."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Chart:
    """Curves over the same training steps."""

    title: str
    curves: Sequence[Curve]
    about: str = ""
    """Explanation, if the title alone could be misread."""
    span: float = 0.0
    """The smallest range of the vertical axis: what is smaller is noise."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _ChartSpec:
    """The metrics of a chart: of each list, the first one that was logged."""

    title: str
    training: Sequence[str]
    held_out: Sequence[str] = field(default=())
    about: str = ""
    span: float = 0.0


_CHARTS = (
    _ChartSpec(title="Reward", training=("train/reward",), held_out=("reward",)),
    _ChartSpec(
        title="Success",
        training=("train/success", "train/won"),
        held_out=("success", "won"),
        about="Fraction of episodes that ended in success.",
    ),
    _ChartSpec(
        title="Accuracy",
        training=("train/accuracy",),
        held_out=("accuracy",),
        about="Fraction of correct rounds within an episode. An episode is a success if it is 1.",
    ),
    _ChartSpec(title="Turns per episode", training=("train/turns",)),
    _ChartSpec(title="Entropy, nats per token", training=("learner/entropy",)),
    _ChartSpec(
        title="KL between engine and learner, nats", training=("learner/mismatch_k1",), span=1e-3
    ),
    _ChartSpec(title="Void episodes", training=("rollout/void",)),
    _ChartSpec(title="Unreadable replies", training=("train/unreadable",)),
    _ChartSpec(
        title="False accepts of the reward",
        training=("audit/false_accept",),
        about="Fraction of the episodes that truly failed which the reward accepts (reward_audit).",
    ),
    _ChartSpec(title="Turns per second", training=("rollout/turns_per_s",)),
)

_DATA_CHARTS = (
    _ChartSpec(title="Loss", training=("learner/loss",), held_out=("loss",)),
    _ChartSpec(
        title="Token accuracy",
        training=("learner/token_accuracy",),
        held_out=("token_accuracy",),
        about="Fraction of tokens that are the most probable ones.",
    ),
    _ChartSpec(
        title="Answer accuracy",
        training=("learner/accuracy",),
        held_out=("accuracy",),
        about="Fraction of pairs whose better answer has the higher reward, or of replies on the "
        "side of their label.",
    ),
    _ChartSpec(title="Margin", training=("learner/margin",), held_out=("margin",)),
    _ChartSpec(title="Gradient norm", training=("learner/grad_norm",)),
)
"""Of training on data sets."""


class MetricHistory:
    """What a job has logged in `metrics.jsonl`, read incrementally as the file grows.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._tail = JsonlTail(run / METRICS_FILE)
        self._lines: list[dict[str, Any]] = []
        self._names: dict[str, None] = {}
        self._lock = threading.Lock()

    def lines(self) -> list[dict[str, Any]]:
        """All lines so far."""
        with self._lock:
            if self._tail.is_replaced():
                self._tail, self._lines, self._names = JsonlTail(self._tail.path), [], {}
            if self._tail.path.is_file() and len(self._lines) < _MAX_LINES:
                new = list(self._tail.new())
                self._lines.extend(new)
                for line in new:
                    if line.get("stage") in _COUNTED_STAGES:
                        unknown = line.keys() - self._names.keys()
                        self._names |= {key: None for key in unknown if is_number(line[key])}
            return list(self._lines)

    def names(self) -> list[str]:
        """The metrics of training steps and evaluations so far, in no order."""
        self.lines()
        return [name for name in self._names if name not in ("step", "time")]

    def points(self, name: str) -> list[Point]:
        """A metric by training step."""
        lines = self.lines()
        return _points(
            [one for one in lines if name in one and one.get("stage") in _COUNTED_STAGES], [name]
        )


def _section_of(metric: str) -> str:
    found = describe(metric)
    return SECTIONS[0] if found is None else found.section


def _about(metric: str) -> str:
    """The meaning of a metric and its unit."""
    found = describe(metric)
    if found is None:
        return ""
    return f"{found.meaning[:1].upper()}{found.meaning[1:]}{found.unit and f' ({found.unit})'}."


class MetricCurves:
    """The charts of a run.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._history = MetricHistory(run)

    def charts(self) -> list[Chart]:
        """The charts for which metrics were logged."""
        lines = self._history.lines()
        on_data = any(line.get("stage") in _DATA_STAGES for line in lines)
        drawn = (
            Chart(title=spec.title, curves=_curves(spec, lines), about=spec.about, span=spec.span)
            for spec in (_DATA_CHARTS if on_data else _CHARTS)
        )
        return [chart for chart in drawn if chart.curves]

    def sections(self) -> dict[str, int]:
        """The number of metrics of each section that has any."""
        counts = Counter(_section_of(name) for name in self._history.names())
        return {name: counts[name] for name in SECTIONS if counts[name]}

    def all_of(self, section: str | None, text: str = "") -> list[Chart]:
        """A chart for each metric of a section, or of all, whose name contains these words."""
        words = text.lower().split()
        return [
            Chart(
                title=name,
                curves=[Curve(name=name, points=self._history.points(name))],
                about=_about(name),
            )
            for name in sorted(self._history.names())
            if section in (None, _section_of(name)) and all(word in name.lower() for word in words)
        ]

    def remaining_s(self, steps: int) -> float | None:
        """The time that this many further training steps take, from the median of the latest."""
        times = [
            line["time"]
            for line in self._history.lines()
            if line.get("stage") in TRAINING_STAGES and is_number(line.get("time"))
        ]
        took = [after - before for before, after in pairwise(times[-_RECENT:])]
        return steps * median(took) if took else None


def _curves(spec: _ChartSpec, lines: Sequence[dict[str, Any]]) -> list[Curve]:
    """Evaluations during training are separate curves: they play fewer episodes.

    The last step has both an evaluation during training and one after it.
    """
    trained = [line for line in lines if line.get("stage") in TRAINING_STAGES]
    evaluated = [line for line in lines if line.get("stage") == EVALUATION]
    during = [line for line in evaluated if not _full_evaluations(line)]
    curves = [
        Curve(name="training", points=_points(trained, spec.training)),
        Curve(
            name="held out, during training",
            points=_points(during, [f"sampled/{key}" for key in spec.held_out]),
            dots=True,
        ),
        *(
            Curve(
                name=f"held out, before and after, {decoding}",
                points=_points(
                    [line for line in evaluated if decoding in _full_evaluations(line)],
                    [f"{decoding}/{key}" for key in spec.held_out],
                ),
                lone=True,
            )
            for decoding in _DECODINGS
        ),
    ]
    return [curve for curve in curves if curve.points]


def _full_evaluations(line: dict[str, Any]) -> list[str]:
    """Decodings with an episode count, which is logged only before and after training."""
    return [decoding for decoding in _DECODINGS if f"{decoding}/episodes" in line]


def _points(lines: Sequence[dict[str, Any]], keys: Sequence[str]) -> list[Point]:
    """Points in the order of steps; if a step was logged twice, the last line counts."""
    key = next((key for key in keys if any(is_number(line.get(key)) for line in lines)), None)
    if key is None:
        return []
    values = {}
    for line in lines:
        if is_number(value := line.get(key)) and is_number(step := line.get("step")):
            values[float(step)] = float(value)
    points = sorted(values.items())
    return points[:: max(1, -(-len(points) // _MAX_POINTS))]
