"""The charts of a run's metrics."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentrl.runs.metrics_file import EVALUATION, TRAINING_STAGES
from agentrl.training.monitoring.metric_descriptions import SECTIONS, describe
from agentrl.viewer.metric_history import Axis, MetricHistory, Point

_DATA_STAGES = TRAINING_STAGES[1:]
_DECODINGS = ("sampled", "greedy")


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
        title="Replies cut off at rollout.max_new_tokens",
        training=("train/truncated_replies",),
        held_out=("truncated_replies",),
    ),
    _ChartSpec(
        title="Stuck episodes",
        training=("train/stuck",),
        held_out=("stuck",),
        about="Fraction of episodes that fail after repeating an action without effect.",
    ),
    _ChartSpec(
        title="False claims of completion",
        training=("train/false_completion",),
        held_out=("false_completion",),
        about="Of the episodes in which the agent says that the task is done.",
    ),
    _ChartSpec(
        title="Side effects per episode",
        training=("train/side_effects",),
        held_out=("side_effects",),
    ),
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
