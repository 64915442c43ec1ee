"""Read a recorded run: episode summaries, complete episodes and frames."""

import builtins
import gzip
import json
import logging
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from agentrl.errors import ConfigError, EpisodeRemoved, with_short_mistakes
from agentrl.files import open_regular, path_of
from agentrl.notebook_html import picture_of
from agentrl.replay.episode_json import from_json
from agentrl.replay.episode_query import parse_query
from agentrl.replay.frames import frame_pack
from agentrl.runs.episode_index import EpisodeIndex
from agentrl.runs.episode_summary import Filter, Summary, check_label
from agentrl.runs.metrics_file import read_metrics
from agentrl.runs.rings import ring_rows_of, ring_table
from agentrl.runs.run_folder import CONFIG_FILE, RunFolder, missing_run
from agentrl.runs.run_paths import (
    episode_file,
    episodes_folder,
    frames_folder,
    is_frame,
    token_advantages_files,
)
from agentrl.runs.run_results import RESULT_METRICS
from agentrl.text.formatting import pluralize
from agentrl.text_tables import ResultTable, flatten_results
from agentrl.types import Episode, Image

log = logging.getLogger(__name__)

_CURVE_WIDTH = 640
_MAX_BYTES = 256 << 20
"""Maximum uncompressed size of an accepted episode; real episodes are far smaller."""
_BOMB_BYTES, _BOMB_RATIO = 32 << 20, 200
"""A file that unpacks to more than this many bytes, and to more than this many times its size, is
not a recording, because log-probabilities do not compress that well."""


@dataclass(slots=True, kw_only=True, frozen=True)
class RecordedEpisode:
    """A complete episode with its summary."""

    summary: Summary
    """The episode's line in the index."""
    episode: Episode
    """The episode without images; `Run.with_images` loads recorded images."""
    run: Path | None = None
    """Folder of the run that the episode was read from."""

    def __repr__(self) -> str:
        return f"RecordedEpisode({self.episode!r}, reward {self.summary.reward:.4g})"

    def _repr_html_(self) -> str:
        is_there = self.run is not None and self.run.is_dir()
        load = Run(self.run).frame if self.run is not None and is_there else (lambda frame: None)
        return self.episode.film_strip(self.summary.rewards, load)


