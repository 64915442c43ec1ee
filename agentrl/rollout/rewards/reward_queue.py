"""Queue of episodes to score, and the state that the scoring processes share."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from agentrl.rollout.rewards.loaded_reward import RewardInfo
from agentrl.rollout.rewards.reward_calls import RewardInputs
from agentrl.rollout.rewards.reward_process_messages import ProcessSpec, Result
from agentrl.types import Episode

log = logging.getLogger(__name__)
Results = Sequence[Result | None]
"""Each function's result for one episode."""
_BATCH = 64
"""Number of episodes a process gets at a time, unless a function takes more."""
_MAX_JOBS = 256
"""Maximum number of episodes a process holds at a time."""
_AHEAD = 16
"""Number of episodes to send together to a process that scores them quickly."""
SHORT_S = 0.05
"""Seconds of work to send to a process at a time."""


@dataclass(slots=True, kw_only=True, eq=False)
class ScoreRequest:
    """An episode, or a batch function's inputs, to be scored."""

    id: int
    value: Episode | RewardInputs
    answer: Future[Results] = field(default_factory=Future)
    since: float = 0.0
    """Time at which a process first received the request."""
    alone: bool = False
    """Whether to score the request alone, as it may have ended the last process."""


@dataclass(slots=True, kw_only=True, eq=False)
class Queue:
    """Requests and settings that the processes of a pool share."""

    spec: ProcessSpec
    to_message: Callable[[ScoreRequest], tuple[int, bytes, str]]
    """Returns the message to a process: id, pickled episode, and the last prompt as text."""
    grow: Callable[[float, float], None]
    """Called with a process's seconds per episode, and the fraction of them spent computing."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: deque[ScoreRequest] = field(default_factory=deque)
    closed: bool = False
    infos: Sequence[RewardInfo] = ()
    """The functions' properties, once loaded."""
    _files: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and modification time of the user's files when a process first imported them."""

    def note_files(self, files: Iterable[str]) -> None:
        """Warn if a process has imported different code than the first process."""
        for file in files:
            with suppress(OSError):
                found = os.stat(file)
                now = found.st_size, found.st_mtime_ns
                if self._files.setdefault(file, now) != now:
                    self._files[file] = now
                    log.warning(
                        "%s has changed since the job started, and a new reward process has "
                        "imported it, so not all episodes are scored by the same functions",
                        file,
                    )

    @property
    def overlaps(self) -> bool:
        """Whether a process scores several episodes concurrently."""
        return any(info.overlaps for info in self.infos)

    @property
    def can_grow(self) -> bool:
        """Whether to allow several processes."""
        return not any(info.overlaps or info.is_shared for info in self.infos)

    @property
    def batch_size(self) -> int:
        """Number of episodes a process gets at a time."""
        return max(_BATCH, *(info.max_batch_size for info in self.infos))

    def next_jobs(
        self, held: Collection[ScoreRequest], answering: int, mean_s: float | None
    ) -> list[ScoreRequest]:
        """Remove and return the episodes to send to a process now; none while it is busy.

        Args:
            held: the requests that the process has.
            answering: how many of its results are being delivered.
            mean_s: its mean seconds per episode; None before the first result.
        """
        if not self.waiting or any(job.alone for job in held):
            return []
        # A request that may have ended the last process must not harm others.
        if self.waiting[0].alone:
            room = 0 if len(held) + answering else 1
        else:
            room = self._room(len(held) + answering, mean_s)
        jobs: list[ScoreRequest] = []
        while self.waiting and len(jobs) < room and not (jobs and self.waiting[0].alone):
            jobs.append(self.waiting.popleft())
        now = time.monotonic()
        for job in jobs:
            job.since = job.since or now
        return jobs

    def _room(self, held: int, mean_s: float | None) -> int:
        if self.overlaps:
            return _MAX_JOBS - held
        # The time per episode is still unknown, so do not queue others behind the first.
        if mean_s is None:
            return 0 if held else (1 if self.can_grow else self.batch_size)
        fast = int(SHORT_S / max(mean_s, 1e-9))
        if fast >= self.batch_size:
            # Send more episodes while the process is scoring others.
            return _AHEAD if held <= 2 * _AHEAD else 0
        return 0 if held else (max(1, fast) if self.can_grow else self.batch_size)
