"""State in `state.json` from which a resumed run continues."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class ResumeState:
    """State that a resumed run needs in addition to the learner's checkpoint."""

    step: int = 0
    """The last finished training step."""
    warm: bool = False
    """Whether the warm start is done or not configured."""
    results: dict[str, Any] = field(default_factory=dict)
    """Results for `summary.json` so far."""
    unfinished: str | None = None
    """Key in `results` of an evaluation of which not all parts have been played."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock time by stage."""
    void: dict[str, int] = field(default_factory=dict)
    """Number of void episodes in the whole run, by cause."""
    best: float | None = None
    """Best result of an evaluation during training: mean reward or loss."""
    stale: int = 0
    """Number of evaluations since the best result (`sft.patience`)."""
    skipped: int = 0
    """Number of steps on a data set skipped because the loss or gradient was not finite."""
    kl_coefficient: float | None = None
    """The adapted KL coefficient; None without `algorithm.kl.target`."""
    entropy_coefficient: float | None = None
    """The adapted entropy coefficient; None without `algorithm.entropy_control.target`."""
    entropy: float | None = None
    """The latest step's entropy in nats per token; None like `entropy_coefficient`."""
    audit: list[list[int]] = field(default_factory=list)
    """Counts of the running reward audit; see `RunningAudit`."""
    restarts: list[dict[str, Any]] = field(default_factory=list)
    """Restarts after failures, each with its `time` (seconds since 1970), the last finished `step`,
    the step `resumed_from`, and the `error`."""
    sampler: dict[str, Any] = field(default_factory=dict)
    """The task sampler's state at the last checkpoint."""
    tasks_taken: dict[str, int] = field(default_factory=dict)
    """Number of groups that got a new task or row, by environment, at the last checkpoint
    (`TaskPool.state`)."""
    files: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Versions of each file of the user's code, by path: the last step before the version's first
    use, and its digest."""

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Add to a stage's time."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Add the duration of the block to a stage's time, if the block succeeds."""
        started = time.perf_counter()
        yield
        self.add_seconds(stage, time.perf_counter() - started)

    def record_files(self, digests: Mapping[str, str]) -> list[str]:
        """Record the versions of the user's files in use from now on.

        Returns:
            The files whose content has changed.
        """
        edited = []
        for file, digest in digests.items():
            versions = self.files.setdefault(file, [])
            # A file used for the first time does not count as changed.
            if versions and versions[-1][1] != digest:
                edited.append(file)
            if not versions or file in edited:
                versions.append((self.step, digest))
        return edited

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "ResumeState":
        """Return the state from a JSON file's object.

        Raises:
            AttributeError, TypeError, ValueError: a field is unknown or has an invalid value.
        """
        state = cls(**tree)
        state.step, state.results = int(state.step), dict(state.results)
        state.seconds = {stage: float(spent) for stage, spent in state.seconds.items()}
        state.files = {
            file: [(int(step), str(digest)) for step, digest in versions]
            for file, versions in state.files.items()
        }
        state.restarts = [dict(restart) for restart in state.restarts]
        state.audit = [[int(count) for count in one] for one in state.audit]
        state.void = {cause: int(count) for cause, count in state.void.items()}
        return state
