"""A job that reads a data set, trains on it, and exports the model."""

import asyncio
import math
import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentrl.cluster import ray_cluster
from agentrl.cluster.placement import Layout
from agentrl.config import Config, FinetuningConfig, algorithm_defaults
from agentrl.data.offline_rows import OfflineRow, ReadRow
from agentrl.errors import ConfigError
from agentrl.policies.models.model_source import check_policy, resolve_model
from agentrl.policies.open_encoder import open_encoder
from agentrl.rollout.nodes.job_files import JobFiles
from agentrl.rollout.workers.open_rollouts import reserve
from agentrl.runs.resume_state import ResumeState
from agentrl.runs.run_folder import RunFolder
from agentrl.training.job import Job
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.monitoring.progress import PlannedWork
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.offline.offline_dataset import (
    Encode,
    OfflineDataset,
    Rows,
    open_rows,
)
from agentrl.training.plan.disk_plan import DiskPlan
from agentrl.training.plan.host_memory_plan import HostMemoryPlanner, check_host_memory
from agentrl.training.plan.job_plan import check_learner
from agentrl.training.plan.learner_state_size import LearnerStateSize
from agentrl.training.stop_signals import Stopping, acknowledge_stop_signals

if TYPE_CHECKING:
    from agentrl.training.learner.learner_group import AnyLearner


@dataclass(slots=True, kw_only=True, frozen=True)
class Examples:
    """A job's training and evaluation rows."""

    train: Rows
    train_indices: list[int]
    held_out: Rows
    held_out_indices: list[int]


@dataclass(slots=True, kw_only=True, frozen=True)
class FinetuningPlan:
    """A checked job that trains on a data set, with the examples read."""

    source: Config
    """The configuration as the user wrote it."""
    learning: Config
    """The configuration with a default algorithm, because the configured one might need more
    models."""
    learner: LearnerSettings
    """Settings of the learner's ranks, made of `learning`."""
    settings: FinetuningConfig
    """The section of this kind of training."""
    examples: Examples

    def placed(self, layout: Layout) -> "FinetuningPlan":
        """Return the plan with the ranks of a reservation."""
        rollout, train = layout.applied_to(self.learning.rollout, self.learning.train)
        learning = replace(self.learning, rollout=rollout, train=train)
        return replace(self, learning=learning, learner=self.learner.placed(layout))


