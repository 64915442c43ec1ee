"""Remove a run's oldest training episodes, and the frames that only they show.

Recorders may be running at the same time. An episode in progress may refer to any frame on disk,
and which ones is not known until it ends. But recorders touch a frame when they see it again
(`REFRESH_S`), so a frame left untouched for longer than that plus the longest episode cannot belong
to an episode that is yet to be recorded.

Each removal is written durably to `removed.jsonl` before any file is deleted: after kill -9 at any
point, an episode is either complete or listed as removed, and the next pruning deletes its files.
"""

import logging
import math
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError
from agentrl.files import lock_folder
from agentrl.replay.disk_usage import DiskUsage, FrameUsage, KeptEpisode
from agentrl.replay.frames.frame_store import REFRESH_S
from agentrl.runs.jsonl import append_durably
from agentrl.runs.run_paths import episode_file, episodes_folder, is_name, removals_file

log = logging.getLogger(__name__)

GB = 1e9
_MARGIN_S = 300.0
"""Allowance for the write queue and clock differences, in seconds."""
SETTLED_S = 60.0
"""Age in seconds below which an episode is kept, as a resumed job may be replacing it."""
_ASIDE = ".removing"


def grace_s(rollout: RolloutConfig) -> float:
    """Return the seconds for which a frame must be untouched before it may be removed."""
    return REFRESH_S + rollout.deadline_s + rollout.reward_deadline_s + _MARGIN_S


@dataclass(slots=True, kw_only=True, frozen=True)
class Pruned:
    """Result of one pruning, or of its dry run."""

    episodes: tuple[KeptEpisode, ...]
    """Removed episodes, oldest first."""
    frames: int
    bytes: int
    """Bytes of episodes and frames freed."""
    recent: int
    """Number of training episodes too recently recorded or copied to remove; 0 if all fits."""
    waiting: int
    waiting_bytes: int
    """Bytes of frames that no kept episode uses, but that were touched too recently to remove."""
    kept: int
    kept_bytes: int
    """Bytes of the remaining episodes and their frames."""
    keep_bytes: float
    training_left: bool
    """Whether training episodes remain that could be removed later."""

    @property
    def is_short(self) -> bool:
        """Whether the episodes that are never removed exceed the limit on their own."""
        return self.kept_bytes > self.keep_bytes and not self.training_left


class Pruner:
    """Prunes a run's episodes and frames to a size limit; repeated calls are cheap."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._ledger = DiskUsage(run)
        self._first = True

    def prune(self, keep_bytes: float, grace_s: float, *, dry_run: bool = False) -> Pruned:
        """Remove the oldest training episodes until the rest fits into the limit.

        Evaluation and demonstration episodes are never removed. Frames that no kept episode shows
        are removed, regardless of which episode they came from.

        Args:
            keep_bytes: size limit for episodes with their frames.
            grace_s: keep frames touched within this many seconds; see `grace_s`. Use 0 only if
                nothing is being recorded.
            dry_run: only report; the object cannot be used afterwards.

        Raises:
            ConfigError: another process is pruning this run.
            OSError: a file cannot be removed.
        """
        with lock_folder(episodes_folder(self._run)):
            # Frames recorded while this method reads are touched after this moment.
            now = time.time()
            if self._first and not dry_run:
                # A process was killed before it removed these files, so check them again.
                for aside in episodes_folder(self._run).glob(f"*{_ASIDE}"):
                    _put_back(aside)
            if self._ledger.overtaken():
                self._ledger, self._first = DiskUsage(self._run), True
            ledger = self._ledger
            ledger.catch_up()
            settled, untouched = now - min(SETTLED_S, grace_s), now - grace_s
            if dry_run:
                going = self._oldest(keep_bytes, settled)
                frames = [it for it in ledger.unshown.values() if it.touched <= untouched]
                freed = sum(frame.bytes for frame in frames)
            else:
                freed_before = ledger.freed
                going, frames = self._remove_all(keep_bytes, now, settled, untouched)
                freed = ledger.freed - freed_before
        gone = {frame.id for frame in frames}
        left = [frame for id, frame in ledger.unshown.items() if id not in gone]
        return Pruned(
            episodes=tuple(going),
            frames=len(frames),
            bytes=sum(held.bytes for held in going) + freed,
            recent=self._num_recent(keep_bytes, settled),
            waiting=len(left),
            waiting_bytes=sum(frame.bytes for frame in left),
            kept=len(ledger.episodes),
            kept_bytes=ledger.bytes,
            keep_bytes=keep_bytes,
            training_left=any(held.split == "train" for held in ledger.episodes.values()),
        )

    def _remove_all(
        self, keep_bytes: float, now: float, settled: float, untouched: float
    ) -> tuple[list[KeptEpisode], list[FrameUsage]]:
        """Remove episodes until the rest fits; return the removed episodes and frames."""
        going, frames = list[KeptEpisode](), list[FrameUsage]()
        # Repeat, because removed frames may free less than expected if others share their bands.
        while True:
            chosen = self._oldest(keep_bytes, settled)
            # List the episodes durably before removing the first file; see above.
            if chosen:
                entries = ({"id": h.id, "recorded": h.time, "time": now} for h in chosen)
                append_durably(removals_file(self._run), entries)
            ids = [held.id for held in chosen]
            for held in chosen:
                self._ledger.removals.note(held.id, held.time)
            # An earlier process may have been killed after listing episodes, before removing files.
            if self._first:
                noted = set(filter(is_name, self._ledger.removals))
                ids += noted - self._ledger.episodes.keys()
            for id in ids:
                _remove(episode_file(self._run, id), settled)
            frames += self._ledger.remove(list(self._ledger.unshown.values()), untouched)
            self._first = False
            going += chosen
            if not chosen:
                return going, frames

    def _oldest(self, keep_bytes: float, recorded_before: float) -> list[KeptEpisode]:
        """Stop counting the oldest training episodes, and return them for removal."""
        ledger = self._ledger
        if ledger.bytes <= keep_bytes:
            return []
        going = []
        training = (held for held in ledger.episodes.values() if held.split == "train")
        for held in sorted(training, key=lambda held: (held.time, held.id)):
            if ledger.bytes <= keep_bytes or held.time > recorded_before:
                break
            if not self._is_recent(held, recorded_before):
                going.append(ledger.drop(held.id))
        return going

    def _num_recent(self, keep_bytes: float, recorded_before: float) -> int:
        ledger = self._ledger
        if ledger.bytes <= keep_bytes:
            return 0
        training = (held for held in ledger.episodes.values() if held.split == "train")
        return sum(self._is_recent(held, recorded_before) for held in training)

    def _is_recent(self, held: KeptEpisode, recorded_before: float) -> bool:
        """Return whether an episode, or its file in a copied run, was written after a time."""
        written = max(held.time, _touched_at(episode_file(self._run, held.id)))
        return written > recorded_before


def _remove(path: Path, cutoff: float) -> None:
    """Remove a file unless it was touched after the cutoff."""
    if _touched_at(path) > cutoff:
        return
    aside = path.with_name(path.name + _ASIDE)
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    # The file may have been touched since the check. Under its new name recorders cannot touch it
    # any more: they find the file missing, and write it again.
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
    """Return a file's modification time in seconds since 1970, or minus infinity if missing."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return -math.inf


