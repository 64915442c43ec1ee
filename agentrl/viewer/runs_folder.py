"""List, compare, rename, archive and delete the runs in a folder."""

import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl.config import flat_settings
from agentrl.errors import ConfigError
from agentrl.files import is_locked, lock_folder
from agentrl.runs.annotations import TAGS_FILE, write_tags
from agentrl.runs.job_failure import ERROR_FILE
from agentrl.runs.job_state import job_stage, job_state
from agentrl.runs.metrics_file import METRICS_FILE
from agentrl.runs.run_discovery import ARCHIVE, find_runs
from agentrl.runs.run_folder import (
    COMMAND_FILE,
    CONFIG_FILE,
    EVALUATIONS_FILE,
    STATE_FILE,
    SUMMARY_FILE,
)
from agentrl.runs.run_start_records import STARTS_FILE
from agentrl.runs.run_summary import summarize
from agentrl.text.formatting import printable, quoted
from agentrl.viewer.background_reading import BackgroundReading
from agentrl.viewer.metric_history import AXES, Axis, MetricHistory

_OWN = ("run", "seed")
"""Sections that may differ between runs of one group, which have one configuration but different
seeds."""
_FILES = (
    CONFIG_FILE,
    COMMAND_FILE,
    STATE_FILE,
    SUMMARY_FILE,
    EVALUATIONS_FILE,
    METRICS_FILE,
    "episodes",
    ERROR_FILE,
    STARTS_FILE,
    TAGS_FILE,
)
_LONGEST_NAME = 120
MAX_CHOSEN = 100
"""Maximum number of runs whose curves are drawn together."""


