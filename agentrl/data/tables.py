"""Rows of a data set, wherever they stand: JSONL, CSV, Parquet, or a Hugging Face data set."""

import csv
import json
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TextIO

from agentrl.errors import ConfigError, told

GET_DATA = "pip install 'agentrl[data]'"
_LONGEST_CELL = 100_000_000
"""Characters; a picture in base64 may stand in it."""

Row = Mapping[str, Any]


class BadRow(ValueError):
    """A row that cannot be read, or asks nothing."""


class Table(Protocol):
    """Some rows and the names of their columns."""

    @property
    def columns(self) -> Sequence[str]:
        """Their names, in order."""

    @property
    def root(self) -> Path:
        """What the pictures' paths are relative to."""

    def __len__(self) -> int: ...

    def row(self, place: int) -> Row:
        """One row.

        Raises:
            BadRow: it cannot be read.
        """

    def name(self, place: int) -> str:
        """Where it stands, as its user would look for it."""


class Lines:
    """The rows of a JSONL, JSON or CSV file, in memory.

    Args:
        path: of the file.
        rows: each with its number, counted from 1; a text says why it is none.
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

    def row(self, place: int) -> Row:
        """See Table.row."""
        found = self._rows[place][1]
        if isinstance(found, str):
            raise BadRow(found)
        return found

    def name(self, place: int) -> str:
        """See Table.name."""
        return f"{self._counted} {self._rows[place][0]}"


class Columns:
    """The rows of an Arrow table or a Hugging Face data set, read one at a time.

    Args:
        held: has a length, and gives the row of a place as a mapping.
        columns: their names.
        root: see Table.
    """

    def __init__(self, held: Any, columns: Sequence[str], root: Path) -> None:
        self.columns, self.root, self._held = tuple(columns), root, held

    def __len__(self) -> int:
        return len(self._held)

    def row(self, place: int) -> Row:
        """See Table.row."""
        try:
            found: Row = self._held[place]
        except Exception as error:  # a foreign library reads foreign bytes
            raise BadRow(told(error)) from error
        return found

    def name(self, place: int) -> str:
        """See Table.name."""
        return f"row {place + 1}"


class _Arrow:
    """An Arrow table as a list of rows; nothing is copied before it is asked for."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, place: int) -> Row:
        row: Row = self._table.slice(place, 1).to_pylist()[0]
        return row


def open_table(data: str, split: str | None) -> Table:
    """The table that a file, a folder or an id of the hub names.

    Args:
        data: `*.jsonl`, `*.json` (a list), `*.csv`, `*.tsv`, `*.parquet`; a folder that the
            `datasets` library reads or has written; or an id of the Hugging Face hub.
        split: which part of what the `datasets` library reads.

    Raises:
        ConfigError: there is no such thing, or nothing in it can be read.
    """
    path = _found(data)
    if path is None or path.is_dir():
        return _hugging_face(data if path is None else str(path), split, path)
    if split is not None:
        raise ConfigError(
            f"split={split}: {data} is one file without splits; give hold_out a share of its rows, "
            "or name a file for each split: data={train: ..., eval: ...}"
        )
    readers: dict[str, Callable[[Path], Table]] = {
        ".jsonl": _jsonl,
        ".ndjson": _jsonl,
        ".json": _json,
        ".csv": _csv,
        ".tsv": _csv,
        ".parquet": _parquet,
    }
    if path.suffix.lower() not in readers:
        raise ConfigError(f"data={data}: must be a folder, or end in {', '.join(readers)}")
    try:
        return readers[path.suffix.lower()](path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"data={data}: cannot be read: {told(error)}") from error


def _found(data: str) -> Path | None:
    """The file or folder, here or beside the configuration; None for an id of the hub.

    Raises:
        ConfigError: it is meant as a file, and is not there.
    """
    # Where libraries lie, there are folders by many names.
    libraries = tuple(sysconfig.get_paths().values())
    for folder in ("", *(place for place in sys.path if not place.startswith(libraries))):
        path = Path(folder, data).expanduser()
        try:
            if path.is_file() or path.is_dir():
                return path.absolute()
        except (OSError, ValueError) as error:
            raise ConfigError(f"data={data!r}: cannot be a path: {error}") from None
    known = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
    if data.startswith((".", "/", "~")) or data.endswith(known) or data.count("/") > 1:
        raise ConfigError(f"data={data}: no such file, neither here nor beside the configuration")
    return None


