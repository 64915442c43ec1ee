"""Tables of Hugging Face's `datasets` library: folders, and data sets of the hub."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentrl import extras
from agentrl.data.tables import ColumnTable, Table
from agentrl.errors import ConfigError, describe_error


@dataclass(slots=True, kw_only=True, frozen=True)
class Selection:
    """The part of a data set to read."""

    split: str | None = None
    name: str | None = None
    """The configuration (subset)."""
    revision: str | None = None
    """A branch, tag or commit of the hub."""
    streaming: bool = False
    """Whether rows are fetched one by one, without downloading the rest."""
    max_rows: int | None = None
    """Number of rows that are read from the start; required for streaming."""

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings for the library `datasets` that are set."""
        chosen = {"name": self.name, "revision": self.revision, "streaming": self.streaming}
        return {setting: value for setting, value in chosen.items() if value}


def open_hugging_face(data: str, folder: Path | None, selection: Selection) -> Table:
    """Open a data set with the `datasets` library.

    Args:
        data: a folder, or an id of the hub.
        folder: the folder; None for an id of the hub.
        selection: the part to read.

    Raises:
        ConfigError: the library is not installed, or the data set or the split does not exist.
    """
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data={data}: no such file; an id on the Hugging Face Hub needs the library "
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
    if folder is not None and selection.revision is not None:  # the library would ignore it
        raise ConfigError(
            f"revision={selection.revision}: {data} is a folder on this machine, and only data "
            "sets of the hub have revisions; remove the setting"
        )
    if selection.streaming and selection.max_rows is None:
        raise ConfigError("streaming=true: set max_rows, the number of rows to fetch")
    # Without a network, an id falls back to what is cached under its name: folders are kept apart.
    cache = None if folder is None else str(Path(datasets.config.HF_DATASETS_CACHE) / "folders")
    try:
        loaded = (
            datasets.load_from_disk(data)
            if was_saved
            else datasets.load_dataset(data, cache_dir=cache, **selection.settings)
        )
        one = _one_split(loaded, data, selection.split)
        rows = _undecoded_rows(one, selection)
    except ConfigError:
        raise
    except Exception as error:  # the hub, the network or the folder's content may raise anything
        what = "cannot be loaded"
        if folder is None:
            what = (
                "not a file or folder, here or beside the configuration, and cannot be loaded from "
                "the hub"
            )
        raise ConfigError(f"data={data}: {what}: {describe_error(error)}") from error
    # A fetched data set refers to image files in the library's cache, unless it contains them.
    root = Path(datasets.config.HF_CACHE_HOME) if folder is None else folder
    return ColumnTable(rows, one.column_names or list(rows[0] if rows else ()), root)


def _one_split(loaded: Any, data: str, split: str | None) -> Any:
    if not isinstance(loaded, dict):
        if split is not None:
            raise ConfigError(f"split={split}: {data} has no splits; remove the setting")
        return loaded
    if split not in loaded and not (split is None and len(loaded) == 1):
        raise ConfigError(f"split={split}: {data} has {', '.join(map(str, loaded))}; name one")
    return loaded[split] if split is not None else next(iter(loaded.values()))


def _undecoded_rows(loaded: Any, selection: Selection) -> Any:
    """The rows with undecoded images at any depth: we decode them, to name the bad rows."""
    features: Mapping[str, Any] = loaded.features or {}
    for name, feature in features.items():
        if (raw := _undecoded(feature)) != feature:
            loaded = loaded.cast_column(name, raw)
    if selection.streaming:
        return list(itertools.islice(loaded, selection.max_rows))
    return loaded


def _undecoded(feature: Any) -> Any:
    if isinstance(feature, dict):
        return {name: _undecoded(inner) for name, inner in feature.items()}
    if isinstance(feature, list):
        return [_undecoded(inner) for inner in feature]
    if hasattr(feature, "feature"):
        return replace(feature, feature=_undecoded(feature.feature))
    return replace(feature, decode=False) if getattr(feature, "decode", False) else feature
