"""Data of a run's overview page as JSON values: counts, tables and curves."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentrl.errors import RewardError
from agentrl.replay import Run, Summary
from agentrl.runs.episode_summary import void_causes
from agentrl.runs.file_reading import as_object, is_number, read_object, read_text
from agentrl.runs.job_failure import JOB_LOG
from agentrl.runs.metrics_file import EVALUATION, TRAINING_STAGES
from agentrl.runs.run_folder import COMMAND_FILE, CONFIG_FILE, RunFolder
from agentrl.runs.run_paths import audit_file
from agentrl.runs.run_summary import summarize
from agentrl.text import printable
from agentrl.training.monitoring.metric_descriptions import SECTIONS, describe
from agentrl.viewer.metric_history import Axis, MetricHistory, Point

_DATA_STAGES = TRAINING_STAGES[1:]
_DECODINGS = ("sampled", "greedy")
_MAX_AUDITS = 20


def overview(run: Run) -> dict[str, Any]:
    """Return a run's counts, tables, configuration and state."""
    episodes = run.episodes()
    line = summarize(run.path, episodes=episodes)
    files = RunFolder(run.path)
    state = files.read_state()
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
        "command": _shown(run.path / COMMAND_FILE),
        "job": line.state,
        "host": line.start and line.start.host,
        "code": line.start and line.start.code,
        "tags": list(line.tags),
        "stage": line.stage,
        "failure": None if line.failure is None else asdict(line.failure),
        "log": (run.path / JOB_LOG).is_file(),
        "headline": line.headline,
        "step": line.step,
        "steps": line.steps,
        "plays": rows_by_label(run),
        "devices": devices(run),
        "audits": audits(run),
        "config": _shown(run.path / CONFIG_FILE),
        "summary": files.read_summary() or None,
        "state": state if state and is_number(state.get("step", 0)) else None,
    }


def _sampled_tokens(episodes: Sequence[Summary], config: Mapping[str, Any]) -> int:
    """Count the tokens sampled by a model, not by people or scripted players."""
    scripted = {"human", "demo", "random", "expert"}
    for section, key in (("env", "players"), ("eval", "baselines")):
        names = as_object(config.get(section)).get(key)
        scripted |= set(map(str, names)) if isinstance(names, list | dict) else set()
    return sum(s.tokens for s in episodes if s.label not in scripted)


def rows_by_label(run: Run) -> list[dict[str, Any]]:
    """Return counts and means by label and step, with one row for all training steps."""
    by_play: dict[tuple[str, str, int], list[Summary]] = defaultdict(list)
    for s in run.episodes():
        by_play[s.split, s.label, -1 if s.split == "train" else s.step].append(s)
    rows = []
    for episodes in by_play.values():
        first, last = min(s.step for s in episodes), max(s.step for s in episodes)
        row = {
            "label": episodes[0].label, "split": episodes[0].split, "step": last,
            "steps": str(last) if first == last else f"{first} to {last}",
            "count": len(episodes), "void": sum(s.outcome.void for s in episodes),
            "reward": _mean([s.reward for s in episodes if not s.outcome.void]),
            "success": _mean([float(s.success) for s in episodes if s.success is not None]),
            "unscored": sum(s.cause == RewardError.__name__ for s in episodes) / len(episodes),
        }  # fmt: skip
        rows.append(row)
    return rows


def devices(run: Run) -> list[dict[str, Any]]:
    """Return each phone's episodes and failures."""
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
    """Return the latest reports of `agentrl audit` and of a job's running audit, by name."""
    found = audit_file(run.path, "*").parent.glob("[!.]*.json")
    files = [file for file in found if file.is_file()]
    latest = sorted(files, key=lambda file: file.stat().st_mtime)[-_MAX_AUDITS:]
    reports = []
    for file in sorted(latest):
        report = read_object(file)
        # The file may come from an untrusted source.
        cases = report.get("cases")
        if isinstance(cases, list) and all(isinstance(case, dict) for case in cases):
            reports.append({**report, "name": file.stem})
    return reports


def _shown(file: Path) -> str | None:
    """Return a file's text without control characters, or None if it cannot be read."""
    text = read_text(file)
    return None if text is None else printable(text)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