@dataclass(slots=True)
class _Known:
    """Cached content of a run, and the stamps of the files it was read from."""

    stamp: tuple[Any, ...] = ()
    row: dict[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    history: MetricHistory | None = None


class AllRuns:
    """A folder of runs, to which jobs may be writing. Changed files are read again.

    Raises:
        ConfigError: the folder does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()
        self._reading = BackgroundReading("runs", self._read, self._share)
        self._curves_of = frozenset[str]()
        self._reading_curves: BackgroundReading | None = None
        # Raises if the folder does not exist.
        find_runs(folder)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each run, newest first: `RunSummary.to_dict` with the run's `group`.

        Raises:
            StillReading: the runs have not been read yet.
        """
        self._reading.require()
        return self._read()

    def _read(self) -> list[dict[str, Any]]:
        with self._lock:
            paths = self._paths()
            self._known = {name: self._known.get(name, _Known()) for name in paths}
            return [self._row(name, path) for name, path in paths.items()]

    def _share(self) -> float:
        known = [*self._known.values()]
        return sum(bool(one.stamp) for one in known) / max(1, len(known))

    def _row(self, name: str, path: Path) -> dict[str, Any]:
        known = self._known[name]
        stamp = tuple(_stamp(path / file) for file in _FILES)
        if known.stamp != stamp:
            found = summarize(path, self.folder)
            known.stamp, known.config = stamp, found.config
            known.row = found.to_dict() | {"group": group_of(found.config)}
        # These two can change while the files above stay the same.
        live = {"state": job_state(path), "stage": job_stage(path)}
        return known.row | {"name": name} | live

    def _paths(self) -> dict[str, Path]:
        """Return the runs by name, except names that cannot be shown in an address."""
        names = ((self._name(path), path) for path in find_runs(self.folder))
        return {name: path for name, path in names if name.isprintable()}

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def path(self, name: str) -> Path:
        """Return the folder of a run.

        Raises:
            ConfigError: no run has this name.
        """
        found = self._paths()
        if name not in found:
            raise self._absent(name)
        return found[name]

    def _absent(self, name: str) -> ConfigError:
        return ConfigError(f"{self.folder.name} has no run {quoted(name)}")

    def split(self, address: str) -> tuple[str, str] | None:
        """Return the run named by an address and the rest of the address, or None."""
        parts = address.split("/")
        for length in (1, 2):
            name = "/".join(parts[:length])
            if len(parts) >= length and (self.folder / name / CONFIG_FILE).is_file():
                try:
                    return self._name(self.path(name)), address[len(name) :]
                except ConfigError:
                    continue
        return None

    def curves(
        self, names: Sequence[str], metric: str | None, axis: Axis = "step"
    ) -> dict[str, Any]:
        """Return several runs' curves of a metric, and the settings in which the runs differ.

        Args:
            names: the names of the runs.
            metric: a metric from `metrics.jsonl`; None chooses one that the runs have.
            axis: the horizontal axis.

        Raises:
            ConfigError: a run is unknown, or there are too many.
            StillReading: the runs' metrics have not been read yet.
        """
        if len(names) > MAX_CHOSEN:
            raise ConfigError(f"got {len(names)} runs; choose at most {MAX_CHOSEN}")
        rows = {row["name"]: row for row in self.rows()}
        with self._lock:
            for name in names:
                if name not in self._known:
                    raise self._absent(name)
            histories = {name: self._history(name) for name in names}
            configs = {name: self._known[name].config for name in names}
            reading = self._reading_of(histories)
        reading.require()
        logged = dict.fromkeys(key for history in histories.values() for key in history.names())
        axes = [history.axes() for history in histories.values()]
        chosen = metric if metric in logged else _first(logged, [rows[name] for name in names])
        return {
            "metrics": sorted(logged),
            "metric": chosen,
            "axes": [axis for axis in AXES if all(axis in own for own in axes)],
            "curves": [
                {"run": name, "group": rows[name]["group"], "points": history.points(chosen, axis)}
                for name, history in histories.items()
                if chosen is not None
            ],
            "differences": differences(configs),
        }

    def _reading_of(self, histories: Mapping[str, MetricHistory]) -> BackgroundReading:
        """Return a background reading of several runs' metrics."""
        if self._reading_curves is None or self._curves_of != histories.keys():
            all_of_them = [*histories.values()]
            self._curves_of = frozenset(histories)

            def read() -> None:
                for one in all_of_them:
                    one.read()

            def share() -> float:
                return sum(one.share() for one in all_of_them) / len(all_of_them)

            self._reading_curves = BackgroundReading("metrics", read, share)
        return self._reading_curves

    def _history(self, name: str) -> MetricHistory:
        known = self._known[name]
        if known.history is None:
            known.history = MetricHistory(self.folder / name)
        return known.history

    def tag(self, name: str, tags: Sequence[str]) -> None:
        """Replace the tags of a run.

        Raises:
            ConfigError: a tag is invalid, or the run is not writable.
        """
        write_tags(self.path(name), tags)

    def rename(self, name: str, new_name: str) -> None:
        """Rename a run's folder.

        Raises:
            ConfigError: the name is not a valid folder name or is taken, a job is working in the
                run, or the run belongs to a sweep or pipeline.
        """
        path = self.path(name)
        is_name = new_name.isprintable() and "/" not in new_name and len(new_name) <= _LONGEST_NAME
        if not new_name.strip() or not is_name or new_name.startswith(".") or new_name == ARCHIVE:
            raise ConfigError(f"{quoted(new_name)} is not a valid run name")
        if path.parent != self.folder:
            raise ConfigError(
                f"{name} cannot be renamed, because {path.parent.name} finds its runs by name; "
                f"rename {path.parent.name} instead"
            )
        place = self.folder / new_name
        with _untouched(path):
            if place.exists() or place.is_symlink():
                raise ConfigError(f"{place} already exists; choose another name")
            try:
                path.rename(place)
            except OSError as error:
                raise ConfigError(f"{path}: cannot be renamed: {error.strerror}") from error

    def archive(self, name: str) -> None:
        """Move a run into the folder `archive` next to the other runs.

        Raises:
            ConfigError: a job is working in the run, or the archive has a run with this name.
        """
        path = self.path(name)
        place = self.folder / ARCHIVE / path.name
        with _untouched(path):
            if place.exists():
                raise ConfigError(f"{place} already exists; rename one of the two runs")
            place.parent.mkdir(exist_ok=True)
            # A relative link would point elsewhere from the archive.
            if path.is_symlink():
                place.symlink_to(path.resolve())
                path.unlink()
            else:
                path.rename(place)

    def delete(self, name: str) -> None:
        """Delete a run with its recordings, checkpoints and models.

        Raises:
            ConfigError: a job is working in the run.
        """
        path = self.path(name)
        with _untouched(path):
            # Move first, so that no half-deleted run is left if the removal is interrupted.
            hidden = Path(tempfile.mkdtemp(prefix=".deleted-", dir=self.folder))
            path.rename(hidden / path.name)
        shutil.rmtree(hidden, ignore_errors=True)


def _untouched(run: Path) -> AbstractContextManager[None]:
    """Keep jobs from starting in a run.

    Raises:
        ConfigError: a job is working in the run.
    """
    # If no job has worked in the run, don't create a lock: it would look like a stopped job's.
    return nullcontext() if is_locked(run) is None else lock_folder(run)


def group_of(config: Mapping[str, Any]) -> str:
    """Return a key shared by runs whose configurations differ only in seed and folder."""
    shared = {key: value for key, value in config.items() if key not in _OWN}
    text = json.dumps(shared, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def differences(configs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the settings in which runs differ, with each run's value as a string."""
    flat = {
        name: {key: json.dumps(value, default=str) for key, value in flat_settings(tree).items()}
        for name, tree in configs.items()
    }
    keys = dict.fromkeys(key for own in flat.values() for key in own)
    return [
        {"key": printable(key), "values": {n: own[key] for n, own in flat.items() if key in own}}
        for key in keys
        if not key.startswith("run.") and len({own.get(key) for own in flat.values()}) > 1
    ]


def _first(logged: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the default metric: the metric of the runs' results, or else the first logged."""
    wanted = [f"{where}/{row['metric']}" for row in rows for where in ("train", "sampled")]
    return next((name for name in [*wanted, "train/reward"] if name in logged), None) or next(
        iter(logged), None
    )


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
