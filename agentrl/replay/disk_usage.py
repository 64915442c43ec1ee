"""What room each recorded episode takes, and which frames it shows: counted as it is recorded."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.replay.frames.pack_sweep import Stored, Sweeper
from agentrl.replay.jsonl_tail import Tails
from agentrl.replay.removals import Removals
from agentrl.replay.run_layout import (
    episodes_folder,
    frames_folder,
    has_single_frames,
    is_frame,
    is_name,
    removals_file,
)

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Frame:
    """A frame that is on disk, or that an episode shows."""

    id: str
    bytes: int = 0
    """That came with it; 0 while it is not on disk."""
    touched: float = 0.0
    """When it was last seen, as far as is known: seconds since 1970."""
    shown: int = 0
    """By so many episodes that are kept."""
    packs: list[Sweeper] = field(default_factory=list)
    """Where it is: several writers may have stored it."""


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

    Raises:
        ConfigError: an older agentrl has recorded it.
    """

    def __init__(self, run: Path) -> None:
        if has_single_frames(run):
            raise ConfigError(
                f"{run}: an older agentrl has recorded its frames, in a file each, and such runs "
                "cannot be pruned; move it away, or export what you need (agentrl export)"
            )
        self._run = run
        self._tails = Tails(episodes_folder(run))
        self._packs: dict[Path, Sweeper] = {}
        self._frames: dict[str, Frame] = {}
        self._episode_bytes = self._unshown_bytes = 0
        self.removals = Removals()
        self.episodes: dict[str, Held] = {}
        self.unshown: dict[str, Frame] = {}
        """Frames on disk that no kept episode shows: those of removed ones, and of episodes that
        are still being played."""

    @property
    def bytes(self) -> int:
        """Of the kept episodes with their frames."""
        return self._episode_bytes + self.pack_bytes - self._unshown_bytes

    @property
    def pack_bytes(self) -> int:
        """Of all frames."""
        return sum(pack.bytes for pack in self._packs.values())

    @property
    def freed(self) -> int:
        """Bytes that frames have given back so far."""
        return sum(pack.freed for pack in self._packs.values())

    def overtaken(self) -> bool:
        """Whether another process has pruned the run since: then a new ledger is needed."""
        return any(pack.overtaken() for pack in self._packs.values())

    def catch_up(self) -> None:
        """Read what was recorded and removed since.

        Raises:
            ConfigError: it was recorded by a newer agentrl, or cannot be read.
            OSError: a pack of frames cannot be read.
        """
        for path in sorted(frames_folder(self._run).glob("*.sqlite")):
            if path not in self._packs and path.stat().st_size:  # else it was only just made
                self._packs[path] = Sweeper(path)
        for pack in self._packs.values():
            for stored in pack.new():
                self._store(stored, pack)
        for entry in self._tails.new(removals_file(self._run).name):
            id, recorded = self.removals.take(entry)
            if id in self.episodes and self.episodes[id].time <= recorded:
                self.drop(id)
        for entry in self._tails.new("frames-*.jsonl"):
            self._take(entry)

    def drop(self, id: str) -> Held:
        """Count an episode no more; frames that only it showed are unshown from now on."""
        held = self.episodes.pop(id)
        self._episode_bytes -= held.bytes
        for frame in held.frames:
            frame.shown -= 1
            if not frame.shown and frame.packs:
                self._hide(frame)
            elif not frame.shown:
                del self._frames[frame.id]
        return held

    def remove(self, frames: Collection[Frame], touched_until: float) -> list[Frame]:
        """Remove unshown frames from the disk; those that are gone.

        Raises:
            OSError: a pack cannot be changed.
        """
        for pack in self._packs.values():
            old = (frame for frame in frames if frame.touched <= touched_until)
            there = {frame.id: frame for frame in old if pack in frame.packs}
            for id in pack.remove(list(there), touched_until) if there else ():
                there[id].packs.remove(pack)
        gone = [frame for frame in frames if not frame.packs]
        for frame in gone:
            del self.unshown[frame.id], self._frames[frame.id]
            self._unshown_bytes -= frame.bytes
        return gone

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
        if not is_name(id) or self.removals.holds(id, recorded):
            return
        if (before := self.episodes.get(id)) is not None:  # a job that went on played it again
            if before.time > recorded:
                return
            self.drop(id)
        frames = tuple(map(self._show, names))
        self.episodes[id] = Held(
            id=id, split=split, step=step, time=recorded, bytes=size, frames=frames
        )
        self._episode_bytes += size

    def _show(self, id: str) -> Frame:
        frame = self._frames.setdefault(id, Frame(id))
        frame.shown += 1
        if self.unshown.pop(id, None) is not None:
            self._unshown_bytes -= frame.bytes
        return frame

    def _hide(self, frame: Frame) -> None:
        self.unshown[frame.id] = frame
        self._unshown_bytes += frame.bytes

    def _store(self, stored: Stored, pack: Sweeper) -> None:
        frame = self._frames.setdefault(stored.id, Frame(stored.id))
        if self.unshown.pop(frame.id, None) is not None:
            self._unshown_bytes -= frame.bytes
        if pack not in frame.packs:
            frame.packs.append(pack)
            frame.bytes += stored.bytes
        frame.touched = max(frame.touched, stored.touched)
        if not frame.shown:
            self._hide(frame)