class FinetuningJob(Job[FinetuningPlan]):
    """A kind of training on a data set."""

    section: str
    """Name of the section with its settings."""
    stage: str
    """Name of the training stage in logs."""
    is_reward_model = False
    """True if a reward model is trained instead of a policy."""

    @property
    @abstractmethod
    def form(self) -> tuple[ReadRow[OfflineRow], Encode]:
        """Functions that read rows and encode them as token sequences."""

    @property
    def steps_key(self) -> str:
        """See `Job`."""
        return f"{self.section}.epochs or {self.section}.steps"

    @property
    def settings(self) -> FinetuningConfig:
        """Return the section of this kind of training.

        Raises:
            ConfigError: the configuration has no such section.
        """
        settings: FinetuningConfig | None = getattr(self.config, self.section)
        if settings is None:
            raise ConfigError(
                f"{self.section}: the configuration has no such section; set "
                f"{self.section}.train.data to the data set to train on"
            )
        return settings

    def plan(self, *, restored: bool) -> FinetuningPlan:
        """See `Job.plan`."""
        learning = replace(self.config, algorithm=algorithm_defaults(), warm_start=None)
        learner = LearnerSettings.of(learning)
        check_learner(learner, self.config.logging)
        self.config.validate_for_training()
        if not self.is_reward_model:
            check_policy(self.config.model)
        return FinetuningPlan(
            source=self.config,
            learning=learning,
            learner=learner,
            settings=self.settings,
            examples=self.open_data(),
        )

    def open_data(self) -> Examples:
        """Read the examples, checking every row and image.

        Raises:
            ConfigError: see `open_rows`; or the section is missing, or no training examples are
                left.
        """
        settings, section, (read, _) = self.settings, self.section, self.form
        rows = open_rows(settings.train, read, settings.on_bad, f"{section}.train")
        order = np.random.default_rng((self.config.seed, 1)).permutation(len(rows)).tolist()
        kept = math.ceil(settings.hold_out * len(rows))
        if kept >= len(rows):
            raise ConfigError(
                f"{section}.hold_out={settings.hold_out}: leaves none of the {len(rows)} examples "
                "for training"
            )
        if settings.eval is None:
            held_out, indices = rows, sorted(order[:kept])
        else:
            held_out = open_rows(settings.eval, read, settings.on_bad, f"{section}.eval")
            indices = [*range(len(held_out))]
        return Examples(
            train=rows, train_indices=order[kept:], held_out=held_out, held_out_indices=indices
        )

    def is_finished(self, summary: Mapping[str, Any]) -> bool:
        """See `Job.is_finished`; a run that stopped early is finished."""
        return summary.get("schedule") == self._schedule(self.settings)

    def _schedule(self, settings: FinetuningConfig) -> str:
        """Return the settings that determine when a run is finished."""
        names = ("epochs", "steps", "patience")
        return " ".join(f"{self.section}.{name}={getattr(settings, name)}" for name in names)

    async def run(
        self, plan: FinetuningPlan, folder: RunFolder, state: ResumeState, *, resumed: bool
    ) -> None:
        """See `Job.run`."""
        # Import torch only here; if it is missing, the plan has already reported that.
        from agentrl.training.offline.offline_trainer import LearningRates, OfflineTrainer

        written, settings, started = plan.source, plan.settings, time.perf_counter()
        async with AsyncExitStack() as opened:
            stopping = opened.enter_context(
                acknowledge_stop_signals(written.run.stop_signal, written.run.grace_s)
            )
            start = folder.start
            if not start.is_dir():
                start = resolve_model(written.model, written.seed, folder.start)
            train, held_out = await asyncio.to_thread(self._encoded, plan, start)
            steps = settings.steps or math.ceil(settings.epochs * len(train) / settings.batch)
            size = LearnerStateSize.of(start, plan.learner)
            disk = DiskPlan.of(
                size, written.checkpoint, written.run, steps, evaluates=len(held_out) > 0
            )
            disk.check(folder.path)
            amounts = PlannedWork(steps=steps)
            reporter = opened.enter_context(
                closing(Reporter(folder.path, written.logging, amounts))
            )
            reporter.stage("start")
            opened.callback(ray_cluster.leave_cluster)
            learner = await self._open_learner(plan, start, size, disk, folder, stopping, opened)
            trainer = OfflineTrainer(
                self.stage, settings, train, held_out,
                LearningRates(optim=written.optim, steps=steps), folder, state, learner, reporter,
                stopping, written.checkpoint, written.train.deadline_s,
            )  # fmt: skip
            opened.push_async_callback(trainer.close)
            trainer.restore()
            state.add_seconds("start", time.perf_counter() - started)
            if resumed:
                folder.save_config(written.to_dict())
            await trainer.run({"schedule": self._schedule(settings)})

    async def _open_learner(
        self,
        plan: FinetuningPlan,
        start: Path,
        size: LearnerStateSize,
        disk: DiskPlan,
        folder: RunFolder,
        stopping: Stopping,
        opened: AsyncExitStack,
    ) -> "AnyLearner":
        """Reserve GPUs, check their nodes' memory, and start the ranks there."""
        from agentrl.training.learner.learner_group import open_learner
        from agentrl.training.learner.network.logprob_model import LogprobModel
        from agentrl.training.learner.network.reward_model import RewardModel

        reservation = reserve(plan.source.rollout, plan.source.train, plays=False)
        opened.callback(reservation.release)
        plan = plan.placed(reservation.layout)
        planner = HostMemoryPlanner(
            learner=plan.learner,
            layout=reservation.layout,
            size=size,
            copies_state=plan.source.checkpoint.asynchronous,
        )
        await asyncio.to_thread(check_host_memory, planner, disk, folder.path, reservation)
        wrap = RewardModel if self.is_reward_model else LogprobModel
        with stopping.interrupting():
            files = JobFiles(plan.learning, reservation)
            learner = open_learner(plan.learner, start, reservation, files, folder.path, wrap)
            return opened.enter_context(closing(learner))

    def _encoded(self, plan: FinetuningPlan, start: Path) -> tuple[OfflineDataset, OfflineDataset]:
        """Return the training and the held-out examples, without unusable ones.

        Raises:
            ConfigError: see `OfflineDataset.drop_unusable`.
        """
        examples, seed, (_, encode) = plan.examples, plan.source.seed, self.form
        encoder = open_encoder(plan.source.model, start)
        train = OfflineDataset(examples.train, examples.train_indices, encoder, encode, seed)
        held_out = OfflineDataset(
            examples.held_out, examples.held_out_indices, encoder, encode, seed
        )
        for part in (train, held_out):
            part.drop_unusable(plan.settings, self.section)
        return train, held_out
