"""The learning curve as a picture in the run's folder; the only place that knows matplotlib."""

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.files import replacing
from agentrl.training.report.loggers import METRICS_FILE, read_metrics

log = logging.getLogger(__name__)

CURVE_FILE = "curve.png"
_PANELS = ("accuracy", "success", "reward")
_DASHES = ("--", ":", "-.")
_MODEL = ("train", "sampled", "greedy")
_COLOURS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#64748b")

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
    panels = [panel for panel in _PANELS if panel in curves][:2]
    if not panels:
        return None
    if find_spec("matplotlib") is None:
        log.info("no learning curve: install matplotlib (pip install 'agentrl[plot]')")
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 * len(panels), 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, panel, curves[panel])
    figure.suptitle(run.name)
    with replacing(run / CURVE_FILE) as partial:
        figure.savefig(partial, format="png")
    return run / CURVE_FILE


def _draw_panel(axes: Any, name: str, curves: Mapping[str, Points]) -> None:
    for number, (label, points) in enumerate(curves.items()):
        steps = sorted(points)
        if label not in _MODEL:  # A scripted player: it learns nothing.
            dashes = _DASHES[number % len(_DASHES)]
            axes.axhline(points[steps[-1]], label=label, color="#94a3b8", linestyle=dashes)
            continue
        few = len(steps) <= 15
        axes.plot(
            steps,
            [points[step] for step in steps],
            label=label,
            color=_COLOURS[number % len(_COLOURS)],
            linewidth=1.8,
            marker="o" if few else None,
            markersize=4,
        )
    axes.set_xlabel("step")
    axes.set_ylabel(name)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
