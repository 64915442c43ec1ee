"""Tables on terminals, and as plain text for pipes, files and logs, which other programs read."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

UNLIMITED = 10_000
"""Width of what must not be wrapped, in characters."""
_GAP = "  "


def print_table(table: Table, console: Console) -> None:
    """Print a table.

    On a terminal, words and columns that must not wrap stay whole, even if the table becomes wider
    than the terminal. Elsewhere it is plain text for other programs; see `plain_table`.
    """
    if not console.is_terminal:
        console.file.write(f"{plain_table(table)}\n")
        console.file.flush()
        return
    unlimited = console.options.update_width(UNLIMITED)
    for column in table.columns:
        sizes = [Measurement.get(console, unlimited, c) for c in (column.header, *column.cells)]
        column.min_width = max(s.maximum if column.no_wrap else s.minimum for s in sizes)
    width = Measurement.get(console, unlimited, table).minimum
    if width > console.width:
        table.box, table.padding = None, (0, 2, 0, 0)  # the lines of a frame would be broken
        console.width = max(console.width, width)
    console.print(table, crop=False)


def plain_table(table: Table) -> str:
    """A table as text: one line per row, its columns aligned by spaces, nothing cut or wrapped.

    Args:
        table: its cells are text; the lines of a cell are joined.
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


def fold(
    rows: Sequence[Sequence[str]], width: int, *, names: int = 1, framed: bool = True
) -> list[Table]:
    """Divide the columns of a table that is too wide into several tables.

    Args:
        rows: all rows; the first one is the header.
        width: of the place for it, in characters.
        names: how many columns at the left are part of each table.
        framed: False for a table without lines, whose other columns are aligned at the right.
    """
    gap, room = (3, width - 1) if framed else (len(_GAP), width)
    widths = [gap + max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    parts, used = [list(range(names))], sum(widths[:names])
    for index in range(names, len(widths)):
        if len(parts[-1]) > names and used + widths[index] > room:
            parts.append(list(range(names)))
            used = sum(widths[:names])
        parts[-1].append(index)
        used += widths[index]
    return [_part(rows, part, names, framed) for part in parts]


def _part(rows: Sequence[Sequence[str]], part: Sequence[int], names: int, framed: bool) -> Table:
    table = Table() if framed else Table(box=None, padding=(0, len(_GAP), 0, 0))
    for index in part:
        is_number = not framed and index >= names
        table.add_column(
            Text(rows[0][index]), justify="right" if is_number else "left", no_wrap=not framed
        )
    for row in rows[1:]:
        table.add_row(*(Text(row[index]) for index in part))
    return table
