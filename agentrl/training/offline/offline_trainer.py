"""The training loop on a fixed data set: steps, evaluations, checkpoints, early stopping."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from agentrl.config import CheckpointConfig, FinetuningConfig, OptimConfig
from agentrl.errors import LearnerLost
from agentrl.runs.resume_state import ResumeState
from agentrl.runs.run_folder import MODEL_STEP, SAVING, RunFolder
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.checkpoints.checkpoint_writer import CheckpointWriter
from agentrl.training.learner.learner_group import AnyLearner
from agentrl.training.learner.optimizer import learning_rate
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.offline.offline_dataset import OfflineDataset
from agentrl.training.stop_signals import Stopping
from agentrl.types import TokenSequence

log = logging.getLogger(__name__)

LOSS = "loss"
"""Metric that determines the best model."""

Draw = Callable[[int], Awaitable[list[TokenSequence]]]
"""Function that takes a step, from 1, and returns the examples to train on."""
Report = Callable[[int, Mapping[str, float]], None]
"""Function that takes a step and its metrics."""


@dataclass(slots=True, kw_only=True, frozen=True)
class LearningRates:
    """The learning rate of each optimizer step: linear warmup, then decay until the last step."""

    optim: OptimConfig
    steps: int
    constant_steps: int = 1
    """Number of steps before the decay begins, including warmup."""

    def after(self, taken: int) -> float:
        """Return the learning rate after this many steps, not counting skipped steps."""
        past = max(0, taken + 1 - self.constant_steps) / max(1, self.steps - self.constant_steps)
        return learning_rate(self.optim, min(1.0, past), taken)


async def train_on_examples(
    draw: Draw,
    learner: AnyLearner,
    rates: LearningRates,
    state: ResumeState,
    stopping: Stopping,
    report: Report,
    *,
    stage: Callable[[], AbstractContextManager[None]] = nullcontext,
    ends: Callable[[], Awaitable[bool]] | None = None,
) -> None:
    """Take all optimizer steps of a warm start or of a data set job.

    Args:
        draw: chooses the examples.
        learner: learner to train; it has begun offline training.
        rates: learning rates of all steps.
        state: counts steps and skipped steps.
        stopping: handles a stop signal, which waits for the step in progress.
        report: called after every step.
        stage: context that is entered for every step, to report and time it.
        ends: called after every step, for example to evaluate and save; returns True to end
            training early.
    """
    while state.step < rates.steps:
        with stage():
            step, lr = state.step + 1, rates.after(state.step - state.skipped)
            examples = await draw(step)
            async with stopping.completed_first():
                metrics = await asyncio.to_thread(learner.offline_step, examples, lr)
                state.step = step
                state.skipped += int(metrics["skipped"])
                report(step, metrics)
        if ends is not None and await ends():
            return


class OfflineTrainer:
    """Runs a whole job on a data set: trains, evaluates, saves, and exports the model.

    Args:
        stage: name of the training stage, one of `TRAINING_STAGES`.
        settings: settings of training and evaluation.
        train: examples to train on.
        held_out: examples used only for evaluation.
        rates: learning rates of all steps.
        folder: the run's folder.
        state: the progress of the run.
        learner: learner to train.
        reporter: shows progress and writes metrics.
        stopping: handles a stop signal, which waits for the step in progress.
        checkpoint: settings of checkpoints.
        deadline_s: time limit for writing a checkpoint (`train.deadline_s`).
    """

    def __init__(
        self,
        stage: str,
        settings: FinetuningConfig,
        train: OfflineDataset,
        held_out: OfflineDataset,
        rates: LearningRates,
        folder: RunFolder,
        state: ResumeState,
        learner: AnyLearner,
        reporter: Reporter,
        stopping: Stopping,
        checkpoint: CheckpointConfig,
        deadline_s: float,
    ) -> None:
        self.state, self._training_stage = state, stage
        self._settings, self._train, self._held_out = settings, train, held_out
        self._rates = rates
        self._folder, self._learner, self._reporter = folder, learner, reporter
        self._stopping, self._every = stopping, checkpoint.every
        self._checkpoints = CheckpointWriter(folder.path, learner, checkpoint, deadline_s)
        self._saved_step: int | None = None

    async def close(self) -> None:
        """Cancel the checkpoint being written."""
        await self._checkpoints.close()

    def restore(self) -> None:
        """Prepare the learner, and load the last checkpoint, if any."""
        # Create the optimizer first, because a checkpoint contains its moments.
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
        """Return whether an evaluation took place before the checkpoint."""
        kind, _, step = evaluation.partition(" ")
        return evaluation == "before" or (kind == "step" and int(step) <= self.state.step)

    async def run(self, about: Mapping[str, Any]) -> None:
        """Train until the last step, or until the loss on held-out examples stops falling.

        Args:
            about: values to add to the summary.
        """
        try:
            is_best = await self._evaluate("before")
            if is_best and self._settings.patience is not None:  # in case training makes it worse
                await self._save(best=True)
            step = self.state.step
            if step and self._evaluation_is_due and f"step {step}" not in self.state.results:
                await self._end_step()  # the run was stopped before this evaluation
            if not self._is_stale:
                await train_on_examples(
                    self._draw, self._learner, self._rates, self.state, self._stopping, self._log,
                    stage=lambda: self._stage(self._training_stage), ends=self._end_step,
                )  # fmt: skip
            await self._finish(about)
        except LearnerLost:  # lost ranks cannot save anything
            raise
        except BaseException:
            await self._checkpoints.wait()
            stopped = self._stopping.signal is not None and not self._stopping.is_block_incomplete
            if stopped and self._saved_step != self.state.step:
                await self._save()
                await self._checkpoints.wait()
            raise

    async def _draw(self, step: int) -> list[TokenSequence]:
        await self._checkpoints.check()
        batch = self._settings.batch
        return await asyncio.to_thread(self._train.sequences, (step - 1) * batch, step * batch)

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        epoch = step * self._settings.batch / len(self._train)
        learner = {f"learner/{name}": value for name, value in metrics.items()}
        self._reporter.log(step, learner | {"epoch": epoch})

    @property
    def _evaluation_is_due(self) -> bool:
        every = self._settings.eval_every
        return bool(every) and self.state.step % every == 0

    async def _end_step(self) -> bool:
        """Evaluate and save when due; return whether to stop early."""
        step, is_best = self.state.step, False
        self._reporter.progress(step, self._rates.steps, "")
        if self._evaluation_is_due:
            is_best = await self._evaluate(f"step {step}")
        is_last = step == self._rates.steps
        if is_best or is_last or step % self._every == 0 or self._is_stale:
            await self._save(best=is_best)
        return self._is_stale

    async def _measure(self) -> dict[str, float]:
        """Return the metrics over all held-out examples."""
        sums = dict[str, float]()
        batches = self._held_out.batches(self._settings.batch)
        while examples := await asyncio.to_thread(next, batches, None):
            async with self._stopping.completed_first():  # before saving a checkpoint
                found = await asyncio.to_thread(self._learner.offline_loss, examples)
            count = found.pop("count")
            for name, value in (found | {"count": 1.0}).items():
                sums[name] = sums.get(name, 0.0) + value * count
        count = sums.pop("count")
        return {name: value / max(1.0, count) for name, value in sums.items()} | {"count": count}

    @property
    def _is_stale(self) -> bool:
        patience = self._settings.patience
        return patience is not None and self.state.stale >= patience

    async def _evaluate(self, name: str) -> bool:
        """Evaluate on the held-out examples; return whether their loss is the lowest so far."""
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
        """Export the final model, or the best model after an early stop, and write the summary."""
        await self._checkpoints.wait()
        stopped_at, exported = self.state.step, self.state.step
        if self._is_stale and (best := checkpoint_store.best(self._folder.path)) is not None:
            kept = checkpoint_store.load(best, self._learner)
            exported = kept["step"]
            log.warning(
                "stopped early at step %d: the loss has not fallen in %d evaluations; exporting "
                "the model from step %d",
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
        """Report the stage and add its seconds to the state."""
        self._reporter.stage(name)
        with self.state.timing(name.partition(" step")[0]):
            yield
