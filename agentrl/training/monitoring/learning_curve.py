"""The learning curve as an image in the run's folder. Only this module uses matplotlib."""

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.actions.players.noop_player import NOOP
from agentrl.files import atomic_replace
from agentrl.runs.metrics_file import read_metrics

log = logging.getLogger(__name__)

CURVE_FILE = "curve.png"
_CJK_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Source Han Sans SC",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "PingFang SC",
    "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Malgun Gothic",
)  # fmt: skip
_PANELS = ("accuracy", "success", "reward")
_DASHES = ("--", ":", "-.")
_MODEL = ("train", "sampled", "greedy")
_MODEL_COLORS = ("#2563eb", "#ea580c", "#059669")
_PLAYER_COLORS = ("#9333ea", "#64748b", "#be123c", "#0891b2", "#a16207")

Points = dict[int, float]


def read_curves(run: Path) -> dict[str, dict[str, Points]]:
    """Read the curves of the main metrics from `metrics.jsonl`.

    Returns:
        Value by step, keyed by metric (`success`), then by source (`train`, `sampled`, `greedy`,
        `expert`), without `noop`. A step that a resumed run repeated counts once.
    """
    curves: dict[str, dict[str, Points]] = {}
    for entry in read_metrics(run):
        for key, value in entry.items():
            label, _, panel = key.rpartition("/")
            # Doing nothing often earns so little that its line would flatten the others.
            if label == NOOP or "/ring/" in label:  # rings have a table of their own
                continue
            if panel in _PANELS and isinstance(value, int | float):
                points = curves.setdefault(panel, {}).setdefault(label or entry["stage"], {})
                points[entry["step"]] = value
    return curves


def draw_curve(run: Path) -> Path | None:
    """Draw the learning curve of a run.

    Returns:
        The path of `curve.png`; None without matplotlib or without any metrics.
    """
    curves = read_curves(run)
    if not curves:
        return None
    if find_spec("matplotlib") is None:
        log.info(
            "the learning curve was not drawn because matplotlib is not installed; run: pip "
            "install 'agentrl-screens[plot]'"
        )
        return None
    with _fonts_for_any_name():
        figure = plot_curves(curves)
        figure.suptitle(run.name)
        with atomic_replace(run / CURVE_FILE) as partial:
            figure.savefig(partial, format="png")
    return run / CURVE_FILE


@contextmanager
def _fonts_for_any_name() -> Iterator[None]:
    """Use installed fonts that cover Chinese, Japanese and Korean names."""
    import matplotlib
    from matplotlib.font_manager import get_font_names

    installed = set(get_font_names())
    families = [*matplotlib.rcParams["font.family"], *(f for f in _CJK_FONTS if f in installed)]
    with matplotlib.rc_context({"font.family": families}), warnings.catch_warnings():
        # Ignore the warning: without such a font, the image shows a box for the character.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        yield


def plot_curves(curves: Mapping[str, Mapping[str, Points]]) -> Any:
    """Plot a panel for each of the first two metrics, with a common legend below.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [panel for panel in _PANELS if panel in curves][:2]
    colors = _colors(label for panel in panels for label in curves[panel])
    # pyplot would keep global state, and open a window if there is a screen.
    figure = Figure(figsize=(6.4 * len(panels), 4.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    lines: dict[str, Any] = {}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        lines |= _draw_panel(axes, panel, curves[panel], colors)
    # Place the legend outside the axes, where it cannot cover a curve.
    figure.legend(
        lines.values(), lines, loc="outside lower center", ncols=5, frameon=False, fontsize=8
    )
    return figure


def _colors(labels: Iterable[str]) -> dict[str, str]:
    """Assign a color to each label for all panels; the model's labels have fixed colors."""
    colors = dict(zip(_MODEL, _MODEL_COLORS, strict=True))
    players = [label for label in dict.fromkeys(labels) if label not in colors]
    return colors | {
        player: _PLAYER_COLORS[number % len(_PLAYER_COLORS)]
        for number, player in enumerate(players)
    }


def _draw_panel(
    axes: Any, name: str, curves: Mapping[str, Points], colors: Mapping[str, str]
) -> dict[str, Any]:
    """Draw the curves of one metric, and return the lines by label."""
    from matplotlib.ticker import MaxNLocator

    lines = {}
    for number, (label, points) in enumerate(curves.items()):
        steps = sorted(points)
        # A scripted player's result is constant, so draw it across the panel.
        if label not in _MODEL:
            dashes = _DASHES[number % len(_DASHES)]
            lines[label] = axes.axhline(points[steps[-1]], color=colors[label], linestyle=dashes)
            continue
        few = len(steps) <= 15
        (lines[label],) = axes.plot(
            steps,
            [points[step] for step in steps],
            color=colors[label],
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
