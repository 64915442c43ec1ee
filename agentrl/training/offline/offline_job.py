"""The job of training on a data set: read it, train on it, and export the model."""

import asyncio
import math
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentrl.cluster import ray_cluster
from agentrl.config import Config, FinetuningConfig, algorithm_defaults
from agentrl.data.conversations import OfflineRow, ReadRow
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.models.model_source import check_policy, resolve_model
from agentrl.policies.open_model import open_encoder
from agentrl.rollout.workers.open_rollouts import reserve
from agentrl.runs.run_folder import RunFolder
from agentrl.runs.run_state import RunState
from agentrl.training.monitoring.progress import PlannedWork
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.offline.offline_dataset import (
    Encode,
    OfflineDataset,
    Rows,
    open_rows,
)
from agentrl.training.plan.disk_space import DiskPlan
from agentrl.training.plan.host_memory_plan import check_host_memory
from agentrl.training.plan.job_plan import check_learner
from agentrl.training.plan.job_size import JobSize
from agentrl.training.stop_signals import acknowledge_stop_signals


@dataclass(slots=True, kw_only=True, frozen=True)
class Examples:
    """Which rows a job learns from, and which ones it is evaluated on."""

    train: Rows
    train_indices: list[int]
    held_out: Rows
    held_out_indices: list[int]


@dataclass(slots=True, kw_only=True, frozen=True)
class OfflinePlan:
    """A job of training on a data set, checked, with its examples read."""

    settings: Config
    examples: Examples


class OfflineJob(ABC):
    """A kind of training on a data set; see `Job`."""

    command: str
    section: str
    """The section of its settings."""
    stage: str
    """Name of the training stage in logs."""
    is_reward_model = False
    """Whether a reward model is trained, and not a policy."""

    @property
    def steps_key(self) -> str:
        """See `Job`."""
        return f"{self.section}.epochs or {self.section}.steps"

    @abstractmethod
    def form(self, settings: FinetuningConfig) -> tuple[ReadRow[OfflineRow], Encode]:
        """How rows are read, and how they become token sequences."""

    def plan(self, config: Config, *, restored: bool) -> OfflinePlan:
        """See `Job.plan`."""
        check_learner(config)
        if not self.is_reward_model:
            check_policy(config.model)
        return OfflinePlan(settings=config, examples=self.open_data(config))

    def open_data(self, config: Config) -> Examples:
        """Read the examples; every row and image is checked.

        Raises:
            ConfigError: see `open_rows`; the section is missing, or nothing is left to learn from.
        """
        settings, section = self._settings(config), self.section
        read, _ = self.form(settings)
        rows = open_rows(settings.train, read, settings.on_bad, f"{section}.train")
        order = np.random.default_rng((config.seed, 1)).permutation(len(rows)).tolist()
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

    def _settings(self, config: Config) -> FinetuningConfig:
        settings: FinetuningConfig | None = getattr(config, self.section)
        if settings is None:
            raise ConfigError(
                f"{self.section}: the configuration has no such section; set "
                f"{self.section}.train.data to the data set to train on"
            )
        return settings

    def is_finished(self, config: Config, summary: Mapping[str, Any]) -> bool:
        """See `Job.is_finished`; a run that has stopped early is."""
        return summary.get("schedule") == self._schedule(self._settings(config))

    def _schedule(self, settings: FinetuningConfig) -> str:
        """The settings that decide when a run is finished."""
        names = ("epochs", "steps", "patience")
        return " ".join(f"{self.section}.{name}={getattr(settings, name)}" for name in names)

    async def run(
        self,
        plan: OfflinePlan,
        folder: RunFolder,
        state: RunState,
        *,
        resumed: bool,
    ) -> None:
        """See `Job.run`."""
        config = plan.settings
        # These import torch, which may be missing; the check has reported that by now.
        from agentrl.training.learner.learner_group import open_learner
        from agentrl.training.learner.network.logprob_model import LogprobModel
        from agentrl.training.learner.network.reward_model import RewardModel
        from agentrl.training.offline.offline_trainer import OfflineTrainer, Schedule

        settings = self._settings(config)
        async with AsyncExitStack() as opened:
            more = [signal.Signals[config.run.stop_signal]] if config.run.stop_signal else []
            stopping = opened.enter_context(
                acknowledge_stop_signals(*more, grace_s=config.run.grace_s)
            )
            started = time.perf_counter()
            start = folder.start
            if not start.is_dir():
                start = resolve_model(config.model, config.seed, folder.start)
            encoder = open_encoder(config.model, start)
            train, held_out = await asyncio.to_thread(self._encoded, plan.examples, encoder, config)
            schedule = Schedule(
                steps=settings.steps or math.ceil(settings.epochs * len(train) / settings.batch),
                batch=settings.batch,
                eval_every=settings.eval_every,
                patience=settings.patience,
            )
            size = JobSize.of(start, config.model, config.optim, config.train.master_dtype)
            disk = DiskPlan.of(
                size, config.checkpoint, config.run, schedule.steps, evaluates=len(held_out) > 0
            )
            disk.check(folder.path)
            amounts = PlannedWork(steps=schedule.steps)
            reporter = opened.enter_context(closing(Reporter(folder.path, config.logging, amounts)))
            reporter.stage("start")
            opened.callback(ray_cluster.leave_cluster)
            # An algorithm of reinforcement learning might need further models.
            job = replace(config, algorithm=algorithm_defaults(), warm_start=None)
            reservation = reserve(job.rollout, job.train, plays=False)
            opened.callback(reservation.release)
            job = reservation.layout.applied_to(job)
            await asyncio.to_thread(check_host_memory, job, size, disk, folder.path, reservation)
            wrap = RewardModel if self.is_reward_model else LogprobModel
            with stopping.interrupting():
                learner = opened.enter_context(
                    closing(open_learner(job, start, reservation, folder.path, wrap))
                )
            trainer = OfflineTrainer(
                self.stage, settings, train, held_out, schedule, config.optim, folder, state,
                learner, reporter, stopping, config.checkpoint, config.train.deadline_s,
            )  # fmt: skip
            opened.push_async_callback(trainer.close)
            trainer.restore()
            state.add_seconds("start", time.perf_counter() - started)
            if resumed:
                folder.save_config(config.to_dict())
            await trainer.run({"schedule": self._schedule(settings)})

    def _encoded(
        self, examples: Examples, encoder: ChatEncoder, config: Config
    ) -> tuple[OfflineDataset, OfflineDataset]:
        """The examples to learn from and the held-out ones, without those that are too long.

        Raises:
            ConfigError: some are too long and may not be skipped, or none is left.
        """
        settings, seed = self._settings(config), config.seed
        _, encode = self.form(settings)
        train = OfflineDataset(examples.train, examples.train_indices, encoder, encode, seed)
        held_out = OfflineDataset(
            examples.held_out, examples.held_out_indices, encoder, encode, seed
        )
        for part in (train, held_out):
            part.drop_unusable(settings, self.section)
        return train, held_out