class Run:
    """A recorded run, which can be read while it is still being written.

    `agentrl.replay.open` also rejects a folder without recorded episodes.

    Args:
        path: the run's folder.

    Raises:
        ConfigError: the folder does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path_of(os.fspath(path), "run")
        if not self.path.is_dir():
            raise missing_run(self.path)
        self._folder = RunFolder(self.path)
        self._index = EpisodeIndex(self.path)
        self._refused: dict[Path, tuple[tuple[int, int], str]] = {}
        """Size and modification time of each unreadable episode file, and the error."""

    @property
    def name(self) -> str:
        """Name of the folder, even if the path is `.`."""
        return self.path.absolute().name

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}{''.join(f', {part}' for part in self._result())})"

    def _repr_html_(self) -> str:
        episodes = self._index.all()
        heading = ", ".join([str(self.path), *self._result(), f"{len(episodes):,} episodes"])
        curve = self.path / "curve.png"
        parts = [f"<p>{escape(heading)}</p>"]
        if curve.is_file():
            parts.append(picture_of(curve.read_bytes(), "png", width=_CURVE_WIDTH))
        if rows := flatten_results(self._folder.read_summary()):
            parts.append(ResultTable.of_metrics(rows).html())
        if rings := ring_rows_of(self.path, episodes):
            parts.append(ring_table(rings).html())
        return "".join(parts)

    def _result(self) -> list[str]:
        """Describe the results known so far: `["accuracy 0.56 -> 0.98", "18 steps"]`."""
        summary = self._folder.read_summary()
        rows, parts = flatten_results(summary), []
        ends = [
            next((rows[name] for name in (f"{end} sampled", end) if name in rows), {})
            for end in ("before", "after")
        ]
        for metric in RESULT_METRICS:
            values = [f"{row[metric]:.3g}" for row in ends if metric in row]
            if values:
                parts.append(f"{metric} {' -> '.join(values)}")
                break
        if isinstance(steps := summary.get("steps"), int):
            parts.append(pluralize(steps, "step"))
        return parts

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def summary(self) -> dict[str, Any]:
        """The results in `summary.json`; empty until the job has written the file.

        Raises:
            ConfigError: the file cannot be read.
        """
        return self._folder.load_summary()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The history in `metrics.jsonl`: an entry for each step of a stage, oldest first.

        An entry has `stage`, `step`, `time` (seconds since 1970) and the step's metrics by name,
        such as `train/reward`; `pandas.DataFrame(run.metrics)` has a column for each. Empty until
        the job has logged a step.

        Raises:
            ConfigError: the file cannot be read.
        """
        return read_metrics(self.path)

    @property
    def config(self) -> dict[str, Any]:
        """The settings in `config.yaml`, by section; empty if the run has no such file.

        For example `{"seed": 0, "env": {"id": "Game-v0", ...}, ...}`; `agentrl.load_config(file)`
        reads the file as a `Config`.

        Raises:
            ConfigError: the file cannot be read.
        """
        return self._folder.load_config() if (self.path / CONFIG_FILE).is_file() else {}

    @property
    def model(self) -> Path:
        """Folder of the final model in the Hugging Face format; exists after training."""
        return self._folder.model

    def episodes(self, where: Filter | str | None = None) -> list[Summary]:
        """Return summaries of the episodes recorded so far, in the order they ended.

        Args:
            where: which episodes: a filter, or a query such as `accuracy < 0.5 and turns > 9`, as
                `agentrl episodes --where` accepts it; None for all.

        Raises:
            ConfigError: the run has an unsupported format or cannot be read, the query is invalid
                or uses a name that no episode has, or no episode has the filter's label.
        """
        episodes = self._index.all()
        if isinstance(where, str):
            return list(filter(parse_query(where, episodes), episodes))
        if where is None:
            return list(episodes)
        check_label(where.label, episodes)
        return where.of(episodes)

    def version(self) -> int:
        """Return a counter that grows with every new episode, score or removal.

        Raises:
            ConfigError: as in `episodes`.
        """
        self._index.all()
        return self._index.version

    def share_read(self) -> float:
        """Return the fraction of the index read so far, even while `episodes` is reading."""
        return self._index.share()

    def episode(self, episode_id: str) -> RecordedEpisode:
        """Return a complete episode.

        Raises:
            EpisodeRemoved: pruning removed the episode's file.
            ConfigError: the episode does not exist, or its file is damaged.
        """
        return self.read(self.find(episode_id))

    def find(self, episode_id: str) -> Summary:
        """Return the summary of one episode, without opening its file.

        Raises:
            ConfigError: the episode does not exist.
        """
        if (summary := self._index.get(episode_id)) is None:
            raise ConfigError(
                f"{self.path} has no episode {episode_id!r} (agentrl episodes RUN lists all)"
            )
        return summary

    def read(self, summary: Summary) -> RecordedEpisode:
        """Return the complete episode of a summary, without looking for newer recordings.

        Raises:
            EpisodeRemoved, ConfigError: as in `episode`.
        """
        _refuse_removed(summary)
        try:
            episode = self._read_file(summary.id)
        except ConfigError:
            # Pruning may have just removed the episode.
            _refuse_removed(self._index.get(summary.id) or summary)
            raise
        return RecordedEpisode(summary=summary, episode=episode, run=self.path)

    def _read_file(self, episode_id: str) -> Episode:
        """Read an episode's file, which may be damaged or malicious."""
        path = episodes_folder(self.path)
        try:
            path = episode_file(self.path, episode_id)
            status = path.stat()
        except (OSError, ValueError) as error:
            raise ConfigError(_unreadable(path, error)) from error
        # Remember damaged files, because a page that shows one requests it repeatedly.
        stamp = status.st_size, status.st_mtime_ns
        if (known := self._refused.get(path)) is not None and known[0] == stamp:
            raise ConfigError(known[1])
        try:
            return from_json(json.loads(_unpacked(path, status.st_size)))
        except OSError as error:
            # Don't remember the failure: it may be temporary, such as too many open files.
            raise ConfigError(_unreadable(path, error)) from error
        except (
            EOFError, zlib.error, AttributeError, LookupError, OverflowError, TypeError,
            ValueError, RecursionError,
        ) as error:  # fmt: skip
            self._refused[path] = stamp, _unreadable(path, error)
            raise ConfigError(self._refused[path][1]) from error

    def token_advantages(self, episode: Episode) -> list[list[float]] | None:
        """Return the advantage of each sampled token, turn by turn.

        None if all tokens of a turn share one advantage; the summary then has it.
        """
        name = f'{{"id": {json.dumps(episode.id)}, '.encode()
        advantages: list[list[float]] | None = None
        for path in token_advantages_files(self.path):
            try:
                with builtins.open(path, "rb", opener=open_regular) as file:
                    entries = [json.loads(line) for line in file if line.startswith(name)]
                last = entries[-1]["advantages"] if entries else []
                by_turn = [[float(value) for value in turn] for turn in last]
            # A killed writer leaves an incomplete line, and the file may be from another source.
            except (OSError, LookupError, TypeError, ValueError, OverflowError, RecursionError):
                continue
            if [len(turn) for turn in by_turn] == [len(t.reply_ids) for t in episode.turns]:
                advantages = by_turn
        return advantages

    def with_images(self, recorded: RecordedEpisode) -> RecordedEpisode:
        """Load an episode's images: each turn's frames, and the frames after the last turn.

        Missing or damaged frames are left out.
        """

        def images(ids: Iterable[str]) -> tuple[Image, ...]:
            return tuple(image for id in ids if (image := self.frame(id)) is not None)

        episode = recorded.episode
        turns = tuple(replace(turn, images=images(turn.frames)) for turn in episode.turns)
        final = images(episode.final_frames)
        return replace(recorded, episode=replace(episode, turns=turns, final_images=final))

    def opened(self, summaries: Iterable[Summary]) -> Iterator[RecordedEpisode]:
        """Yield complete episodes one by one.

        Removed and unreadable episodes are skipped, and counted in a warning at the end.
        """
        removed, damaged = 0, list[str]()
        for summary in summaries:
            try:
                recorded = self.read(summary)
            except EpisodeRemoved:
                removed += 1
            except ConfigError as error:
                damaged.append(str(error))
            else:
                yield recorded
        if damaged:
            log.warning("skipped %d unreadable episodes; first error: %s", len(damaged), damaged[0])
        if removed:
            log.warning("%s: skipped %d episodes that pruning removed", self.path, removed)

    def frame_bytes(self, frame_id: str) -> bytes | None:
        """Return a frame's PNG, or None if it was not recorded or the id is invalid."""
        if not is_frame(frame_id):
            return None
        candidates = (frame_pack.read_png(path, frame_id) for path in self._packs())
        return next((png for png in candidates if png is not None), None)

    def has_frame(self, frame_id: str) -> bool:
        """Return whether a frame is on disk, though it may be damaged."""
        return is_frame(frame_id) and any(
            frame_pack.holds(path, frame_id) for path in self._packs()
        )

    def _packs(self) -> list[Path]:
        return sorted(frames_folder(self.path).glob("*.sqlite"))

    def frame(self, frame_id: str) -> Image | None:
        """Return a frame as uint8[H, W, 3], RGB; None if it is missing or damaged."""
        png = self.frame_bytes(frame_id)
        if not png:
            return None
        try:
            image = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR_RGB)
        except cv2.error:  # for example, the header claims 100,000 rows
            return None
        return None if image is None else image.astype(np.uint8, copy=False)


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path} cannot be read: {type(error).__name__}: {error}"


