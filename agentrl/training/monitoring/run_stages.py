"""Shows and times a run's stages, and counts their void episodes."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.runs.resume_state import ResumeState
from agentrl.training.monitoring.progress import show_progress
from agentrl.training.monitoring.reporter import Reporter


class RunStages:
    """Shows a run's progress, and records it in the run's state.

    Args:
        state: receives the seconds of each stage and the number of void episodes by cause.
        reporter: shows progress and writes metrics.
        rollouts: play the episodes.
    """

    def __init__(self, state: ResumeState, reporter: Reporter, rollouts: Rollouts) -> None:
        self.state, self.reporter, self._rollouts = state, reporter, rollouts

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Report a stage, and add its seconds under the name before a comma."""
        self.reporter.stage(name)
        with self.state.timing(name.split(",")[0]):
            yield

    @asynccontextmanager
    async def watched(self, total: int, note: str = "") -> AsyncIterator[None]:
        """Show the progress of a collection, then count its void episodes by cause."""
        async with show_progress(self._rollouts, self.reporter.progress, total, note):
            yield
        for cause, count in self._rollouts.progress.void.items():
            self.state.void[cause] = self.state.void.get(cause, 0) + count