@dataclass(slots=True, kw_only=True, frozen=True)
class Curve:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    """(step, value) with finite values."""
    dots: bool = False
    """Whether to draw the points, too, because they are few and far apart."""
    lone: bool = False
    """Whether to draw only the points, because nothing was measured between them."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Chart:
    """Curves over the same training steps."""

    title: str
    curves: Sequence[Curve]
    about: str = ""
    """Explanation, if the title alone could be misunderstood."""
    span: float = 0.0
    """Minimum range of the vertical axis; smaller differences are noise."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _ChartSpec:
    """The metrics of a chart; from each list, the first metric that was logged is drawn."""

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
        about="Fraction of failed episodes that the reward accepts (reward_audit).",
    ),
    _ChartSpec(title="Turns per second", training=("rollout/turns_per_s",)),
)

_DATA_CHARTS = (
    _ChartSpec(title="Loss", training=("learner/loss",), held_out=("loss",)),
    _ChartSpec(
        title="Token accuracy",
        training=("learner/token_accuracy",),
        held_out=("token_accuracy",),
        about="Fraction of target tokens that are the model's most probable token.",
    ),
    _ChartSpec(
        title="Answer accuracy",
        training=("learner/accuracy",),
        held_out=("accuracy",),
        about="Fraction of pairs in which the better answer has the higher reward, or of replies "
        "whose reward has the correct sign.",
    ),
    _ChartSpec(title="Margin", training=("learner/margin",), held_out=("margin",)),
    _ChartSpec(title="Gradient norm", training=("learner/grad_norm",)),
)
"""Charts of training on data sets."""


def _section_of(metric: str) -> str:
    found = describe(metric)
    return SECTIONS[0] if found is None else found.section


def _about(metric: str) -> str:
    """Return a metric's meaning and unit."""
    found = describe(metric)
    if found is None:
        return ""
    return f"{found.meaning[:1].upper()}{found.meaning[1:]}{found.unit and f' ({found.unit})'}."


class MetricCurves:
    """The charts of a run."""

    def __init__(self, run: Path) -> None:
        self.history = MetricHistory(run)

    def charts(self, axis: Axis = "step") -> list[Chart]:
        """Return the charts for which metrics were logged."""
        history = self.history
        on_data = history.has_stage(_DATA_STAGES)
        drawn = (
            Chart(
                title=spec.title,
                curves=_curves(spec, history, axis),
                about=spec.about,
                span=spec.span,
            )
            for spec in (_DATA_CHARTS if on_data else _CHARTS)
        )
        return [chart for chart in drawn if chart.curves]

    def sections(self) -> dict[str, int]:
        """Return the number of metrics in each nonempty section."""
        counts = Counter(_section_of(name) for name in self.history.names())
        return {name: counts[name] for name in SECTIONS if counts[name]}

    def all_of(self, section: str | None, text: str = "", axis: Axis = "step") -> list[Chart]:
        """Return a chart of each metric whose name has these words, in one section or all."""
        words = text.lower().split()
        return [
            Chart(
                title=name,
                curves=[Curve(name=name, points=self.history.points(name, axis))],
                about=_about(name),
            )
            for name in sorted(self.history.names())
            if section in (None, _section_of(name)) and all(word in name.lower() for word in words)
        ]


def _curves(spec: _ChartSpec, history: MetricHistory, axis: Axis) -> list[Curve]:
    """Return a chart's curves: training, and evaluations during, before and after training."""
    # Evaluations during training play fewer episodes, and the last step has both kinds.
    # Separate them by the number of episodes, which is logged only before and after training.
    whole = {decoding: history.lines_with(f"{decoding}/episodes") for decoding in _DECODINGS}

    def evaluated(decoding: str, where: Callable[[int], bool]) -> Sequence[Point]:
        names = [f"{decoding}/{key}" for key in spec.held_out]
        return history.points(names, axis, stages=(EVALUATION,), where=where)

    curves = [
        Curve(name="training", points=history.points(spec.training, axis, stages=TRAINING_STAGES)),
        Curve(
            name="held out, during training",
            points=evaluated(
                "sampled", lambda line: not any(line in lines for lines in whole.values())
            ),
            dots=True,
        ),
        *(
            Curve(
                name=f"held out, before and after, {decoding}",
                points=evaluated(decoding, whole[decoding].__contains__),
                lone=True,
            )
            for decoding in _DECODINGS
        ),
    ]
    return [curve for curve in curves if curve.points]
