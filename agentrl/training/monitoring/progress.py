"""Progress of a job: reports from running collections of episodes, and the time left."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from agentrl.errors import WorldError
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.runs.metrics_file import TRAINING_STAGES
from agentrl.text.formatting import pluralize

_POLL_INTERVAL_S = 0.5
_START_INTERVAL_S = 1.0
_BASIS_SHARE, _BASIS_S = 0.25, 60.0
"""Share or time of a stage after which its duration is extrapolated, because the first episodes end
long after the start, and then many end at once."""
_GAMES = "evaluation"
_AFTER = "evaluation after"

OnProgress = Callable[[float, float, str], None]
"""Called with the amount done, the total and a note."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PlannedWork:
    """The planned work of a job."""

    steps: int = 0
    """Number of training steps; 0 if the job does not train."""
    games_after: int = 0
    """Number of episodes of the evaluation after training."""


class TimeEstimate:
    """Follows a job's progress and estimates the time left."""

    def __init__(self, amounts: PlannedWork) -> None:
        self.step = 0
        """The last finished training step."""
        self._amounts = amounts
        self._stage = ""
        self._stage_started = time.monotonic()
        self._training_started: float | None = None
        self._steps_seen = 0
        self._part = (0.0, 0.0)
        self._game_s: float | None = None
        self._played_after = 0.0

    def stage(self, name: str) -> None:
        """Note that a stage begins, or continues with its next step."""
        now = time.monotonic()
        if name in TRAINING_STAGES and self._training_started is None:
            self._training_started = now
        if name != self._stage:
            # The evaluation after training has several stages, such as sampled and greedy.
            if self._stage.startswith(_AFTER):
                self._played_after += self._part[1]
            self._stage, self._stage_started = name, now
        self._part = (0, 0)

    def stepped(self, step: int) -> None:
        """Note that this training step is done."""
        self.step = step
        self._steps_seen += 1
        self._part = (0, 0)

    def progress(self, done: float, total: float) -> None:
        """Note the progress of the current stage or step."""
        self._part = (done, total)
        # The pace of a finished evaluation is the estimate for future evaluations.
        if self._stage.startswith(_GAMES) and 0 < total <= done:
            self._game_s = (time.monotonic() - self._stage_started) / total

    def share(self) -> float:
        """Return the share of the current stage that is done, in [0, 1]."""
        if self._stage not in TRAINING_STAGES:
            return self._part_share()
        return min(1.0, (self.step + self._part_share()) / max(1, self._amounts.steps))

    def stage_left(self) -> float | None:
        """Return the seconds left in the stage, from its own pace; None if unknown."""
        share = self._part_share()
        if self._stage in TRAINING_STAGES:
            return self._training_left(share)
        spent_s = time.monotonic() - self._stage_started
        if not share or (share < _BASIS_SHARE and spent_s < _BASIS_S):
            return None
        return spent_s / share * (1 - share)

    def job_left(self) -> float | None:
        """Return the seconds left in the job; None until every remaining stage's pace is known."""
        games = self._amounts.games_after - self._played_after
        if self._stage.startswith(_AFTER):
            now = self.stage_left()
            games, now = (games, 0.0) if now is None else (games - self._part[1], now)
        else:
            part = self._part_share() if self._stage in TRAINING_STAGES else 0.0
            now = self._training_left(part)
        if now is None or games <= 0:
            return now
        return None if self._game_s is None else now + games * self._game_s

    def _training_left(self, part: float) -> float | None:
        """Return the seconds of training left, including evaluations between steps.

        Uses the pace of the steps that this process has taken.
        """
        if self._training_started is None or not self._steps_seen:
            return None
        done = self._steps_seen + part
        left = max(0.0, self._amounts.steps - self.step - part)
        return (time.monotonic() - self._training_started) / done * left

    def _part_share(self) -> float:
        done, total = self._part
        return min(1.0, done / total) if total > 0 else 0.0


@contextmanager
def show_engine_start(engine: str, count: int, on_progress: OnProgress) -> Iterator[None]:
    """Report every second how long the engines have been starting, until the block ends."""
    what = f"starting {pluralize(count, 'engine')} ({engine})"
    over, started = threading.Event(), time.monotonic()

    def report() -> None:
        while True:
            seconds = time.monotonic() - started
            on_progress(0, count, f"{what}, {seconds:.0f} s so far")
            if over.wait(_START_INTERVAL_S):
                return

    # Use a thread, not a task, because vLLM blocks the event loop if it starts in this process.
    reporting = threading.Thread(target=report, name="engine start", daemon=True)
    reporting.start()
    try:
        yield
    finally:
        over.set()
        reporting.join()


@asynccontextmanager
async def show_progress(
    rollouts: Rollouts, on_progress: OnProgress, total: int, note: str = ""
) -> AsyncIterator[None]:
    """Report how many of `total` episodes have been played, until the block ends."""
    over = asyncio.Event()
    watcher = asyncio.create_task(_watch(over, rollouts, on_progress, total, note))
    try:
        yield
    finally:
        # Do not cancel the task, because Python 3.11 may lose a cancellation when the wait has just
        # finished.
        over.set()
        await watcher


async def _watch(
    over: asyncio.Event, rollouts: Rollouts, on_progress: OnProgress, total: int, note: str
) -> None:
    while not over.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_INTERVAL_S):
                await over.wait()
        # The collection itself raises the error.
        with suppress(WorldError):
            progress = rollouts.progress
            turns = f"{progress.turns} turns"
            on_progress(min(progress.episodes, total), total, f"{note}: {turns}" if note else turns)