def _jsonl(path: Path) -> Table:
    rows: list[tuple[int, Row | str]] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                rows.append((number, _parsed(line.removeprefix(b"\xef\xbb\xbf"))))
    return Lines(path, rows)


def _parsed(line: bytes) -> Row | str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {_why(error)}"
    return row if isinstance(row, dict) else f"{type(row).__name__}, not an object with keys"


def _why(error: ValueError | RecursionError) -> str:
    """Of one line of JSON: its line's number is told elsewhere."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, at its character {error.pos + 1}"
    return str(error)


def _json(path: Path) -> Table:
    try:
        rows = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"data={path}: no JSON: {error}") from None
    if not isinstance(rows, list):
        raise ConfigError(f"data={path}: must hold a list of rows, not {type(rows).__name__}")
    kept = [r if isinstance(r, dict) else f"{type(r).__name__}, not an object" for r in rows]
    return Lines(path, list(enumerate(kept, 1)), "row")


def _csv(path: Path) -> Table:
    csv.field_size_limit(_LONGEST_CELL)
    rows: list[tuple[int, Row | str]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        records = _records(path, file)
        _, header = next(records, (0, []))
        _check_header(path, header)
        for number, cells in records:
            whole = len(cells) == len(header)
            wrong = f"it does not have the header's {len(header)} cells"
            rows.append((number, dict(zip(header, cells, strict=True)) if whole else wrong))
    return Lines(path, rows)


def _records(path: Path, file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row that is not empty, and the line in which it begins."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader, first = csv.reader(file, delimiter=delimiter, strict=True), 1
    try:
        for cells in reader:
            if cells:
                yield first, cells
            first = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(
            f"data={path}: the row that begins in line {first}: {error}. A quote that opens a cell "
            "must close it, and one within it is written twice"
        ) from None


def _check_header(path: Path, names: Sequence[str]) -> None:
    if len(names) == 1 and (found := [sign for sign in ";\t|" if sign in names[0]]):
        raise ConfigError(
            f"data={path}: its first line is {names[0]!r}, one column; between two stands a comma "
            f"in .csv and a tab in .tsv, and no {found[0]!r}"
        )
    for place, name in enumerate(names):
        if name and name in names[:place]:
            raise ConfigError(f"data={path}: two columns are called {name!r}; rename one")


def _parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ConfigError(
            f"data={path}: Parquet needs pyarrow, not installed: {GET_DATA}"
        ) from None
    try:
        table = parquet.read_table(path, memory_map=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigError(f"data={path}: cannot be read: {told(error)}") from error
    return Columns(_Arrow(table), table.column_names, path.parent)


def _hugging_face(data: str, split: str | None, folder: Path | None) -> Table:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data={data}: no such file; an id of the Hugging Face hub needs the library "
            f"`datasets`, not installed: {GET_DATA}"
        ) from None
    written = folder is not None and any(
        (folder / name).is_file() for name in ("dataset_dict.json", "dataset_info.json")
    )
    try:
        found = datasets.load_from_disk(data) if written else datasets.load_dataset(data)
    except Exception as error:  # the hub, the network, or what stands in the folder
        what = "cannot be loaded"
        if folder is None:
            what = "no file or folder, here or beside the configuration, and not found on the hub"
        raise ConfigError(f"data={data}: {what}: {told(error)}") from error
    if isinstance(found, dict):
        if split not in found and not (split is None and len(found) == 1):
            raise ConfigError(f"split={split}: {data} has {', '.join(map(str, found))}; name one")
        found = found[split] if split is not None else next(iter(found.values()))
    elif split is not None:
        raise ConfigError(f"split={split}: {data} has no splits; leave the setting out")
    # What was fetched names its pictures in the library's own cache, if it does not hold them.
    root = Path(datasets.config.HF_CACHE_HOME) if folder is None else folder
    return Columns(_raw(found), found.column_names, root)


def _raw(found: Any) -> Any:
    """The same with pictures as bytes and paths, however deep: we open them, and name the rows."""
    for name, feature in found.features.items():
        if (raw := _undecoded(feature)) != feature:
            found = found.cast_column(name, raw)
    return found


def _undecoded(feature: Any) -> Any:
    if isinstance(feature, dict):
        return {name: _undecoded(inner) for name, inner in feature.items()}
    if isinstance(feature, list):
        return [_undecoded(inner) for inner in feature]
    if hasattr(feature, "feature"):
        return replace(feature, feature=_undecoded(feature.feature))
    return replace(feature, decode=False) if getattr(feature, "decode", False) else feature