def _unpacked(path: Path, size: int) -> bytes:
    most = min(_MAX_BYTES, max(_BOMB_BYTES, _BOMB_RATIO * size))
    content = bytearray()
    with builtins.open(path, "rb", opener=open_regular) as file, gzip.open(file) as unpacked:
        # Read in pieces, because `read(n)` allocates n bytes upfront.
        while piece := unpacked.read(1 << 20):
            content += piece
            if len(content) > most:
                raise ValueError(f"it unpacks to more than {most:,} bytes")
    return bytes(content)


def _refuse_removed(summary: Summary) -> None:
    if summary.removed:
        raise EpisodeRemoved(
            f"{summary.id}: this episode was removed to free disk space (run.keep_gb or agentrl "
            "prune); only its scores were kept"
        )


@with_short_mistakes
def open(run: str | os.PathLike[str], *, may_be_unplayed: bool = False) -> Run:
    """Open a run's folder.

    Args:
        run: the run's folder.
        may_be_unplayed: also open runs that record no episodes, such as those of `agentrl sft`.

    Raises:
        ConfigError: the folder does not exist, or has no recorded episodes.
    """
    opened = Run(run)
    path = opened.path
    is_unplayed = may_be_unplayed and (path / CONFIG_FILE).is_file()
    if not (is_unplayed or episodes_folder(path).is_dir()):
        one = next((file.parent for file in sorted(path.glob("*/config.yaml"))), None)
        hint = f"; it is a folder of runs, so open one of them, such as {one}" if one else ""
        raise ConfigError(f"{path} has no recorded episodes (no folder 'episodes'){hint}")
    return opened
