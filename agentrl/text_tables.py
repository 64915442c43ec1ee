"""Tables for terminals, as plain text for pipes, files and logs, and as HTML for notebooks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

UNLIMITED = 10_000
"""Width, in characters, for output that must not be wrapped."""
_GAP = "  "


def print_table(table: Table, console: Console) -> None:
    """Print a table.

    On a terminal, words and no-wrap columns are never broken, even if the table becomes wider than
    the terminal. Elsewhere, print plain text for other programs; see `_plain_table`.
    """
    if not console.is_terminal:
        console.file.write(f"{_plain_table(table)}\n")
        console.file.flush()
        return
    # By default, rich breaks words and squeezes columns to fit a table into the terminal.
    unlimited = console.options.update_width(UNLIMITED)
    for column in table.columns:
        sizes = [Measurement.get(console, unlimited, c) for c in (column.header, *column.cells)]
        column.min_width = max(s.maximum if column.no_wrap else s.minimum for s in sizes)
    width = Measurement.get(console, unlimited, table).minimum
    if width > console.width:
        table.box, table.padding = None, (0, 2, 0, 0)  # a frame's lines would wrap
        console.width = max(console.width, width)
    console.print(table, crop=False)


def _plain_table(table: Table) -> str:
    """Format a table as plain text: one line per row, aligned with spaces, never cut or wrapped.

    Args:
        table: table of text cells; the lines of a cell are joined.
    """
    columns = [
        [_plain(cell) for cell in (*([column.header] if table.show_header else []), *column.cells)]
        for column in table.columns
    ]
    widths = [max(map(cell_len, cells), default=0) for cells in columns]
    lines = [] if table.title is None else [_plain(table.title)]
    for row in zip(*columns, strict=True):
        cells = (
            f"{' ' * (width - cell_len(cell))}{cell}"
            if column.justify == "right"
            else f"{cell}{' ' * (width - cell_len(cell))}"
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        )
        lines.append(_GAP.join(cells).rstrip())
    return "\n".join(lines)


def _plain(cell: RenderableType) -> str:
    assert isinstance(cell, str | Text)
    text = Text.from_markup(cell, emoji=False) if isinstance(cell, str) else cell
    return _GAP.join(text.plain.splitlines())


@dataclass(slots=True, kw_only=True, frozen=True)
class ResultTable:
    """Results with a header, for terminals, plain text and notebooks."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    names: int = 1
    """Number of columns on the left that identify a row."""
    framed: bool = True
    """True if the table has rules; without them, all columns except the names are right-aligned."""

    @classmethod
    def of_metrics(
        cls, results: Mapping[str, Mapping[str, float]], *, may_turn: bool = False
    ) -> Self:
        """Make a table of the metrics of each player or evaluation.

        Args:
            results: maps the name of each player or evaluation to its metrics.
            may_turn: True to put players in rows instead of columns if they outnumber the metrics.
        """
        metrics = list(dict.fromkeys(name for numbers in results.values() for name in numbers))
        if may_turn and len(results) > len(metrics):
            rows = [[name, *(n.get(m, "") for m in metrics)] for name, n in results.items()]
            return cls(columns=["", *metrics], rows=rows)
        rows = [[metric, *(n.get(metric, "") for n in results.values())] for metric in metrics]
        return cls(columns=["", *results], rows=rows)

    def fold(self, width: int) -> list[Table]:
        """Return tables for a terminal, splitting the columns into several tables if too wide.

        Args:
            width: available width in characters.
        """
        grid = [self.columns, *([_short(cell) for cell in row] for row in self.rows)]
        gap, room = (3, width - 1) if self.framed else (len(_GAP), width)
        widths = [gap + max(map(cell_len, column)) for column in zip(*grid, strict=True)]
        parts, used = [list(range(self.names))], sum(widths[: self.names])
        for index in range(self.names, len(widths)):
            if len(parts[-1]) > self.names and used + widths[index] > room:
                parts.append(list(range(self.names)))
                used = sum(widths[: self.names])
            parts[-1].append(index)
            used += widths[index]
        return [self._part(grid, part) for part in parts]

    def _part(self, grid: Sequence[Sequence[str]], part: Sequence[int]) -> Table:
        table = Table() if self.framed else Table(box=None, padding=(0, len(_GAP), 0, 0))
        for index in part:
            is_right = not self.framed and index >= self.names
            table.add_column(
                Text(grid[0][index]),
                justify="right" if is_right else "left",
                no_wrap=not self.framed,
            )
        for row in grid[1:]:
            table.add_row(*(Text(row[index]) for index in part))
        return table

    def html(self) -> str:
        """Return the table for a notebook; its first row and column are headers."""
        lines = []
        for number, row in enumerate((self.columns, *self.rows)):
            tags = ["th" if number == 0 or column == 0 else "td" for column in range(len(row))]
            texts = [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row]
            cells = zip(tags, texts, strict=True)
            lines.append("".join(f"<{tag}>{escape(text)}</{tag}>" for tag, text in cells))
        return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


_OMITTED = ("seconds", "engine_check", "rings")
"""Keys that are no player's results. Those of rings have a table of their own."""


def flatten_results(results: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the results of several players as rows of numbers, omitting all other values.

    `{"before": {"greedy": {...}}}` becomes `{"before greedy": {...}}`.
    """
    rows: dict[str, dict[str, float]] = {}
    for name, value in results.items():
        if not isinstance(value, Mapping) or name in _OMITTED:
            continue
        numbers = {k: v for k, v in value.items() if isinstance(v, int | float)}
        if numbers:
            rows[name] = numbers
        rows |= {f"{name} {inner}": row for inner, row in flatten_results(value).items()}
    return rows


def _short(cell: str | float) -> str:
    return cell if isinstance(cell, str) else f"{cell:g}"
