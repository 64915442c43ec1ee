"""Saves a run's checkpoints, optionally while training continues."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from agentrl.config import CheckpointConfig
from agentrl.errors import LearnerLost
from agentrl.training.checkpoints import checkpoint_store

log = logging.getLogger(__name__)

_POLL_S = 0.05


class SavedLearner(checkpoint_store.Restorable, Protocol):
    """The part of the learner that saving checkpoints needs."""

    def begin_save_state(self, folder: Path) -> None:
        """Copy the state and begin to write it."""

    def is_state_saved(self) -> bool:
        """Whether the state is on disk."""


class CheckpointWriter:
    """Saves checkpoints one at a time; a checkpoint is used only once it is completely on disk."""

    def __init__(
        self, run: Path, learner: SavedLearner, settings: CheckpointConfig, deadline_s: float
    ) -> None:
        self._run, self._learner = run, learner
        self._settings, self._deadline_s = settings, deadline_s
        self._writing: asyncio.Task[None] | None = None

    async def save(self, step: int, trainer: Mapping[str, Any], *, best: bool = False) -> None:
        """Save a checkpoint, or copy its state and write it in the background.

        If this step already has a checkpoint, only the training loop's state is updated.

        Args:
            step: number of finished training steps.
            trainer: state of the training loop, JSON values.
            best: whether this is the best checkpoint so far.

        Raises:
            OSError: this or the previous checkpoint cannot be written.
            LearnerError: the learner failed.
        """
        # Write one checkpoint at a time, because two copies of the state might not fit into memory.
        await self.wait()
        latest = checkpoint_store.latest(self._run)
        if latest is not None and checkpoint_store.step_of(latest) == step:
            checkpoint_store.complete(latest, trainer, keep=self._settings.keep, best=best)
            return
        copied = asyncio.Event()
        self._writing = asyncio.create_task(self._write(step, dict(trainer), best, copied))
        await copied.wait()
        if not self._settings.asynchronous or self._writing.done():
            await self.wait()

    async def _write(
        self, step: int, trainer: Mapping[str, Any], best: bool, copied: asyncio.Event
    ) -> None:
        folder = checkpoint_store.begin(self._run, step)
        state = checkpoint_store.learner_state_of(folder)
        try:
            with checkpoint_store.removed_if_failed(folder):
                if self._settings.asynchronous:
                    await asyncio.to_thread(self._learner.begin_save_state, state)
                    copied.set()
                    await self._wait_until_saved(folder)
                else:
                    await asyncio.to_thread(self._learner.save_state, state)
                await asyncio.to_thread(
                    checkpoint_store.complete, folder, trainer, keep=self._settings.keep, best=best
                )
        # Set this even after an error, which `wait` raises.
        finally:
            copied.set()

    async def _wait_until_saved(self, folder: Path) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                while not await asyncio.to_thread(self._learner.is_state_saved):
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise LearnerLost(
                f"{folder} was not written within train.deadline_s={self._deadline_s:g} s"
            ) from None

    async def check(self) -> None:
        """Raise the error of a background write that has failed.

        Raises:
            OSError: the checkpoint cannot be written.
            LearnerError: the learner failed.
        """
        if self._writing is not None and self._writing.done():
            await self.wait()

    async def wait(self) -> None:
        """Wait until the checkpoint being written is complete.

        Raises:
            OSError: the checkpoint cannot be written.
            LearnerError: the learner failed.
        """
        if self._writing is None:
            return
        # Unlike a plain `await`, this does not cancel the write if this call is cancelled.
        await asyncio.wait({self._writing})
        writing, self._writing = self._writing, None
        await writing

    async def close(self) -> None:
        """Cancel the checkpoint being written; may be called twice."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.cancel()
            await asyncio.wait({writing})
            if not writing.cancelled() and (error := writing.exception()) is not None:
                log.warning("the last checkpoint could not be written: %s", error)
