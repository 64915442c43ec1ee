"""Disk usage of a run: the bytes of each recorded episode and the frames it refers to."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl.replay.frames.frame_pack import has_tables
from agentrl.replay.frames.pack_sweep import PackSweeper, StoredFrame
from agentrl.runs.episode_index import Removals
from agentrl.runs.jsonl import JsonlTails
from agentrl.runs.run_paths import (
    episodes_folder,
    frames_folder,
    is_frame,
    is_name,
    removals_file,
)

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class FrameUsage:
    """A frame that is on disk or referred to by an episode."""

    id: str
    bytes: int = 0
    """Bytes added by storing the frame; 0 while it is not on disk."""
    touched: float = 0.0
    """Last time the frame is known to have been seen, in seconds since 1970."""
    shown: int = 0
    """Number of kept episodes that refer to the frame."""
    packs: list[PackSweeper] = field(default_factory=list)
    """Packs that contain the frame; several writers may have stored it."""


@dataclass(slots=True, kw_only=True, frozen=True, eq=False)
class KeptEpisode:
    """An episode whose file is on disk."""

    id: str
    split: str
    step: int
    time: float
    """Time of recording, in seconds since 1970."""
    bytes: int
    """Size of the episode's file."""
    frames: tuple[FrameUsage, ...]


class DiskUsage:
    """The kept episodes of a run, and the disk space that they and their frames take.

    The first `catch_up` lists the run's frames; later calls read only newly appended data.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tails = JsonlTails(episodes_folder(run))
        self._packs: dict[Path, PackSweeper] = {}
        self._frames: dict[str, FrameUsage] = {}
        self._episode_bytes = self._unshown_bytes = 0
        self.removals = Removals()
        self.episodes: dict[str, KeptEpisode] = {}
        self.unshown: dict[str, FrameUsage] = {}
        """Frames on disk that no kept episode refers to, because their episode was removed or is
        still being played."""

    @property
    def bytes(self) -> int:
        """Bytes of the kept episodes with their frames."""
        return self._episode_bytes + self.pack_bytes - self._unshown_bytes

    @property
    def pack_bytes(self) -> int:
        """Bytes of all frames."""
        return sum(pack.bytes for pack in self._packs.values())

    @property
    def freed(self) -> int:
        """Bytes freed by removing frames so far."""
        return sum(pack.freed for pack in self._packs.values())

    def overtaken(self) -> bool:
        """Whether another process has pruned the run in the meantime, making this object stale."""
        return any(pack.overtaken() for pack in self._packs.values())

    def catch_up(self) -> None:
        """Read episodes and frames that were recorded or removed since the last call.

        Raises:
            ConfigError: the run cannot be read.
            OSError: a frame pack cannot be read.
        """
        for path in sorted(frames_folder(self._run).glob("*.sqlite")):
            if path not in self._packs and has_tables(path):
                self._packs[path] = PackSweeper(path)
        for pack in self._packs.values():
            for stored in pack.new():
                self._store(stored, pack)
        for entry in self._tails.new(removals_file(self._run).name):
            id, recorded = self.removals.take(entry)
            if id in self.episodes and self.episodes[id].time <= recorded:
                self.drop(id)
        for entry in self._tails.new("frames-*.jsonl"):
            self._take(entry)

    def drop(self, id: str) -> KeptEpisode:
        """Stop counting an episode; frames that only this episode used become `unshown`."""
        held = self.episodes.pop(id)
        self._episode_bytes -= held.bytes
        for frame in held.frames:
            frame.shown -= 1
            if not frame.shown and frame.packs:
                self._hide(frame)
            elif not frame.shown:
                del self._frames[frame.id]
        return held

    def remove(self, frames: Collection[FrameUsage], touched_until: float) -> list[FrameUsage]:
        """Remove unshown frames from disk, and return the frames actually removed."""
        for pack in self._packs.values():
            old = (frame for frame in frames if frame.touched <= touched_until)
            stored = {frame.id: frame for frame in old if pack in frame.packs}
            for id in pack.remove(list(stored), touched_until) if stored else ():
                stored[id].packs.remove(pack)
        gone = [frame for frame in frames if not frame.packs]
        for frame in gone:
            del self.unshown[frame.id], self._frames[frame.id]
            self._unshown_bytes -= frame.bytes
        return gone

    def _take(self, entry: Mapping[str, Any]) -> None:
        """Count one episode from its index line, skipping invalid lines."""
        try:
            id, recorded, size = str(entry["id"]), float(entry["time"]), int(entry["bytes"])
            split, step = str(entry["split"]), int(entry["step"])
            names = dict.fromkeys(name for name in entry["frames"] if is_frame(name))
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            log.warning("%s: invalid line in frames-*.jsonl: %r", self._run, error)
            return
        if not is_name(id) or self.removals.holds(id, recorded):
            return
        # A resumed job may have played the episode again.
        if (before := self.episodes.get(id)) is not None:
            if before.time > recorded:
                return
            self.drop(id)
        frames = tuple(map(self._show, names))
        self.episodes[id] = KeptEpisode(
            id=id, split=split, step=step, time=recorded, bytes=size, frames=frames
        )
        self._episode_bytes += size

    def _show(self, id: str) -> FrameUsage:
        frame = self._frames.setdefault(id, FrameUsage(id))
        frame.shown += 1
        if self.unshown.pop(id, None) is not None:
            self._unshown_bytes -= frame.bytes
        return frame

    def _hide(self, frame: FrameUsage) -> None:
        self.unshown[frame.id] = frame
        self._unshown_bytes += frame.bytes

    def _store(self, stored: StoredFrame, pack: PackSweeper) -> None:
        frame = self._frames.setdefault(stored.id, FrameUsage(stored.id))
        if self.unshown.pop(frame.id, None) is not None:
            self._unshown_bytes -= frame.bytes
        if pack not in frame.packs:
            frame.packs.append(pack)
            frame.bytes += stored.bytes
        frame.touched = max(frame.touched, stored.touched)
        if not frame.shown:
            self._hide(frame)
