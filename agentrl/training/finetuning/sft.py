"""Supervised fine-tuning on conversations."""

import asyncio
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl import replay
from agentrl.cluster import ray_cluster
from agentrl.config import Config
from agentrl.config.sft_settings import SFTConfig
from agentrl.data.conversations import ChatRows, ConversationRow
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.models.model_source import resolve_model
from agentrl.policies.open_model import open_encoder
from agentrl.rollout.workers.open_rollouts import reserve
from agentrl.training import preflight
from agentrl.training.finetuning.conversation_dataset import (
    ConversationDataset,
    open_conversations,
)
from agentrl.training.job import run_job
from agentrl.training.monitoring.progress import PlannedWork
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.run_folder import RunFolder, RunState
from agentrl.training.stop_signals import acknowledge_stop_signals


def sft(
    config: Config | str | Path,
    *,
    overrides: Sequence[str] = (),
    resume: str | Path | None = None,
    begun: Callable[[Config], None] = lambda config: None,
) -> replay.Run:
    """Fine-tune a model on conversations, or resume that; the arguments are those of `train`.

    Returns:
        The run: its summary, checkpoints and model.

    Raises:
        ConfigError: something that the configuration names does not exist, or another process
            is working on this run.
        LearnerError: training diverged, or ranks died more often than `run.restarts` allows.
        SystemExit: after SIGTERM or `run.stop_signal`, with status 128 + its number.
    """
    return run_job(SupervisedFinetuning(), config, overrides, resume, begun)


@dataclass(slots=True, kw_only=True, frozen=True)
class Conversations:
    """Which conversations a job learns from, and which ones it is evaluated on."""

    train: ChatRows[ConversationRow]
    train_indices: list[int]
    held_out: ChatRows[ConversationRow]
    held_out_indices: list[int]


def open_data(settings: SFTConfig, seed: int) -> Conversations:
    """Read the conversations; every row and image is checked.

    Raises:
        ConfigError: see `open_conversations`, or none is left to learn from.
    """
    rows = open_conversations(settings.train, settings.on_bad, "sft.train")
    order = np.random.default_rng((seed, 1)).permutation(len(rows)).tolist()
    kept = math.ceil(settings.hold_out * len(rows))
    if kept >= len(rows):
        raise ConfigError(
            f"sft.hold_out={settings.hold_out}: none of {len(rows)} conversations is left to learn "
            "from"
        )
    if settings.eval is None:
        held_out, indices = rows, sorted(order[:kept])
    else:
        held_out = open_conversations(settings.eval, settings.on_bad, "sft.eval")
        indices = [*range(len(held_out))]
    return Conversations(
        train=rows, train_indices=order[kept:], held_out=held_out, held_out_indices=indices
    )


class SupervisedFinetuning:
    """Reads the data, trains on it, and exports the model."""

    command, steps_key = "agentrl sft", "sft.epochs or sft.steps"

    def check(self, config: Config, *, restored: bool) -> Conversations:
        """See `Job.check`; the conversations."""
        if config.sft is None:
            raise ConfigError("sft: this section is missing; sft.train.data names what to learn")
        preflight.check_learner(config)
        return open_data(config.sft, config.seed)

    def is_finished(self, config: Config, summary: Mapping[str, Any]) -> bool:
        """See `Job.is_finished`; a run that has stopped early is."""
        settings = config.sft
        return settings is not None and summary.get("schedule") == _schedule(settings)

    async def run(
        self,
        config: Config,
        folder: RunFolder,
        state: RunState,
        checked: Conversations,
        *,
        resumed: bool,
    ) -> None:
        """See `Job.run`."""
        # These import torch, which may be missing; the check has reported that by now.
        from agentrl.training.finetuning.offline_trainer import OfflineTrainer, Schedule
        from agentrl.training.finetuning.reply_loss import ReplyLoss
        from agentrl.training.learner.learner_group import open_learner

        settings = config.sft
        assert settings is not None, "it was checked"
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
            train, held_out = await asyncio.to_thread(
                _encoded, checked, encoder, settings, config.seed
            )
            schedule = Schedule(
                steps=settings.steps or math.ceil(settings.epochs * len(train) / settings.batch),
                batch=settings.batch,
                eval_every=settings.eval_every,
                patience=settings.patience,
            )
            amounts = PlannedWork(steps=schedule.steps)
            reporter = opened.enter_context(closing(Reporter(folder.path, config.logging, amounts)))
            reporter.stage("start")
            opened.callback(ray_cluster.leave_cluster)
            reservation = reserve(config, plays=False)
            opened.callback(reservation.release)
            job = reservation.layout.applied_to(config)
            learner = opened.enter_context(
                closing(open_learner(job, start, reservation, folder.path))
            )
            trainer = OfflineTrainer(
                ReplyLoss(learner, train, held_out, settings.batch),
                schedule, config.optim, folder, state, learner, reporter, stopping,
                config.checkpoint, config.train.deadline_s,
            )  # fmt: skip
            opened.push_async_callback(trainer.close)
            trainer.restore()
            state.add_seconds("start", time.perf_counter() - started)
            if resumed:
                folder.save_config(config)
            await trainer.run({"schedule": _schedule(settings)})


def _schedule(settings: SFTConfig) -> str:
    """The settings that decide when a run is finished."""
    names = ("epochs", "steps", "patience")
    return " ".join(f"sft.{name}={getattr(settings, name)}" for name in names)


def _encoded(
    conversations: Conversations, encoder: ChatEncoder, settings: SFTConfig, seed: int
) -> tuple[ConversationDataset, ConversationDataset]:
    """The conversations to learn from and the held-out ones, without those that are too long.

    Raises:
        ConfigError: some are too long and may not be skipped, or none is left.
    """
    found = conversations
    train = ConversationDataset(found.train, found.train_indices, encoder, seed)
    held_out = ConversationDataset(found.held_out, found.held_out_indices, encoder, seed)
    for part in (train, held_out):
        part.drop_longer_than(settings.max_tokens, settings.on_long)
    return train, held_out
