"""Open a data set: a file, a folder, or an id on the Hugging Face Hub."""

import itertools
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentrl import extras
from agentrl.data.tables import FILES, ColumnTable, FirstRows, Table, read_file
from agentrl.errors import INSTALLED, ConfigError, describe_error

_AT_SPLIT = re.compile(r"(.+)@([\w.-]+)")


@dataclass(slots=True, kw_only=True, frozen=True)
class Selection:
    """Which part of a data set to read."""

    split: str | None = None
    name: str | None = None
    """The configuration (subset)."""
    revision: str | None = None
    """Branch, tag or commit on the Hub."""
    streaming: bool = False
    """Whether to fetch rows one by one, without downloading the rest."""
    max_rows: int | None = None
    """Number of rows to read from the start; required for streaming."""

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments for `datasets.load_dataset` that are set."""
        chosen = {"name": self.name, "revision": self.revision, "streaming": self.streaming}
        return {setting: value for setting, value in chosen.items() if value}


def open_table(data: str, selection: Selection | None = None) -> Table:
    """Open a data set by file, folder or id on the Hugging Face Hub.

    Args:
        data: `*.jsonl`, `*.json` (a list), `*.csv`, `*.tsv`, `*.parquet`; a folder that the
            `datasets` library can read or has written; or an id on the Hugging Face Hub.
            `DATA@SPLIT` also selects a split.
        selection: part to read; None reads all rows.

    Raises:
        ConfigError: the data set does not exist or cannot be read.
    """
    selection = selection or Selection()
    data, split = split_in(data)
    if split is not None:
        if selection.split not in (None, split):
            raise ConfigError(
                f"split={selection.split}: {data}@{split} refers to a different split"
            )
        selection = replace(selection, split=split)
    path = find_local(data)
    if path is None and (
        data.startswith((".", "/", "~")) or data.endswith(FILES) or data.count("/") > 1
    ):
        raise ConfigError(
            f"data={data}: no such file in the current folder or next to the config file"
        )
    if path is None or path.is_dir():
        table = _open_hugging_face(data if path is None else str(path), path, selection)
    else:
        # EasyR1 treats any file as a single split named train.
        _check_file(data, replace(selection, split=None) if split == "train" else selection)
        table = read_file(path)
    return table if selection.max_rows is None else FirstRows(table, selection.max_rows)


def split_in(data: str) -> tuple[str, str | None]:
    """Split `owner/name@split` into `owner/name` and `split`, which is None if not given."""
    found = _AT_SPLIT.fullmatch(data)
    if found is None or find_local(data) is not None:
        return data, None
    return found[1], found[2]


def find_local(data: str) -> Path | None:
    """Find a file or folder by path, relative to the current folder or to those on `sys.path`."""
    # Skip installed libraries, whose folders could match a Hub id.
    own = (name for name in sys.path if isinstance(name, str) and not name.startswith(INSTALLED))
    for folder in ("", *own):
        path = Path(folder, data).expanduser()
        try:
            if path.is_file() or path.is_dir():
                return path.absolute()
        except (OSError, ValueError) as error:
            raise ConfigError(f"data={data!r} is not a valid path: {error}") from None
    return None


def _check_file(data: str, selection: Selection) -> None:
    if selection.split is not None:
        raise ConfigError(
            f"split={selection.split}: {data} is a single file without splits; set hold_out to a "
            "fraction of its rows, or give one file per split: data={train: ..., eval: ...}"
        )
    for setting, value in selection.settings.items():
        raise ConfigError(f"{setting}={value}: {data} is a single file; remove the setting")


def _open_hugging_face(data: str, folder: Path | None, selection: Selection) -> Table:
    """Open a folder, or a Hub id if `folder` is None, with the `datasets` library."""
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data={data}: no such file; a Hugging Face id requires the library "
            f"`datasets`, not installed: {extras.GET_DATA}"
        ) from None
    was_saved = folder is not None and any(
        (folder / name).is_file() for name in ("dataset_dict.json", "dataset_info.json")
    )
    if was_saved and selection.settings:
        setting, value = next(iter(selection.settings.items()))
        raise ConfigError(
            f"{setting}={value}: {data} was saved by datasets' save_to_disk; remove the setting"
        )
    # `datasets` would silently ignore the revision.
    if folder is not None and selection.revision is not None:
        raise ConfigError(
            f"revision={selection.revision}: {data} is a local folder, but only data sets on the "
            "Hub have revisions; remove the setting"
        )
    if selection.streaming and selection.max_rows is None:
        raise ConfigError("streaming=true: set max_rows, the number of rows to fetch")
    # Cache folders separately: without a network, a Hub id falls back to the cache by its name.
    cache = None if folder is None else str(Path(datasets.config.HF_DATASETS_CACHE) / "folders")
    try:
        loaded = (
            datasets.load_from_disk(data)
            if was_saved
            else datasets.load_dataset(data, cache_dir=cache, **selection.settings)
        )
        one = _one_split(loaded, data, selection.split)
        rows: Any = one
        # We decode images ourselves, at any depth, so that we can name the bad rows.
        for name, feature in (one.features or {}).items():
            if (raw := _undecoded(feature)) != feature:
                rows = rows.cast_column(name, raw)
        if selection.streaming:
            rows = list(itertools.islice(rows, selection.max_rows))
    except ConfigError:
        raise
    # The Hub, the network or the folder's content may raise any exception.
    except Exception as error:
        what = "cannot be loaded"
        if folder is None:
            what = (
                "no such file or folder here or next to the config file, and loading it from the "
                "Hub failed"
            )
        raise ConfigError(f"data={data}: {what}: {describe_error(error)}") from error
    # Unless images are embedded, a downloaded data set refers to files in the library's cache.
    root = Path(datasets.config.HF_CACHE_HOME) if folder is None else folder
    return ColumnTable(rows, one.column_names or list(rows[0] if rows else ()), root)


def _one_split(loaded: Any, data: str, split: str | None) -> Any:
    if not isinstance(loaded, dict):
        if split is not None:
            raise ConfigError(f"split={split}: {data} has no splits; remove the setting")
        return loaded
    if split not in loaded and not (split is None and len(loaded) == 1):
        raise ConfigError(f"split={split}: {data} has {', '.join(map(str, loaded))}; choose one")
    return loaded[split] if split is not None else next(iter(loaded.values()))


def _undecoded(feature: Any) -> Any:
    if isinstance(feature, dict):
        return {name: _undecoded(inner) for name, inner in feature.items()}
    if isinstance(feature, list):
        return [_undecoded(inner) for inner in feature]
    if hasattr(feature, "feature"):
        return replace(feature, feature=_undecoded(feature.feature))
    return replace(feature, decode=False) if getattr(feature, "decode", False) else feature
