"""The learning curve as a picture in the run's folder; the only place that knows matplotlib."""

import logging
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.files import replacing
from agentrl.training.monitoring.loggers import METRICS_FILE, read_metrics

log = logging.getLogger(__name__)

CURVE_FILE = "curve.png"
_PANELS = ("accuracy", "success", "reward")
_DASHES = ("--", ":", "-.")
_MODEL = ("train", "sampled", "greedy")
_MODEL_COLOURS = ("#2563eb", "#ea580c", "#059669")
_PLAYER_COLOURS = ("#9333ea", "#64748b", "#be123c", "#0891b2", "#a16207")

Points = dict[int, float]


def read_curves(run: Path) -> dict[str, dict[str, Points]]:
    """The numbers worth a curve, from `metrics.jsonl`.

    Returns:
        By the last part of the metric's name (`accuracy`), then by what stands before it (`train`,
        `sampled`, `greedy`, `expert`): value by step. What a resumed run did again counts once.
    """
    curves: dict[str, dict[str, Points]] = {}
    path = run / METRICS_FILE
    for entry in read_metrics(path) if path.is_file() else ():
        for key, value in entry.items():
            label, _, panel = key.rpartition("/")
            if panel in _PANELS and isinstance(value, int | float):
                points = curves.setdefault(panel, {}).setdefault(label or entry["stage"], {})
                points[entry["step"]] = value
    return curves


def draw_curve(run: Path) -> Path | None:
    """Draw what was learned.

    Args:
        run: a folder with `metrics.jsonl`.

    Returns:
        The picture, `curve.png`; None without matplotlib or without any numbers.
    """
    curves = read_curves(run)
    if not curves:
        return None
    if find_spec("matplotlib") is None:
        log.info("no learning curve: install matplotlib (pip install 'agentrl[plot]')")
        return None
    figure = figure_of(curves)
    figure.suptitle(run.name)
    with replacing(run / CURVE_FILE) as partial:
        figure.savefig(partial, format="png")
    return run / CURVE_FILE


def figure_of(curves: Mapping[str, Mapping[str, Points]]) -> Any:
    """A panel for each of the first two quantities, and one legend below them all.

    Args:
        curves: at least one, as `read_curves` returns them.

    Returns:
        A figure of matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [panel for panel in _PANELS if panel in curves][:2]
    colours = _colours(label for panel in panels for label in curves[panel])
    figure = Figure(figsize=(6.4 * len(panels), 4.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    lines: dict[str, Any] = {}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        lines |= _draw_panel(axes, panel, curves[panel], colours)
    # Outside: wherever it stood within, some line may pass there.
    figure.legend(
        lines.values(), lines, loc="outside lower center", ncols=5, frameon=False, fontsize=8
    )
    return figure


def _colours(labels: Iterable[str]) -> dict[str, str]:
    """One colour for each, the same in all panels; what the model does keeps its own."""
    found = dict(zip(_MODEL, _MODEL_COLOURS, strict=True))
    players = [label for label in dict.fromkeys(labels) if label not in found]
    return found | {
        player: _PLAYER_COLOURS[number % len(_PLAYER_COLOURS)]
        for number, player in enumerate(players)
    }


def _draw_panel(
    axes: Any, name: str, curves: Mapping[str, Points], colours: Mapping[str, str]
) -> dict[str, Any]:
    """Draw the curves of one quantity; the lines by their labels."""
    from matplotlib.ticker import MaxNLocator

    lines = {}
    for number, (label, points) in enumerate(curves.items()):
        steps = sorted(points)
        if label not in _MODEL:  # A scripted player: it learns nothing.
            dashes = _DASHES[number % len(_DASHES)]
            lines[label] = axes.axhline(points[steps[-1]], color=colours[label], linestyle=dashes)
            continue
        few = len(steps) <= 15
        (lines[label],) = axes.plot(
            steps,
            [points[step] for step in steps],
            color=colours[label],
            linewidth=1.8,
            marker="o" if few else None,
            markersize=4,
        )
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(name)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return lines
