"""Episodes that wait to be scored, and what the processes that score them share."""

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
from agentrl.rollout.rewards.reward_adapters import RewardInputs
from agentrl.rollout.rewards.reward_messages import ProcessSpec, Result
from agentrl.types import Episode

log = logging.getLogger(__name__)
Results = Sequence[Result | None]
"""The result of each function for one episode."""
_BATCH = 64
"""Episodes that a process gets at a time, unless a function takes more."""
_MAX_JOBS = 256
"""Maximum number of episodes that a process holds at a time."""
_AHEAD = 16
"""Episodes that are sent at once to a process that scores them quickly."""
SHORT_S = 0.05
"""A process gets as many episodes at once as it scores in about this time."""


@dataclass(slots=True, kw_only=True, eq=False)
class ScoreRequest:
    """An episode, or the inputs of a batch function, to be scored."""

    id: int
    value: Episode | RewardInputs
    answer: Future[Results] = field(default_factory=Future)
    since: float = 0.0
    """Time at which a process first had the request."""
    alone: bool = False
    """Whether nothing else may be scored meanwhile, as it may be what ended the last process."""


@dataclass(slots=True, kw_only=True, eq=False)
class Queue:
    """The requests and settings that the processes of a pool share."""

    spec: ProcessSpec
    to_message: Callable[[ScoreRequest], tuple[int, bytes, str]]
    """Returns the message to a process: id, episode, and last prompt as text; or raises."""
    grow: Callable[[float, float], None]
    """Is called with the seconds that a process took for an episode, and the part of them that it
    computed."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: deque[ScoreRequest] = field(default_factory=deque)
    closed: bool = False
    infos: Sequence[RewardInfo] = ()
    """The functions' properties, once they are loaded."""
    _files: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and time of change of the users' files when a process first imported them."""

    def note_files(self, files: Iterable[str]) -> None:
        """Warn if a process has imported other functions than the first one did."""
        for file in files:
            with suppress(OSError):
                found = os.stat(file)
                now = found.st_size, found.st_mtime_ns
                if self._files.setdefault(file, now) != now:
                    self._files[file] = now
                    log.warning(
                        "%s has changed since the job started: a new process of reward functions "
                        "has imported it, so not all episodes are scored by the same functions",
                        file,
                    )

    @property
    def overlaps(self) -> bool:
        """Whether a process scores several episodes at a time."""
        return any(info.overlaps for info in self.infos)

    @property
    def can_grow(self) -> bool:
        """Whether there may be several processes."""
        return not any(info.overlaps or info.is_shared for info in self.infos)

    @property
    def batch_size(self) -> int:
        """How many episodes a process gets at a time."""
        return max(_BATCH, *(info.max_batch_size for info in self.infos))

    def next_jobs(
        self, held: Collection[ScoreRequest], answering: int, mean_s: float | None
    ) -> list[ScoreRequest]:
        """Remove and return the episodes that a process should get now; none while it is busy.

        Args:
            held: what the process scores.
            answering: how many of its episodes are answered now.
            mean_s: seconds in which it scored each of its latest episodes; None if it has not yet.
        """
        if not self.waiting or any(job.alone for job in held):
            return []
        # What may have ended the last process must not harm other episodes.
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
        # It is not known yet how long an episode takes, so no others wait behind it.
        if mean_s is None:
            return 0 if held else (1 if self.can_grow else self.batch_size)
        fast = int(SHORT_S / max(mean_s, 1e-9))
        if fast >= self.batch_size:
            # The process scores some episodes while others are sent.
            return _AHEAD if held <= 2 * _AHEAD else 0
        return 0 if held else (max(1, fast) if self.can_grow else self.batch_size)
