"""Render a whole run as a single HTML page: curves, tables, example episodes, configuration."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl import config as configuration
from agentrl.errors import ConfigError
from agentrl.replay import Run, Summary
from agentrl.runs.rings import SEEDS, ring_of
from agentrl.types import Episode, without_placeholders
from agentrl.viewer.export.html_pages import EmbeddedFrames, render
from agentrl.viewer.metric_charts import Chart, Curve, MetricCurves
from agentrl.viewer.run_overview import overview

_Row = dict[str, Any]
_WIDEST = 200
_MAX_ATTEMPTS = 20
"""Maximum number of unreadable episodes to skip for one example."""
_SCREENS = 10
"""Maximum number of screens per example."""
_WIDTH, _HEIGHT = 340, 150
_LEFT, _BOTTOM = 46, 20
_SHORT = 1e-3
"""Value below which the vertical axis uses exponents, as its margin fits six characters."""
CANVAS = {"size": (_WIDTH, _HEIGHT), "left": _LEFT}
"""Variables for templates that draw charts."""


@dataclass(slots=True, kw_only=True, frozen=True)
class SvgChart:
    """A chart in SVG coordinates."""

    title: str
    about: str
    lines: Sequence[tuple[Curve, str, Sequence[tuple[float, float]]]]
    """Each curve with its polyline's points and its dots."""
    ticks: Sequence[tuple[float, str]]
    """Positions and labels on the vertical axis."""
    steps: Sequence[tuple[float, str]]
    """Positions and labels on the horizontal axis."""


def report(run: Run) -> bytes:
    """Render a run's page."""
    about = overview(run)
    return render(
        "report.html.jinja",
        about=about,
        began=_clock(about["first"]),
        ended=_clock(about["last"]),
        charts=charts_of(run.path),
        job=_job(run, about),
        examples=_examples(run),
        **CANVAS,
    )


def _examples(run: Run) -> list[_Row]:
    """Return the best, median and worst episode of the last evaluation, or else of the run."""
    candidates = [s for s in run.episodes() if not s.outcome.void and s.turns and not s.removed]
    if held_out := [s for s in candidates if s.split == "eval" and ring_of(s.label) == SEEDS]:
        last = held_out[-1]
        candidates = [s for s in held_out if (s.label, s.step) == (last.label, last.step)]
    ranked = sorted(candidates, key=lambda s: (s.reward, s.id))
    if not ranked:
        return []
    middle = len(ranked) // 2
    chosen = {
        "best": ranked[::-1],
        "median": sorted(ranked, key=lambda s: abs(ranked.index(s) - middle)),
        "worst": ranked,
    }
    pictures, examples = EmbeddedFrames(run, _WIDEST), []
    for name, nearest in chosen.items():
        for damaged, summary in enumerate(nearest[:_MAX_ATTEMPTS]):
            # The page shows the number of damaged episodes that were skipped.
            with suppress(ConfigError):
                episode = run.episode(summary.id).episode
                examples.append(_example(name, summary, episode, damaged, pictures))
                break
    return examples


def _example(
    name: str, summary: Summary, episode: Episode, damaged: int, pictures: EmbeddedFrames
) -> _Row:
    # Show evenly spaced turns of a long episode.
    stride = -(-len(episode.turns) // _SCREENS)
    shown = [
        {
            "number": number + 1,
            "screen": pictures.uri(turn.frames[-1]) if turn.frames else None,
            "shown": without_placeholders(turn.shown)[:400],
            "reply": turn.reply[:300],
        }
        for number, turn in enumerate(episode.turns)
        if number % stride == 0
    ]
    return {"name": name, "summary": summary, "turns": shown, "damaged": damaged}


def _job(run: Run, about: Mapping[str, Any]) -> str | None:
    """Return the training job's state and its progress in steps, or None without a job."""
    state = about["state"]
    if about["job"] is None or not isinstance(state, dict):
        return None
    done = str(state.get("step", 0))
    # The number of steps is unknown if another version wrote the configuration.
    with suppress(ConfigError):
        done += f" of {configuration.load(run.path / 'config.yaml').train.steps}"
    status = {"running": "running, at", "finished": "finished after", "failed": "failed after"}.get(
        about["job"], "stopped after"
    )
    return f"{status} {done} steps"


def charts_of(run: Path) -> list[SvgChart]:
    """Return the charts of a run's metrics."""
    return [_drawn(chart) for chart in MetricCurves(run).charts()]


def _drawn(chart: Chart) -> SvgChart:
    xs = [x for curve in chart.curves for x, _ in curve.points]
    ys = [y for curve in chart.curves for _, y in curve.points]
    low, high = min(0.0, *ys), max(ys)
    # Avoid an empty range if all values are zero.
    high = high if high > low else 1.0
    first, last = min(xs), max(xs)
    span = (last - first) or 1

    def to_svg(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - first) / span * (_WIDTH - _LEFT - 8)
        down = 8 + (1 - (y - low) / (high - low)) * (_HEIGHT - _BOTTOM - 8)
        return round(across, 1), round(down, 1)

    lines = []
    for curve in chart.curves:
        points = [to_svg(x, y) for x, y in curve.points]
        line = " ".join(f"{x},{y}" for x, y in points)
        lines.append((curve, line, points if curve.dots or curve.lone else ()))
    marks = (low, (low + high) / 2, high)
    return SvgChart(
        title=chart.title,
        about=chart.about,
        lines=lines,
        ticks=[(to_svg(first, y)[1], _tick(y)) for y in marks],
        steps=[(to_svg(x, low)[0], f"{x:g}") for x in dict.fromkeys((first, last))],
    )


def _tick(value: float) -> str:
    """Format two digits, short enough for the margin: `0.00019` is `1.9e-4`."""
    if value == 0 or abs(value) >= _SHORT:
        return f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def _clock(at: float | None) -> str:
    return "unknown" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
