"""Read tables from JSONL, JSON, CSV and Parquet files, and write them with additional columns."""

import base64
import codecs
import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

import numpy as np

from agentrl import extras
from agentrl.errors import ConfigError, describe_error

# Maximum characters of a CSV cell, which may contain an image in base64.
_LONGEST_CELL = 100_000_000
_WRITTEN = (".jsonl", ".parquet")
# Number of rows in a Parquet row group, all of which are in memory at once.
_ROWS_AT_ONCE = 1000

Row = Mapping[str, Any]
T = TypeVar("T")


class BadRow(ValueError):
    """Raised for a row that cannot be read or has no question."""


class Table(Protocol):
    """Rows with named columns."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns, in order."""

    @property
    def root(self) -> Path:
        """Folder that image paths are relative to."""

    def __len__(self) -> int: ...

    def row(self, index: int) -> Row:
        """Return a row.

        Raises:
            BadRow: the row cannot be read.
        """

    def name(self, index: int) -> str:
        """Return a row's location in terms that users know, such as `line 3` or `row 7`."""


class FileTable:
    """The rows of a JSONL, JSON or CSV file, in memory.

    Args:
        path: path of the file.
        rows: rows with their numbers, counted from 1, or the reason why a row is invalid.
        counted: what the numbers count, `line` or `row`.
    """

    def __init__(
        self, path: Path, rows: Sequence[tuple[int, Row | str]], counted: str = "line"
    ) -> None:
        self.root = path.parent
        self._rows, self._counted = rows, counted
        columns = (row for _, row in rows if not isinstance(row, str))
        self.columns = tuple(dict.fromkeys(name for row in columns for name in row))

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> Row:
        """See Table.row."""
        found = self._rows[index][1]
        if isinstance(found, str):
            raise BadRow(found)
        return found

    def name(self, index: int) -> str:
        """See Table.name."""
        return f"{self._counted} {self._rows[index][0]}"


class FirstRows:
    """The first rows of a table."""

    def __init__(self, table: Table, count: int) -> None:
        self.columns, self.root = table.columns, table.root
        self.row, self.name = table.row, table.name
        self._count = min(count, len(table))

    def __len__(self) -> int:
        return self._count


class ColumnTable:
    """The rows of an Arrow table or Hugging Face data set, read one at a time."""

    def __init__(self, held: Any, columns: Sequence[str], root: Path) -> None:
        self.columns, self.root, self._held = tuple(columns), root, held

    def __len__(self) -> int:
        return len(self._held)

    def row(self, index: int) -> Row:
        """See Table.row."""
        try:
            found: Row = self._held[index]
        # A library may raise any exception on broken data.
        except Exception as error:
            raise BadRow(describe_error(error)) from error
        return found

    def name(self, index: int) -> str:
        """See Table.name."""
        return f"row {index + 1}"


