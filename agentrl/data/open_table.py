"""Open a data set: a file, a folder, or an id of the Hugging Face hub."""

import re
import sys
from dataclasses import replace
from pathlib import Path

from agentrl.data.hugging_face import Selection, open_hugging_face
from agentrl.data.tables import FILES, FirstRows, Table, read_file
from agentrl.errors import INSTALLED, ConfigError

_AT_SPLIT = re.compile(r"(.+)@([\w.-]+)")


def open_table(data: str, selection: Selection | None = None) -> Table:
    """Open a data set by file, folder or id on the Hugging Face Hub.

    Args:
        data: `*.jsonl`, `*.json` (a list), `*.csv`, `*.tsv`, `*.parquet`; a folder that the
            `datasets` library reads or has written; or an id on the Hugging Face Hub. `DATA@SPLIT`
            names the split too.
        selection: the part to read; None reads all.

    Raises:
        ConfigError: it does not exist or cannot be read.
    """
    selection = selection or Selection()
    data, split = split_in(data)
    if split is not None:
        if selection.split not in (None, split):
            raise ConfigError(f"split={selection.split}: {data}@{split} names another split")
        selection = replace(selection, split=split)
    path = _found(data)
    if path is None or path.is_dir():
        table = open_hugging_face(data if path is None else str(path), path, selection)
    else:
        # EasyR1 reads any file as its only split, train.
        _check_file(data, replace(selection, split=None) if split == "train" else selection)
        table = read_file(path)
    return table if selection.max_rows is None else FirstRows(table, selection.max_rows)


def split_in(data: str) -> tuple[str, str | None]:
    """`owner/name` and `split` of `owner/name@split`; None without one."""
    found = _AT_SPLIT.fullmatch(data)
    if found is None or find_local(data) is not None:
        return data, None
    return found[1], found[2]


def _check_file(data: str, selection: Selection) -> None:
    if selection.split is not None:
        raise ConfigError(
            f"split={selection.split}: {data} is a single file without splits; set hold_out to a "
            "fraction of its rows, or give one file per split: data={train: ..., eval: ...}"
        )
    for setting, value in selection.settings.items():
        raise ConfigError(f"{setting}={value}: {data} is a single file; remove the setting")


def _found(data: str) -> Path | None:
    """The file or folder, here or beside the configuration; None for an id on the hub.

    Raises:
        ConfigError: it looks like a file, but does not exist.
    """
    path = find_local(data)
    if path is None and (
        data.startswith((".", "/", "~")) or data.endswith(FILES) or data.count("/") > 1
    ):
        raise ConfigError(
            f"data={data}: no such file, neither in the current folder nor beside the configuration"
        )
    return path


def find_local(data: str) -> Path | None:
    """The file or folder of this path, in the current folder or on `sys.path`, if there is one.

    Raises:
        ConfigError: it is not a valid path.
    """
    # Folders of installed libraries could match a hub id.
    for folder in (
        "",
        *(own for own in sys.path if isinstance(own, str) and not own.startswith(INSTALLED)),
    ):
        path = Path(folder, data).expanduser()
        try:
            if path.is_file() or path.is_dir():
                return path.absolute()
        except (OSError, ValueError) as error:
            raise ConfigError(f"data={data!r}: not a valid path: {error}") from None
    return None