class BackgroundPruner:
    """Removes old recordings in a background thread, one pass at a time (`run.keep_gb`).

    If a pass fails, a warning is logged and the next pass starts from scratch.

    Args:
        run: the run's folder.
        keep_gb: the limit in GB (`run.keep_gb`); None removes nothing.
        rollout: section whose deadlines bound how long an episode may still be in use.
    """

    def __init__(self, run: Path, keep_gb: float | None, rollout: RolloutConfig) -> None:
        self._run = run
        self._keep_bytes = None if keep_gb is None else keep_gb * GB
        self._grace_s = grace_s(rollout)
        self._pruner: Pruner | None = None
        self._thread: threading.Thread | None = None
        self._warned = False

    def begin(self) -> None:
        """Start a pass unless one is running, without waiting for it."""
        if self._keep_bytes is None or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(
            target=self._prune, args=(self._keep_bytes, self._grace_s), name="prune", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Prune one last time, without a grace period, as recording has ended."""
        if self._keep_bytes is None:
            return
        if self._thread is not None:
            self._thread.join()
        self._prune(self._keep_bytes, 0.0)

    def _prune(self, keep_bytes: float, grace_s: float) -> None:
        # Keep the pruner only if the pass succeeds, as its counts are wrong after a failure.
        pruner, self._pruner = self._pruner, None
        try:
            pruner = pruner or Pruner(self._run)
            pruned = pruner.prune(keep_bytes, grace_s)
        except (ConfigError, OSError) as error:
            log.warning(
                "run.keep_gb: pruning failed and will be retried after the next step: %s", error
            )
            return
        self._pruner = pruner
        if pruned.episodes or pruned.frames:
            log.info(
                "run.keep_gb: removed %d training episodes and %d frames (%.3f GB); the remaining "
                "%d episodes use %.3f GB", len(pruned.episodes), pruned.frames, pruned.bytes / GB,
                pruned.kept, pruned.kept_bytes / GB,
            )  # fmt: skip
        if pruned.is_short and not self._warned:
            self._warned = True
            log.warning("%s", size_limit_warning(pruned))


def size_limit_warning(pruned: Pruned) -> str:
    """Return a message that explains why a run exceeds its size limit."""
    return (
        "evaluations and demonstrations are never removed and now use "
        f"{pruned.kept_bytes / GB:.3f} GB, more than the limit of {pruned.keep_bytes / GB:g} GB; "
        "no training episodes are left to remove"
    )
