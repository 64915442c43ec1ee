"""How metrics and results are shown as text: tables, durations and the most important metrics."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from agentrl.text_tables import fold

HEADLINE = (
    "reward", "success", "accuracy", "unscored", "tokens_per_s", "episodes_per_s", "score",
    "token_accuracy", "loss", "unreadable", "void",
    "mismatch_max", "entropy", "turns_per_s",
)  # fmt: skip
"""Metrics shown on the console, in this order; all others are only in the files."""


def results_tables(players: Mapping[str, Mapping[str, float]], width: int) -> list[Table]:
    """The metrics of each player, or of each evaluation, in tables of at most this width.

    Each has a column; or a row, if there are more of them than metrics.
    """
    metrics = list(dict.fromkeys(name for numbers in players.values() for name in numbers))
    grid = [["", *players]]
    grid += [[m, *(f"{n[m]:g}" if m in n else "" for n in players.values())] for m in metrics]
    if len(players) > len(metrics):
        grid = [list(row) for row in zip(*grid, strict=True)]
    return fold(grid, width)


def headline(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    """Name and text of the most important metrics."""
    values: dict[str, float] = {}
    for key, value in metrics.items():
        values.setdefault(key.rpartition("/")[2], value)
    return [
        (name.replace("_per_s", "/s"), _text(values[name])) for name in HEADLINE if name in values
    ]


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def flatten_results(results: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Results of several players as rows of numbers; anything else is left out.

    `{"before": {"greedy": {...}}}` becomes `{"before greedy": {...}}`.
    """
    rows: dict[str, dict[str, float]] = {}
    for name, value in results.items():
        if not isinstance(value, Mapping) or name == "seconds":
            continue
        numbers = {k: v for k, v in value.items() if isinstance(v, int | float)}
        if numbers:
            rows[name] = numbers
        rows |= {f"{name} {inner}": row for inner, row in flatten_results(value).items()}
    return rows
