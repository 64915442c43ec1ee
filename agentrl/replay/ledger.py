"""What room each recorded episode takes, and which frames it shows: counted as it is recorded."""

import gzip
import json
import logging
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.replay.encoding import from_json
from agentrl.replay.index import check_format, removal, time_of
from agentrl.replay.layout import (
    episode_file,
    episodes_folder,
    frame_file,
    is_frame,
    is_name,
    removals_file,
)
from agentrl.replay.record import frames_of
from agentrl.replay.tail import Tails

log = logging.getLogger(__name__)

_EXPECTED_S = 600.0
"""For a frame to be written after its episode was: then it is taken for left out."""


@dataclass(slots=True, eq=False)
class Frame:
    """A frame that is on disk, or that an episode shows."""

    name: str
    bytes: int | None = None
    """Of its file; None while it is not there."""
    shown: int = 0
    """By so many episodes that are kept."""


@dataclass(slots=True, kw_only=True, frozen=True, eq=False)
class Held:
    """An episode whose file is kept."""

    id: str
    split: str
    step: int
    time: float
    """Seconds since 1970 when it was recorded."""
    bytes: int
    """Of its own file."""
    frames: tuple[Frame, ...]


class Ledger:
    """The kept episodes of a run and the bytes that they take with their frames.

    The first `catch_up` lists the run's frames; later ones read what was appended since.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tails = Tails(episodes_folder(run))
        self._frames: dict[str, Frame] = {}
        self._expected: list[tuple[float, Frame]] = []
        """Frames that are shown and not on disk yet, and until when they are looked for."""
        self._begun = False
        self.removed: dict[str, float] = {}
        """When what was removed had been recorded, by the episode's id."""
        self.episodes: dict[str, Held] = {}
        self.unshown: dict[str, Frame] = {}
        """Frames on disk that no kept episode shows: those of removed ones, and of episodes that
        are still being played."""
        self.bytes = 0
        """Of the kept episodes with their frames."""

    def catch_up(self) -> None:
        """Read what was recorded and removed since.

        Raises:
            ConfigError: it was recorded by a newer agentrl, or cannot be read.
        """
        indexed: dict[str, Mapping[str, Any]] = {}
        if not self._begun:
            self._list_frames()
            indexed = self._indexed()  # before the lines of frames, which are written first
        for entry in self._tails.new(removals_file(self._run).name):
            id, recorded = removal(entry)
            if not is_name(id):
                continue
            self.removed[id] = max(recorded, self.removed.get(id, recorded))
            if id in self.episodes and self.episodes[id].time <= recorded:
                self.drop(id)
        for entry in self._tails.new("frames-*.jsonl"):
            self._take(entry)
        for id, line in indexed.items():
            if id not in self.episodes and self._is_kept(id, float(line["time"])):
                self._take(self._read(line))
        self._begun = True
        self._look_for_expected()

    def drop(self, id: str) -> Held:
        """Count an episode no more; frames that only it showed are unshown from now on."""
        held = self.episodes.pop(id)
        self.bytes -= held.bytes
        for frame in held.frames:
            frame.shown -= 1
            if not frame.shown:
                self.bytes -= frame.bytes or 0
                self.unshown[frame.name] = frame
        return held

    def forget(self, frame: Frame) -> None:
        """A frame that was unshown is on disk no more."""
        del self.unshown[frame.name], self._frames[frame.name]

    # --- what was recorded ------------------------------------------------------------------

    def _take(self, entry: Mapping[str, Any]) -> None:
        """Count one episode from its line; a line that is none is skipped."""
        try:
            id, recorded, size = str(entry["id"]), float(entry["time"]), int(entry["bytes"])
            split, step = str(entry["split"]), int(entry["step"])
            names = dict.fromkeys(name for name in entry["frames"] if is_frame(name))
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            log.warning("%s: a line of frames is none: %r", self._run, error)
            return
        if not is_name(id) or not self._is_kept(id, recorded):
            return
        if (before := self.episodes.get(id)) is not None:  # a job that went on played it again
            if before.time > recorded:
                return
            self.drop(id)
        frames = tuple(map(self._shown, names))
        self.episodes[id] = Held(
            id=id, split=split, step=step, time=recorded, bytes=size, frames=frames
        )
        self.bytes += size

    def _is_kept(self, id: str, recorded: float) -> bool:
        removed = self.removed.get(id)
        return removed is None or recorded > removed

    def _shown(self, name: str) -> Frame:
        frame = self._frames.setdefault(name, Frame(name))
        frame.shown += 1
        if frame.shown == 1:
            self.unshown.pop(name, None)
            if frame.bytes is None:
                frame.bytes = self._size(name)
            if frame.bytes is None:
                self._expected.append((time.monotonic() + _EXPECTED_S, frame))
            self.bytes += frame.bytes or 0
        return frame

    def _look_for_expected(self) -> None:
        expected, self._expected = self._expected, []
        for until, frame in expected:
            if not frame.shown or frame.bytes is not None:
                continue
            frame.bytes = self._size(frame.name)
            self.bytes += frame.bytes or 0
            if frame.bytes is None and time.monotonic() < until:
                self._expected.append((until, frame))

    def _size(self, name: str) -> int | None:
        try:
            return frame_file(self._run, name).stat().st_size
        except FileNotFoundError:
            return None

    # --- what was there before --------------------------------------------------------------

    def _list_frames(self) -> None:
        for name, size in frames_on_disk(self._run):
            self._frames[name] = self.unshown[name] = Frame(name, size)

    def _indexed(self) -> dict[str, Mapping[str, Any]]:
        """Lines of the index, of which older recorders wrote no line of frames."""
        found: dict[str, Mapping[str, Any]] = {}
        for entry in self._tails.new("index-*.jsonl"):
            check_format(self._run, entry)
            if is_name(str(entry.get("id"))) and time_of(entry) is not None:
                found[str(entry["id"])] = entry
        return found

    def _read(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """What its line of frames would be; no frames where the episode cannot be read."""
        path = episode_file(self._run, str(entry["id"]))
        size, frames = 0, list[str]()
        try:
            size = path.stat().st_size
            frames = frames_of(from_json(json.loads(gzip.decompress(path.read_bytes()))))
        except (
            OSError, EOFError, zlib.error, AttributeError, LookupError, TypeError, ValueError,
            RecursionError,
        ) as error:  # fmt: skip
            log.info("%s: its frames are not known: %r", path, error)
        return {**entry, "bytes": size, "frames": frames}


def frames_on_disk(run: Path) -> Iterator[tuple[str, int]]:
    """Name and bytes of every frame's file."""
    for folder in _entries(run / "frames"):
        if folder.is_dir():
            for file in _entries(Path(folder.path)):
                name, _, ending = file.name.partition(".")
                if ending == "png" and is_frame(name):
                    yield name, file.stat().st_size


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return
