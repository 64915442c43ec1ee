"""Read the rows of a data set: JSONL, JSON, CSV, Parquet, or a Hugging Face data set."""

import csv
import json
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TextIO

from agentrl.errors import ConfigError, describe_error

GET_DATA = "pip install 'agentrl-screens[data]'"
_LONGEST_CELL = 100_000_000
"""Maximum characters of a CSV cell, which may hold an image in base64."""

Row = Mapping[str, Any]


class BadRow(ValueError):
    """A row that cannot be read, or has no question."""


class Table(Protocol):
    """Rows and the names of their columns."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns, in order."""

    @property
    def root(self) -> Path:
        """The folder that image paths are relative to."""

    def __len__(self) -> int: ...

    def row(self, index: int) -> Row:
        """One row.

        Raises:
            BadRow: it cannot be read.
        """

    def name(self, index: int) -> str:
        """A row's location as a user would look for it: `line 3`, `row 7`."""


class FileTable:
    """The rows of a JSONL, JSON or CSV file, in memory.

    Args:
        path: of the file.
        rows: each with its number, counted from 1; a string says why the row is invalid.
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


class ColumnTable:
    """The rows of an Arrow table or a Hugging Face data set, read one at a time.

    Args:
        held: a sequence of rows, each a mapping.
        columns: names of the columns.
        root: see Table.
    """

    def __init__(self, held: Any, columns: Sequence[str], root: Path) -> None:
        self.columns, self.root, self._held = tuple(columns), root, held

    def __len__(self) -> int:
        return len(self._held)

    def row(self, index: int) -> Row:
        """See Table.row."""
        try:
            found: Row = self._held[index]
        except Exception as error:  # a library may raise anything on broken data
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


def open_table(data: str, split: str | None) -> Table:
    """Open a data set by file, folder or id on the Hugging Face Hub.

    Args:
        data: `*.jsonl`, `*.json` (a list), `*.csv`, `*.tsv`, `*.parquet`; a folder that the
            `datasets` library reads or has written; or an id on the Hugging Face Hub.
        split: the split to read with the `datasets` library.

    Raises:
        ConfigError: it does not exist or cannot be read.
    """
    path = _found(data)
    if path is None or path.is_dir():
        return _hugging_face(data if path is None else str(path), split, path)
    if split is not None:
        raise ConfigError(
            f"split={split}: {data} is a single file without splits; set hold_out to a fraction of "
            "its rows, or give one file per split: data={train: ..., eval: ...}"
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
        raise ConfigError(f"data={data}: cannot be read: {describe_error(error)}") from error


def _found(data: str) -> Path | None:
    """The file or folder, here or beside the configuration; None for an id on the hub.

    Raises:
        ConfigError: it looks like a file, but does not exist.
    """
    # Folders of installed libraries could match a hub id.
    libraries = tuple(sysconfig.get_paths().values())
    for folder in ("", *(entry for entry in sys.path if not entry.startswith(libraries))):
        path = Path(folder, data).expanduser()
        try:
            if path.is_file() or path.is_dir():
                return path.absolute()
        except (OSError, ValueError) as error:
            raise ConfigError(f"data={data!r}: not a valid path: {error}") from None
    known = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
    if data.startswith((".", "/", "~")) or data.endswith(known) or data.count("/") > 1:
        raise ConfigError(
            f"data={data}: no such file, neither in the current folder nor beside the configuration"
        )
    return None


def _jsonl(path: Path) -> Table:
    rows: list[tuple[int, Row | str]] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                rows.append((number, _parsed(line.removeprefix(b"\xef\xbb\xbf"))))
    return FileTable(path, rows)


def _parsed(line: bytes) -> Row | str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"invalid JSON: {_why(error)}"
    return row if isinstance(row, dict) else f"{type(row).__name__}, not an object with keys"


def _why(error: ValueError | RecursionError) -> str:
    """The reason without a line number: each line is parsed alone."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, at character {error.pos + 1}"
    return str(error)


