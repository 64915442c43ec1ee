"""Remove the oldest training episodes of a run, and the frames that only they show.

Recorders may be at work meanwhile. An episode that is being played may show any frame that is on
disk, and nobody knows until it ends. But recorders touch a frame that they see again (`REFRESH_S`),
so one that was not touched for longer than that and an episode may take is shown by no episode that
is still to be recorded.

Each removal is noted durably before any file goes: after kill -9 at any point an episode is whole
or noted as removed, and the next pruning removes what is left of it.
"""

import logging
import math
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from agentrl.config import RolloutConfig
from agentrl.files import lock_folder
from agentrl.replay.disk_usage import Frame, Held, Ledger
from agentrl.replay.frames.frame_store import REFRESH_S
from agentrl.replay.jsonl import Lines
from agentrl.replay.run_layout import episode_file, episodes_folder, is_name, removals_file

log = logging.getLogger(__name__)

GB = 1e9
_MARGIN_S = 300.0
"""For a queue before the disk, and clocks that differ."""
_SETTLED_S = 60.0
"""An episode that was recorded since may be played again just now by a job that went on."""
_ASIDE = ".removing"


def grace_s(rollout: RolloutConfig) -> float:
    """How long a frame must not have been touched before it may go."""
    return REFRESH_S + rollout.deadline_s + rollout.reward_deadline_s + _MARGIN_S


@dataclass(slots=True, kw_only=True, frozen=True)
class Pruned:
    """What one pruning removed, or would."""

    episodes: tuple[Held, ...]
    """In the order in which they were recorded."""
    frames: int
    bytes: int
    """Of all files that are gone now, episodes and frames."""
    waiting: int
    waiting_bytes: int
    """Frames that no kept episode shows, and that were touched too lately to go."""
    kept: int
    kept_bytes: int
    """Episodes that are left, with their frames."""
    keep_bytes: float
    training_left: bool
    """Whether a training episode is left that could go later."""

    @property
    def is_short(self) -> bool:
        """Whether what is never removed takes more than the limit alone."""
        return self.kept_bytes > self.keep_bytes and not self.training_left


class Pruner:
    """Keeps a run's episodes and frames within a limit; cheap to ask again and again.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._ledger = Ledger(run)
        self._first = True

    def prune(self, keep_bytes: float, grace_s: float, *, dry_run: bool = False) -> Pruned:
        """Remove the oldest training episodes until the rest takes no more than the limit.

        Episodes of evaluations and demonstrations are never removed. Frames that no kept episode
        shows go too, whosever they were.

        Args:
            keep_bytes: what episodes and their frames may take.
            grace_s: frames that were touched since so many seconds stay; see `grace_s`. 0 only
                where nothing is being recorded.
            dry_run: only tell; this object is of no use after.

        Raises:
            ConfigError: another process prunes this run, or a newer agentrl has recorded it.
            OSError: something cannot be removed.
        """
        with lock_folder(episodes_folder(self._run)):
            # What is recorded while we read was seen, and so touched, after this.
            now = time.time()
            if self._first and not dry_run:
                self._put_back_all()
            ledger = self._caught_up()
            settled, untouched = now - min(_SETTLED_S, grace_s), now - grace_s
            if dry_run:
                going = self._oldest(keep_bytes, settled)
                frames = [it for it in ledger.unshown.values() if it.touched <= untouched]
                given_back = sum(frame.bytes for frame in frames)
            else:
                freed = ledger.freed
                going, frames = self._remove_all(keep_bytes, now, settled, untouched)
                given_back = ledger.freed - freed
        gone = {frame.id for frame in frames}
        left = [frame for id, frame in ledger.unshown.items() if id not in gone]
        return Pruned(
            episodes=tuple(going),
            frames=len(frames),
            bytes=sum(held.bytes for held in going) + given_back,
            waiting=len(left),
            waiting_bytes=sum(frame.bytes for frame in left),
            kept=len(ledger.episodes),
            kept_bytes=ledger.bytes,
            keep_bytes=keep_bytes,
            training_left=any(held.split == "train" for held in ledger.episodes.values()),
        )

    def _remove_all(
        self, keep_bytes: float, now: float, settled: float, untouched: float
    ) -> tuple[list[Held], list[Frame]]:
        """Until the rest takes no more than the limit; what is gone."""
        going, frames = list[Held](), list[Frame]()
        while True:
            chosen = self._oldest(keep_bytes, settled)
            self._note(chosen, now)
            self._remove_files(chosen, settled)
            frames += self._ledger.remove(list(self._ledger.unshown.values()), untouched)
            self._first = False
            going += chosen
            # Again: frames may leave less room than they came with, as others show their parts.
            if not chosen:
                return going, frames

    def _caught_up(self) -> Ledger:
        if self._ledger.overtaken():
            self._ledger, self._first = Ledger(self._run), True
        self._ledger.catch_up()
        return self._ledger

    def _oldest(self, keep_bytes: float, recorded_before: float) -> list[Held]:
        """Training episodes that have to go; the ledger counts them no more."""
        ledger = self._ledger
        if ledger.bytes <= keep_bytes:
            return []
        going = []
        training = (held for held in ledger.episodes.values() if held.split == "train")
        for held in sorted(training, key=lambda held: (held.time, held.id)):
            if ledger.bytes <= keep_bytes or held.time > recorded_before:
                break
            going.append(ledger.drop(held.id))
        return going

    def _note(self, going: Collection[Held], now: float) -> None:
        if not going:
            return
        lines = Lines(removals_file(self._run))
        try:
            for held in going:
                lines.append({"id": held.id, "recorded": held.time, "time": now})
                self._ledger.removals.note(held.id, held.time)
            lines.sync()
        finally:
            lines.close()

    def _remove_files(self, going: Collection[Held], cutoff: float) -> None:
        ids = [held.id for held in going]
        if self._first:  # what was noted, and then the process was killed
            noted = set(filter(is_name, self._ledger.removals))
            ids += noted - self._ledger.episodes.keys()
        for id in ids:
            _remove(episode_file(self._run, id), cutoff)

    def _put_back_all(self) -> None:
        """Bring back what a killed process was about to remove: all is decided anew."""
        for aside in episodes_folder(self._run).glob(f"*{_ASIDE}"):
            _put_back(aside)


def _remove(path: Path, cutoff: float) -> None:
    """Remove a file, unless it was touched since."""
    if _touched_at(path) > cutoff:
        return
    aside = path.with_name(path.name + _ASIDE)
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    # It may have been touched since we looked. Under this name nobody can touch it any more: who
    # wants to finds it gone, and writes it anew.
    if _touched_at(aside) > cutoff:
        _put_back(aside)
    else:
        aside.unlink()


def _put_back(aside: Path) -> None:
    path = aside.with_name(aside.name.removesuffix(_ASIDE))
    if path.exists():
        aside.unlink()
    else:
        aside.rename(path)


def _touched_at(path: Path) -> float:
    """Seconds since 1970; minus infinity where there is no such file."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return -math.inf
