"""A whole run as a single HTML page: curves, what was played, examples, configuration."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agentrl import config as configuration
from agentrl.errors import ConfigError
from agentrl.replay import Run, Summary
from agentrl.types import Episode, without_placeholders
from agentrl.viewer.export.embedded_page import Embedded, render
from agentrl.viewer.metric_curves import Chart, Curve, Curves
from agentrl.viewer.run_overview import overview

_Row = dict[str, Any]
_WIDEST = 200
_TRIED = 20
"""Episodes, until one can be read."""
_SCREENS = 10
"""Of an example, at most."""
_WIDTH, _HEIGHT = 340, 150
_LEFT, _BOTTOM = 46, 20


@dataclass(slots=True, kw_only=True, frozen=True)
class _Drawn:
    """A chart as an SVG needs it."""

    title: str
    about: str
    lines: Sequence[tuple[Curve, str, Sequence[tuple[float, float]]]]
    """Of each curve the points of a polyline, and its dots."""
    ticks: Sequence[tuple[float, str]]
    """Heights and what stands there."""
    steps: Sequence[tuple[float, str]]


def report(run: Run) -> bytes:
    """The page."""
    told = overview(run)
    return render(
        "report.html.jinja",
        told=told,
        began=_clock(told["first"]),
        ended=_clock(told["last"]),
        charts=[_drawn(chart) for chart in Curves(run.path).charts()],
        job=_job(run, told),
        examples=_examples(run),
        size=(_WIDTH, _HEIGHT),
        left=_LEFT,
    )


def _examples(run: Run) -> list[_Row]:
    """The best, a middling and the worst episode of the last evaluation; else of what there is."""
    some = [s for s in run.episodes() if not s.outcome.void and s.turns and not s.removed]
    if held_out := [s for s in some if s.split == "eval"]:
        last = held_out[-1]
        some = [s for s in held_out if (s.label, s.step) == (last.label, last.step)]
    ranked = sorted(some, key=lambda s: (s.total, s.id))
    if not ranked:
        return []
    middle = len(ranked) // 2
    chosen = {
        "best": ranked[::-1],
        "median": sorted(ranked, key=lambda s: abs(ranked.index(s) - middle)),
        "worst": ranked,
    }
    pictures = Embedded(run, _WIDEST)
    found = (_example(run, name, nearest, pictures) for name, nearest in chosen.items())
    return [example for example in found if example is not None]


def _example(run: Run, name: str, nearest: Sequence[Summary], pictures: Embedded) -> _Row | None:
    """The first that can be read; the page says how many before it cannot."""
    for damaged, summary in enumerate(nearest[:_TRIED]):
        try:
            episode = run.episode(summary.id).episode
        except ConfigError:
            continue
        return _told(name, summary, episode, damaged, pictures)
    return None


def _told(name: str, summary: Summary, episode: Episode, damaged: int, pictures: Embedded) -> _Row:
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


def _job(run: Run, told: Mapping[str, Any]) -> str | None:
    """How far training has come, of how many steps; None where there is none."""
    state = told["state"]
    if told["job"] is None or not isinstance(state, dict):
        return None
    done = str(state.get("step", 0))
    with suppress(ConfigError):  # of another version: what is done is known all the same
        done += f" of {configuration.load(run.path / 'config.yaml').train.steps}"
    how = {"runs": "runs, after", "ended": "ended after"}.get(told["job"], "stopped after")
    return f"{how} {done} steps"


def _drawn(chart: Chart) -> _Drawn:
    xs = [x for curve in chart.curves for x, _ in curve.points]
    ys = [y for curve in chart.curves for _, y in curve.points]
    low, high = min(0.0, *ys), max(ys)
    high = high if high > low else 1.0
    first, last = min(xs), max(xs)
    wide = (last - first) or 1

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - first) / wide * (_WIDTH - _LEFT - 8)
        up = 8 + (1 - (y - low) / (high - low)) * (_HEIGHT - _BOTTOM - 8)
        return round(across, 1), round(up, 1)

    lines = []
    for curve in chart.curves:
        points = [place(x, y) for x, y in curve.points]
        line = " ".join(f"{x},{y}" for x, y in points)
        lines.append((curve, line, points if curve.dots else ()))
    marks = (low, (low + high) / 2, high)
    return _Drawn(
        title=chart.title,
        about=chart.about,
        lines=lines,
        ticks=[(place(first, y)[1], f"{y:.2g}") for y in marks],
        steps=[(place(x, low)[0], f"{x:g}") for x in dict.fromkeys((first, last))],
    )


def _clock(at: float | None) -> str:
    return "unknown" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