class _Arrow:
    """An Arrow table as a sequence of rows, converted on access."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> Row:
        row: Row = self._table.slice(index, 1).to_pylist()[0]
        return row


FILES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")


def read_file(path: Path) -> Table:
    """Read a file of rows.

    Raises:
        ConfigError: the file has none of the suffixes in `FILES`, or cannot be read.
    """
    readers: dict[str, Callable[[Path], Table]] = dict(
        zip(FILES, (_jsonl, _jsonl, _json, _csv, _csv, _parquet), strict=True)
    )
    if path.suffix.lower() not in readers:
        raise ConfigError(f"data={path}: must be a folder, or end in {', '.join(FILES)}")
    try:
        return readers[path.suffix.lower()](path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"data={path}: must be UTF-8 text; convert the file: {error}") from None
    except OSError as error:
        raise ConfigError(f"data={path}: cannot be read: {describe_error(error)}") from error


def _jsonl(path: Path) -> Table:
    rows: list[tuple[int, Row | str]] = []
    with path.open("rb") as file:
        if file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise ConfigError(f"data={path}: is UTF-16 text; convert the file to UTF-8")
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row: Row | str
            try:
                value = json.loads(line.removeprefix(codecs.BOM_UTF8))
                is_row = isinstance(value, dict)
                row = value if is_row else f"must be an object, not {type(value).__name__}"
            except json.JSONDecodeError as error:
                # The error's own line number is always 1, because lines are parsed one by one.
                row = f"invalid JSON: {error.msg}, at character {error.pos + 1}"
            except (ValueError, RecursionError) as error:
                row = f"invalid JSON: {error}"
            rows.append((number, row))
    return FileTable(path, rows)


def _json(path: Path) -> Table:
    try:
        rows = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"data={path}: invalid JSON: {error}") from None
    if not isinstance(rows, list):
        raise ConfigError(f"data={path}: must contain a list of rows, not {type(rows).__name__}")
    kept = [
        r if isinstance(r, dict) else f"must be an object, not {type(r).__name__}" for r in rows
    ]
    return FileTable(path, list(enumerate(kept, 1)), "row")


def _csv(path: Path) -> Table:
    csv.field_size_limit(_LONGEST_CELL)
    rows: list[tuple[int, Row | str]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        records = _records(path, file)
        _, header = next(records, (0, []))
        if len(header) == 1 and (found := [sign for sign in ";\t|" if sign in header[0]]):
            raise ConfigError(
                f"data={path}: the first line {header[0]!r} has a single column; separate columns "
                f"by commas in .csv files and by tabs in .tsv files, not by {found[0]!r}"
            )
        for index, name in enumerate(header):
            if name and name in header[:index]:
                raise ConfigError(f"data={path}: two columns are named {name!r}; rename one")
        for number, cells in records:
            is_complete = len(cells) == len(header)
            problem = f"it has {len(cells)} cells, but the header has {len(header)}"
            row = dict(zip(header, cells, strict=True)) if is_complete else problem
            rows.append((number, row))
    return FileTable(path, rows)


def _records(path: Path, file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield the line in which each non-empty row begins, and its cells."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader, first = csv.reader(file, delimiter=delimiter, strict=True), 1
    try:
        for cells in reader:
            if cells:
                yield first, cells
            first = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(
            f"data={path}: the row that starts at line {first} is invalid: {error}. Close each "
            "quoted cell, and double the quotes inside it"
        ) from None


def _parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ConfigError(
            f"data={path}: Parquet needs pyarrow, which is not installed; run: {extras.GET_DATA}"
        ) from None
    try:
        table = parquet.read_table(path, memory_map=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigError(f"data={path}: cannot be read: {describe_error(error)}") from error
    return ColumnTable(_Arrow(table), table.column_names, path.parent)


class RowWriter:
    """Writes the rows of a table with additional columns.

    Args:
        out: output file, whose suffix selects the format.
        table: table with the rows.
        types: additional columns with their Arrow types, such as `list<string>`.

    Raises:
        ConfigError: the format is unknown, pyarrow is not installed, the table already has one of
            the additional columns, or its values do not fit into Parquet's columns.
    """

    def __init__(self, out: Path, table: Table, types: Mapping[str, str]) -> None:
        if out.suffix.lower() not in _WRITTEN:
            raise ConfigError(f"out={out}: must end in {' or '.join(_WRITTEN)}")
        taken = [name for name in types if name in table.columns]
        if taken:
            raise ConfigError(
                f"the data has a column {taken[0]!r}, which {out} needs for the results; rename it"
            )
        self._table = table
        self._schema = self._arrow_schema(types) if out.suffix.lower() == ".parquet" else None

    def write(self, path: Path, columns: Iterable[Row]) -> None:
        """Write all rows to a new file; `columns` gives the additional values in row order."""
        rows = ({**self._row(index), **more} for index, more in enumerate(columns))
        if self._schema is None:
            with path.open("wb") as file:
                file.writelines(map(_json_line, rows))
            return
        import pyarrow
        from pyarrow import parquet

        with parquet.ParquetWriter(path, self._schema) as writer:
            for some in _batches(rows):
                writer.write_table(pyarrow.Table.from_pylist(some, schema=self._schema))

    def _row(self, index: int) -> dict[str, Any]:
        """Return a row; empty if it cannot be read."""
        try:
            return {str(name): value for name, value in self._table.row(index).items()}
        except BadRow:
            return {}

    def _arrow_schema(self, types: Mapping[str, str]) -> Any:
        """Infer the schema of all rows, which may lack columns or values."""
        try:
            import pyarrow
        except ImportError:
            raise ConfigError(
                f"Parquet needs pyarrow, which is not installed; run: {extras.GET_DATA}"
            ) from None
        schemas = []
        own: dict[str, Any] = {
            "string": pyarrow.string(),
            "int64": pyarrow.int64(),
            "list<string>": pyarrow.list_(pyarrow.string()),
            "list<int64>": pyarrow.list_(pyarrow.int64()),
        }
        try:
            for indices in _batches(range(len(self._table))):
                rows = [self._row(index) for index in indices]
                names = dict.fromkeys(name for row in rows for name in row)
                arrays = {name: [row.get(name) for row in rows] for name in names}
                schemas.append(pyarrow.table(arrays).schema)
            found = pyarrow.unify_schemas(schemas, promote_options="permissive")
        except (OverflowError, pyarrow.ArrowException) as error:
            raise ConfigError(
                f"the rows do not fit into a Parquet file: {error}; write a .jsonl file instead"
            ) from error
        for name, kind in types.items():
            found = found.append(pyarrow.field(name, own[kind]))
        return found


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, _ROWS_AT_ONCE)):
        yield batch


def _json_line(row: Mapping[str, Any]) -> bytes:
    plain = _plain(row)
    try:
        return json.dumps(plain, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        # The text has a lone surrogate, which has to be escaped.
        return json.dumps(plain).encode() + b"\n"


def _plain(value: Any) -> Any:
    """Convert a value for JSON: bytes, as in image columns, to base64, and NaN to null."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