def _json(path: Path) -> Table:
    try:
        rows = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"data={path}: invalid JSON: {error}") from None
    if not isinstance(rows, list):
        raise ConfigError(f"data={path}: must contain a list of rows, not {type(rows).__name__}")
    kept = [r if isinstance(r, dict) else f"{type(r).__name__}, not an object" for r in rows]
    return FileTable(path, list(enumerate(kept, 1)), "row")


def _csv(path: Path) -> Table:
    csv.field_size_limit(_LONGEST_CELL)
    rows: list[tuple[int, Row | str]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        records = _records(path, file)
        _, header = next(records, (0, []))
        _check_header(path, header)
        for number, cells in records:
            is_complete = len(cells) == len(header)
            problem = f"it has {len(cells)} cells, the header {len(header)}"
            row = dict(zip(header, cells, strict=True)) if is_complete else problem
            rows.append((number, row))
    return FileTable(path, rows)


def _records(path: Path, file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """The line in which each non-empty row begins, and its cells."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader, first = csv.reader(file, delimiter=delimiter, strict=True), 1
    try:
        for cells in reader:
            if cells:
                yield first, cells
            first = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(
            f"data={path}: the row that begins in line {first}: {error}. Close each quoted cell, "
            "and double the quotes inside it"
        ) from None


def _check_header(path: Path, names: Sequence[str]) -> None:
    if len(names) == 1 and (found := [sign for sign in ";\t|" if sign in names[0]]):
        raise ConfigError(
            f"data={path}: its first line {names[0]!r} is a single column; columns are separated "
            f"by commas in .csv and by tabs in .tsv, not by {found[0]!r}"
        )
    for index, name in enumerate(names):
        if name and name in names[:index]:
            raise ConfigError(f"data={path}: two columns are named {name!r}; rename one")


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
        raise ConfigError(f"data={path}: cannot be read: {describe_error(error)}") from error
    return ColumnTable(_Arrow(table), table.column_names, path.parent)


def _hugging_face(data: str, split: str | None, folder: Path | None) -> Table:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data={data}: no such file; an id on the Hugging Face Hub needs the library "
            f"`datasets`, not installed: {GET_DATA}"
        ) from None
    was_saved = folder is not None and any(
        (folder / name).is_file() for name in ("dataset_dict.json", "dataset_info.json")
    )
    try:
        loaded = datasets.load_from_disk(data) if was_saved else datasets.load_dataset(data)
    except Exception as error:  # the hub, the network or the folder's content may raise anything
        what = "cannot be loaded"
        if folder is None:
            what = (
                "not a file or folder, here or beside the configuration, and cannot be loaded from "
                "the hub"
            )
        raise ConfigError(f"data={data}: {what}: {describe_error(error)}") from error
    if isinstance(loaded, dict):
        if split not in loaded and not (split is None and len(loaded) == 1):
            raise ConfigError(f"split={split}: {data} has {', '.join(map(str, loaded))}; name one")
        loaded = loaded[split] if split is not None else next(iter(loaded.values()))
    elif split is not None:
        raise ConfigError(f"split={split}: {data} has no splits; remove the setting")
    # A fetched data set refers to image files in the library's cache, unless it contains them.
    root = Path(datasets.config.HF_CACHE_HOME) if folder is None else folder
    return ColumnTable(_raw(loaded), loaded.column_names, root)


def _raw(loaded: Any) -> Any:
    """The data set with undecoded images at any depth: we decode them, to name the bad rows."""
    for name, feature in loaded.features.items():
        if (raw := _undecoded(feature)) != feature:
            loaded = loaded.cast_column(name, raw)
    return loaded


def _undecoded(feature: Any) -> Any:
    if isinstance(feature, dict):
        return {name: _undecoded(inner) for name, inner in feature.items()}
    if isinstance(feature, list):
        return [_undecoded(inner) for inner in feature]
    if hasattr(feature, "feature"):
        return replace(feature, feature=_undecoded(feature.feature))
    return replace(feature, decode=False) if getattr(feature, "decode", False) else feature
