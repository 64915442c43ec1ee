"""How metrics and results are shown as text: tables, durations and the most important metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

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
    tables = list[Table]()
    for part in fold_columns(grid, width - 1, gap=3):
        header, *rows = ([escape(row[k]) for k in part] for row in grid)  # may look like markup
        tables.append(Table(*header))
        for row in rows:
            tables[-1].add_row(*row)
    return tables


def fold_columns(
    rows: Sequence[Sequence[str]], width: int, *, gap: int, kept: int = 1
) -> list[list[int]]:
    """Divide the columns of a table that is too wide.

    Args:
        rows: all rows, with the header.
        width: of the place for it, in characters.
        gap: characters that each column takes in addition to its text.
        kept: how many columns at the left are part of each division.

    Returns:
        For each division the indices of its columns.
    """
    widths = [gap + max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    first = list(range(kept))
    parts, used = [first.copy()], sum(widths[:kept])
    for index in range(kept, len(widths)):
        if len(parts[-1]) > kept and used + widths[index] > width:
            parts.append(first.copy())
            used = sum(widths[:kept])
        parts[-1].append(index)
        used += widths[index]
    return parts


def format_duration(seconds: float) -> str:
    """A duration, such as `42 s`, `3:05` or `1:02:05`."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration_in_words(seconds: float) -> str:
    """A duration for a sentence, such as `42 s`, `3 min 5 s` or `1 h 2 min`."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


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
