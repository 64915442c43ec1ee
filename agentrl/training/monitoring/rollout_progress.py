"""Report the progress of a running collection of episodes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from agentrl.errors import WorldError
from agentrl.rollout.rollout_group import AnyRollouts

POLL_INTERVAL_S = 0.5

OnProgress = Callable[[float, float, str], None]
"""Takes the amount done, the total and a note."""


@asynccontextmanager
async def show_progress(
    rollouts: AnyRollouts, on_progress: OnProgress, total: int, note: str
) -> AsyncIterator[None]:
    """Report how many of `total` episodes have been played, until the block ends."""
    over = asyncio.Event()
    watcher = asyncio.create_task(_watch(over, rollouts, on_progress, total, note))
    try:
        yield
    finally:
        # Not cancelled: Python 3.11 may lose a cancellation when the wait has just finished.
        over.set()
        await watcher


async def _watch(
    over: asyncio.Event, rollouts: AnyRollouts, on_progress: OnProgress, total: int, note: str
) -> None:
    while not over.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_INTERVAL_S):
                await over.wait()
        with suppress(WorldError):  # the collection itself raises it
            progress = await rollouts.get_progress()
            on_progress(min(progress.episodes, total), total, f"{note}: {progress.turns} turns")
