"""Episodes that wait to be scored, and what the processes that score them share."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from agentrl.rollout.loaded_reward import RewardInfo
from agentrl.rollout.reward_adapters import RewardInputs
from agentrl.rollout.reward_messages import ProcessSpec, Result
from agentrl.types import Episode

log = logging.getLogger(__name__)
Results = Sequence[Result | None]
"""The result of each function for one episode."""
_BATCH = 64
"""Episodes that a process gets at a time, unless a function takes more."""


@dataclass(slots=True, kw_only=True, eq=False)
class ScoreRequest:
    """An episode, or the inputs of a batch function, to be scored."""

    id: int
    value: Episode | RewardInputs
    answer: Future[Results] = field(default_factory=Future)
    since: float = 0.0
    """When a process first had it."""
    alone: bool = False
    """Whether nothing else may be scored meanwhile, as it may be what ended the last process."""


@dataclass(slots=True, kw_only=True, eq=False)
class Queue:
    """The requests and settings that the processes of a pool share."""

    spec: ProcessSpec
    to_message: Callable[[ScoreRequest], tuple[int, bytes, str]]
    """Returns the message to a process: id, episode, and last prompt as text; or raises."""
    grow: Callable[[float], None]
    """Is called with the part of its time that a function computes, if a call took long."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: deque[ScoreRequest] = field(default_factory=deque)
    closed: bool = False
    infos: Sequence[RewardInfo] = ()
    """The functions' properties, once they are loaded."""
    _files: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and time of change of the users' files when a process first imported them."""

    def note_files(self, files: Iterable[str]) -> None:
        """Warn if a process has imported other functions than the first one did.

        Args:
            files: those that it has imported.
        """
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
