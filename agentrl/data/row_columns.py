"""Rows and columns of a data set: dotted names, checks, and columns for reward functions."""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import PIL.Image

from agentrl.data.image_loading import is_data_uri
from agentrl.data.tables import BadRow, Row, Table
from agentrl.errors import ConfigError
from agentrl.text.name_suggestions import did_you_mean, known_names, list_names

log = logging.getLogger(__name__)

_NUMBERED_IMAGE = re.compile(r"image_(\d{1,3})", re.ASCII)
# Number of rows to search for a key inside a column.
_ROWS_SEARCHED = 20
# Maximum number of bad rows that an error lists.
_MAX_LISTED = 5


def check_has_rows(table: Table, name: str) -> None:
    """Check that a data set has rows with columns."""
    if not len(table):
        raise ConfigError(f"data={name}: has no rows")
    if not table.columns:
        try:
            table.row(0)
        except BadRow as error:
            raise ConfigError(
                f"data={name}: none of its rows can be read: {table.name(0)}: {error}"
            ) from error


def cell(row: Row, column: str) -> Any:
    """Return the cell of a column; `a.b` is the key b of the objects in column a.

    A column whose name contains the dot takes precedence.
    """
    if column in row or "." not in column:
        return row.get(column)
    first, *keys = column.split(".")
    value = row.get(first)
    for key in keys:
        value = _as_object(value).get(key)
    return value


def _as_object(value: Any) -> Mapping[str, Any]:
    """Return an object, parsing JSON text; empty if the value is not an object."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def has_column(table: Table, column: str) -> bool:
    """Return whether a table has a column, or a column of objects with a key (`a.b`)."""
    first = column.partition(".")[0]
    if column in table.columns or "." not in column or first not in table.columns:
        return column in table.columns
    return any(cell(row, column) is not None for row in first_rows(table))


def first_rows(table: Table) -> Iterator[Row]:
    """Yield the first rows that can be read."""
    for index in range(min(len(table), _ROWS_SEARCHED)):
        try:
            yield table.row(index)
        except BadRow:
            continue


def numbered_image_columns(table: Table) -> dict[int, str]:
    """Map numbers to the columns `image_1`, `image_2`, ...; empty without `image_1`."""
    found = {int(m[1]): c for c in table.columns if (m := _NUMBERED_IMAGE.fullmatch(c))}
    return dict(sorted(found.items())) if 1 in found else {}


def check_column(table: Table, name: str, setting: str, column: str) -> None:
    """Check that a table has a column."""
    if has_column(table, column):
        return
    outer, _, key = column.rpartition(".")
    if outer and has_column(table, outer):
        keys = list(
            dict.fromkeys(k for row in first_rows(table) for k in _as_object(cell(row, outer)))
        )
        raise ConfigError(
            f"{setting}={column}: column {outer} of {name} has no such key"
            f"{known_names(key, keys, label='It has')}"
        )
    have = list(table.columns)
    near = did_you_mean(column.partition(".")[0], have)
    raise ConfigError(
        f"{setting}={column}: {name} has no such column{near}. It has: {list_names(have)}"
    )


def columns_for_rewards(row: Row, image_column: str | None) -> dict[str, Any]:
    """Return all columns of a row as JSON values, without images.

    Args:
        row: row of a data set.
        image_column: column with the images, replaced by None (one image) or [] (a list), since
            reward functions receive the images as the model saw them.
    """
    plain = {str(name): _plain(value) for name, value in row.items() if name != image_column}
    if image_column is not None:
        held = row.get(image_column)
        many = isinstance(held, list | tuple) or (isinstance(held, str) and held.startswith("["))
        plain[image_column] = [] if many else None
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview | PIL.Image.Image) or is_data_uri(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    # Convert any other value, such as a date, to text.
    return str(value)


def report_bad_rows(
    name: str,
    bad: Mapping[str, str],
    rows: int,
    on_bad: str,
    setting: str = "on_bad",
    remedy: str = "",
) -> None:
    """Refuse a data set with bad rows, or warn that they are skipped.

    Args:
        name: name of the data.
        bad: why rows cannot be used, by row name.
        rows: total number of rows.
        on_bad: `refuse` or `skip`.
        setting: name of the setting that `on_bad` comes from.
        remedy: sentence to add to the error.
    """
    if on_bad not in ("refuse", "skip"):
        raise ConfigError(f"{setting}={on_bad!r}: must be refuse or skip")
    if not bad:
        return
    named = "; ".join(f"{row}: {why}" for row, why in list(bad.items())[:_MAX_LISTED])
    more = f"; and {len(bad) - _MAX_LISTED} more" if len(bad) > _MAX_LISTED else ""
    what = f"data={name}: {len(bad)} of {rows} rows are bad: {named}{more}"
    if on_bad == "refuse":
        raise ConfigError(f"{what}. Fix them, or skip them with {setting}=skip{remedy}")
    if len(bad) == rows:
        raise ConfigError(f"{what}{remedy}")
    # Warn only once, although each rollout worker and each split opens the data set.
    _warn_once(f"{what}. They are skipped ({setting}=skip)")


@lru_cache
def _warn_once(message: str) -> None:
    log.warning("%s", message)
