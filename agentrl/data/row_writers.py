"""Write the rows of a data set, with further columns, as JSONL or Parquet."""

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from agentrl import extras
from agentrl.data.tables import BadRow, Table
from agentrl.errors import ConfigError

FORMATS = (".jsonl", ".parquet")
_ROWS_AT_ONCE = 1000
"""Rows of a Parquet row group, which are in memory together."""

Columns = Mapping[str, Any]
T = TypeVar("T")


class RowWriter:
    """Writes the rows of a table, each with further columns.

    Args:
        out: names the format by its suffix.
        table: of the rows.
        types: the further columns, each with its Arrow type, such as `list<string>`.

    Raises:
        ConfigError: the format is unknown, pyarrow is not installed, the table has one of the
            further columns already, or its values do not fit into Parquet's columns.
    """

    def __init__(self, out: Path, table: Table, types: Mapping[str, str]) -> None:
        if out.suffix.lower() not in FORMATS:
            raise ConfigError(f"out={out}: must end in {' or '.join(FORMATS)}")
        taken = [name for name in types if name in table.columns]
        if taken:
            raise ConfigError(
                f"the data has a column {taken[0]!r}, which {out} needs for the results: rename it"
            )
        self._table = table
        self._schema = self._arrow_schema(types) if out.suffix.lower() == ".parquet" else None

    def write(self, path: Path, columns: Iterable[Columns]) -> None:
        """Write all rows.

        Args:
            path: of the new file.
            columns: the further columns of each row, in the order of the rows.
        """
        if self._schema is not None:
            self._write_parquet(path, columns)
            return
        with path.open("wb") as file:
            for row in self._rows(columns):
                file.write(_json_line(row))

    def _rows(self, columns: Iterable[Columns]) -> Iterator[dict[str, Any]]:
        for index, more in enumerate(columns):
            yield {**self._row(index), **more}

    def _row(self, index: int) -> dict[str, Any]:
        """A row; empty if it cannot be read."""
        try:
            return {str(name): value for name, value in self._table.row(index).items()}
        except BadRow:
            return {}

    def _arrow_schema(self, types: Mapping[str, str]) -> Any:
        """The schema of all rows, which may lack columns or values."""
        try:
            import pyarrow
        except ImportError:
            raise ConfigError(f"Parquet needs pyarrow, not installed: {extras.GET_DATA}") from None
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
                f"the rows do not fit into a Parquet file: {error}; .jsonl has no such limits"
            ) from error
        for name, kind in types.items():
            found = found.append(pyarrow.field(name, own[kind]))
        return found

    def _write_parquet(self, path: Path, columns: Iterable[Columns]) -> None:
        import pyarrow
        from pyarrow import parquet

        with parquet.ParquetWriter(path, self._schema) as writer:
            for rows in _batches(self._rows(columns)):
                writer.write_table(pyarrow.Table.from_pylist(rows, schema=self._schema))


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, _ROWS_AT_ONCE)):
        yield batch


def _json_line(row: Mapping[str, Any]) -> bytes:
    plain = _plain(row)
    try:
        return json.dumps(plain, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only escape
        return json.dumps(plain).encode() + b"\n"


def _plain(value: Any) -> Any:
    """A value for JSON: bytes as base64, which image columns may hold; NaN as null."""
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
