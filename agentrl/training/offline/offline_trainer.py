"""The loop of training on a fixed data set: steps, evaluations, checkpoints, early stopping."""

import asyncio
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from agentrl.config import CheckpointConfig, FinetuningConfig, OptimConfig
from agentrl.errors import LearnerLost
from agentrl.runs.run_folder import MODEL_STEP, SAVING, RunFolder
from agentrl.runs.run_state import RunState
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.checkpoints.checkpoint_writer import CheckpointWriter
from agentrl.training.learner.learner_group import AnyLearner
from agentrl.training.learner.optimizer import learning_rate
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.offline.offline_dataset import OfflineDataset
from agentrl.training.stop_signals import Stopping

log = logging.getLogger(__name__)

LOSS = "loss"
"""The metric that decides which model is best."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Schedule:
    """How long to train, and when to evaluate."""

    steps: int
    batch: int
    """Examples per optimizer step."""
    eval_every: int
    """Steps between evaluations; 0 evaluates before and after training only."""
    patience: int | None
    """Evaluations without a lower loss before training stops; None never stops early."""


class OfflineTrainer:
    """Trains on a data set.

    Args:
        stage: name of the training, one of `TRAINING_STAGES`.
        settings: what is trained.
        train: examples to learn from.
        held_out: examples that are only measured.
        schedule: how long.
        optim: the learning rates.
        folder: the run's folder.
        state: the progress of the run.
        learner: is trained.
        reporter: shows progress and writes metrics.
        stopping: a signal to stop, which waits for the step in progress.
        checkpoint: when checkpoints are saved.
        deadline_s: for writing one (`train.deadline_s`).
    """

    def __init__(
        self,
        stage: str,
        settings: FinetuningConfig,
        train: OfflineDataset,
        held_out: OfflineDataset,
        schedule: Schedule,
        optim: OptimConfig,
        folder: RunFolder,
        state: RunState,
        learner: AnyLearner,
        reporter: Reporter,
        stopping: Stopping,
        checkpoint: CheckpointConfig,
        deadline_s: float,
    ) -> None:
        self.state, self._training_stage = state, stage
        self._settings, self._train, self._held_out = settings, train, held_out
        self._schedule, self._optim = schedule, optim
        self._folder, self._learner, self._reporter = folder, learner, reporter
        self._stopping, self._every = stopping, checkpoint.every
        self._checkpoints = CheckpointWriter(folder.path, learner, checkpoint, deadline_s)
        self._saved_step: int | None = None

    async def close(self) -> None:
        """Give up what is being written."""
        await self._checkpoints.close()

    def restore(self) -> None:
        """Prepare the learner, and load the last checkpoint, if there is one."""
        self._learner.begin_offline(self._settings)
        latest = checkpoint_store.latest(self._folder.path)
        if latest is None:
            self.state.step, self.state.best, self.state.stale, self.state.skipped = 0, None, 0, 0
            self.state.results.clear()
        else:
            kept = checkpoint_store.load(latest, self._learner)
            self._saved_step = kept["step"]
            self.state.step, self.state.best = kept["step"], kept["best"]
            self.state.stale, self.state.skipped = kept["stale"], kept.get("skipped", 0)
        repeated = [name for name in self.state.results if not self._is_kept(name)]
        for name in repeated:
            del self.state.results[name]
        if self._folder.has_begun:
            self._reporter.rewind(self.state.step)

    def _is_kept(self, evaluation: str) -> bool:
        """Whether an evaluation was made before the checkpoint."""
        kind, _, step = evaluation.partition(" ")
        return evaluation == "before" or (kind == "step" and int(step) <= self.state.step)

    async def run(self, about: Mapping[str, Any]) -> None:
        """Train until the last step, or until the loss on held-out examples no longer falls.

        Args:
            about: is added to the summary.
        """
        try:
            is_best = await self._evaluate("before")
            if is_best and self._schedule.patience is not None:  # training may only hurt
                await self._save(best=True)
            step = self.state.step
            if step and self._evaluation_is_due and f"step {step}" not in self.state.results:
                await self._end_step()  # the run was stopped before it
            while self.state.step < self._schedule.steps and not self._is_stale:
                await self._step(self.state.step + 1)
            await self._finish(about)
        except LearnerLost:
            raise
        except BaseException:
            await self._checkpoints.wait()
            stopped = self._stopping.signal is not None and not self._stopping.is_block_incomplete
            if stopped and self._saved_step != self.state.step:
                await self._save()
                await self._checkpoints.wait()
            raise

    async def _step(self, step: int) -> None:
        await self._checkpoints.check()
        batch, steps = self._schedule.batch, self._schedule.steps
        with self._stage(self._training_stage):
            taken = step - 1 - self.state.skipped
            lr = learning_rate(self._optim, min(1.0, taken / max(1, steps - 1)), taken)
            async with self._stopping.completed_first():
                metrics = await asyncio.to_thread(self._update, step, lr)
                self.state.step = step
                self.state.skipped += int(metrics["skipped"])
                logged = {f"learner/{name}": value for name, value in metrics.items()}
                self._reporter.log(step, logged | {"epoch": step * batch / len(self._train)})
        self._reporter.progress(step, steps, "")
        await self._end_step()

    @property
    def _evaluation_is_due(self) -> bool:
        every = self._schedule.eval_every
        return bool(every) and self.state.step % every == 0

    async def _end_step(self) -> None:
        """Evaluate and save when due."""
        step, is_best = self.state.step, False
        if self._evaluation_is_due:
            is_best = await self._evaluate(f"step {step}")
        is_last = step == self._schedule.steps
        if is_best or is_last or step % self._every == 0 or self._is_stale:
            await self._save(best=is_best)

    def _update(self, step: int, lr: float) -> dict[str, float]:
        batch = self._schedule.batch
        examples = self._train.sequences((step - 1) * batch, step * batch)
        return self._learner.offline_step(examples, lr)

    async def _measure(self) -> dict[str, float]:
        """Metrics over all held-out examples."""
        sums = dict[str, float]()
        batches = self._held_out.batches(self._schedule.batch)
        while examples := await asyncio.to_thread(next, batches, None):
            async with self._stopping.completed_first():  # or a checkpoint is saved meanwhile
                found = await asyncio.to_thread(self._learner.offline_loss, examples)
            count = found.pop("count")
            for name, value in (found | {"count": 1.0}).items():
                sums[name] = sums.get(name, 0.0) + value * count
        count = sums.pop("count")
        return {name: value / max(1.0, count) for name, value in sums.items()} | {"count": count}

    @property
    def _is_stale(self) -> bool:
        patience = self._schedule.patience
        return patience is not None and self.state.stale >= patience

    async def _evaluate(self, name: str) -> bool:
        """Measure the held-out examples; whether their loss is lower than ever."""
        if not len(self._held_out) or name in self.state.results:
            return False
        with self._stage(f"evaluation {name}"):
            found = await self._measure()
        self.state.results[name] = found
        self._reporter.evaluation(self.state.step, found)
        best = self.state.best
        is_best = math.isfinite(found[LOSS]) and (best is None or found[LOSS] < best)
        if is_best:
            self.state.best = found[LOSS]
        self.state.stale = 0 if is_best else self.state.stale + 1
        self._folder.save_state(self.state)
        return is_best

    async def _finish(self, about: Mapping[str, Any]) -> None:
        """Export the final model, or the best one after an early stop, and write the summary."""
        await self._checkpoints.wait()
        stopped_at, exported = self.state.step, self.state.step
        if self._is_stale and (best := checkpoint_store.best(self._folder.path)) is not None:
            kept = checkpoint_store.load(best, self._learner)
            exported = kept["step"]
            log.warning(
                "stopped early at step %d: the loss has not fallen in %d evaluations; the model is "
                "that of step %d",
                stopped_at, self.state.stale, exported,
            )  # fmt: skip
        await self._evaluate("after")
        with self.state.timing(SAVING):
            self._learner.export(self._folder.model)
        seconds = {stage: round(spent, 1) for stage, spent in self.state.seconds.items()}
        steps = {"steps": stopped_at, MODEL_STEP: exported}
        results = self.state.results | steps | {"seconds": seconds, **about}
        self._folder.write_summary(results)
        self._folder.save_state(self.state)
        self._reporter.finish(results)

    async def _save(self, *, best: bool = False) -> None:
        self._folder.save_state(self.state)
        with self.state.timing(SAVING):
            await self._checkpoints.save(self.state.step, asdict(self.state), best=best)
        self._saved_step = self.state.step

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Report the stage and add up its seconds."""
        self._reporter.stage(name)
        with self.state.timing(name.partition(" step")[0]):
            yield
