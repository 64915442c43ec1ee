"""Tables as plain text: for pipes, files and logs, which other programs read."""

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

_GAP = "  "


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
