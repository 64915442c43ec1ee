"""Entry point of a training run: warm start, evaluation, reinforcement learning, evaluation."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl import replay
from agentrl.cluster import ray_cluster
from agentrl.cluster.reservation import Reservation
from agentrl.config import Config, ModelConfig
from agentrl.errors import ConfigError, with_short_mistakes
from agentrl.files import StrPath
from agentrl.policies.chat.template_comparison import check_template
from agentrl.policies.models.model_source import is_on_hub, resolve_model
from agentrl.policies.open_model import open_encoder
from agentrl.replay.pruning import BackgroundPruner
from agentrl.replay.recorder import Recorder
from agentrl.rollout.nodes.job_files import JobFiles, user_files
from agentrl.rollout.play_plan import baseline_players, plan_play
from agentrl.rollout.workers.open_rollouts import open_rollouts, reserve
from agentrl.runs.run_folder import RunFolder
from agentrl.runs.run_state import RunState
from agentrl.training.job import Job, run_job
from agentrl.training.monitoring.progress import PlannedWork
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.monitoring.run_progress import RunProgress
from agentrl.training.plan.disk_space import DiskPlan
from agentrl.training.plan.host_memory_plan import (
    HostMemoryPlanner,
    check_host_memory,
    phones_per_node,
)
from agentrl.training.plan.job_plan import JobPlan, plan_training
from agentrl.training.plan.job_size import JobSize
from agentrl.training.stop_signals import acknowledge_stop_signals
from agentrl.weight_sync import weight_files

if TYPE_CHECKING:
    from agentrl.training.trainer.trainer import Trainer

log = logging.getLogger(__name__)


@with_short_mistakes
def train(
    config: Config | StrPath,
    *,
    overrides: Sequence[str] = (),
    resume: StrPath | None = None,
    begun: Callable[[JobPlan], None] = lambda plan: None,
) -> replay.Run:
    """Run a whole training job, or resume a run.

    Args:
        config: a configuration, the path of a YAML file, or the name of a packaged one.
        overrides: `key=value` settings.
        resume: the folder of an earlier run; training continues from its last checkpoint, with
            the configuration stored there.
        begun: called with the job's plan before any work, unless the run is already finished.

    Returns:
        The run: its summary, checkpoints, episodes and model.

    Raises:
        ConfigError: the configuration names something that does not exist, or another process
            is working on this run.
        WorldError: the phones, the environment or an engine failed more often than allowed.
        LearnerError: training diverged, or ranks died more often than `run.restarts` allows.
        SystemExit: after SIGTERM or `run.stop_signal`, with status 128 + its number.
    """
    return run_job(Reinforcement, config, overrides, resume, begun)


class Reinforcement(Job[JobPlan]):
    """A job of warm start, evaluation, reinforcement learning, and evaluation."""

    command, steps_key = "agentrl train", "train.steps"

    def plan(self, *, restored: bool) -> JobPlan:
        """See `Job.plan`."""
        if (given := self.config.only_learns_from) is not None:
            command = given.replace("reward_model", "train-reward-model")
            raise ConfigError(
                f"{given}: there is such a section, but no environment (env); did you mean "
                f"agentrl {command}?"
            )
        return plan_training(self.config, warm_start_pending=not restored)

    def is_finished(self, summary: Mapping[str, Any]) -> bool:
        """See `Job.is_finished`."""
        played = {*baseline_players(plan_play(self.config)), "before", "after"}
        return played <= summary.keys() and bool(summary.get("steps", 0) >= self.config.train.steps)

    async def run(
        self, plan: JobPlan, folder: RunFolder, state: RunState, *, resumed: bool
    ) -> None:
        """See `Job.run`."""
        began = time.perf_counter()
        async with _opened_trainer(plan, folder, state) as trainer:
            trainer.restore()
            _warn_of_edits(state, user_files(plan.settings.to_dict()))
            state.add_seconds("start", time.perf_counter() - began)
            if resumed:
                # Save only now: settings that the checkpoint rejects must not be stored with the
                # run.
                folder.save_config(plan.settings.to_dict())
            await trainer.run()


@asynccontextmanager
async def _opened_trainer(
    plan: JobPlan, folder: RunFolder, state: RunState
) -> AsyncIterator["Trainer"]:
    """Open everything that training needs, and close everything in reverse order."""
    # Both import torch, which may be missing; the plan has already reported that.
    from agentrl.training.learner.learner_group import open_learner
    from agentrl.training.trainer.trainer import Trainer

    path, run = folder.path, plan.settings.run
    async with AsyncExitStack() as opened:
        stopping = opened.enter_context(acknowledge_stop_signals(run.stop_signal, run.grace_s))
        reporter = opened.enter_context(closing(_reporter(plan, path)))
        # Register this before any actor starts, so that the cluster is left last.
        opened.callback(ray_cluster.leave_cluster)
        reporter.stage("start")
        start = _start_model(plan.settings.model, plan.settings.seed, folder.start)
        size, disk = _check_disk(plan, start, path)
        plan = plan.without_long_prompts(start)
        reservation = reserve(plan.play.rollout, plan.settings.train, plan.play.devices.hosts)
        opened.callback(reservation.release)
        plan = plan.placed(reservation.layout)
        # Place the weights first: if memory has no room for them, they do not take any.
        await asyncio.to_thread(_place_weights, plan, size, reservation)
        planner = HostMemoryPlanner(
            learner=plan.learner,
            layout=plan.layout,
            size=size,
            copies_state=plan.settings.checkpoint.asynchronous,
            phones=phones_per_node(plan.play, plan.layout),
        )
        await asyncio.to_thread(check_host_memory, planner, disk, path, reservation)
        rollouts = await open_rollouts(plan.play, start, path, reservation=reservation)
        opened.push_async_callback(rollouts.close)
        with stopping.interrupting():
            files = JobFiles(plan.settings, reservation)
            learner = open_learner(plan.learner, start, reservation, files, path)
            opened.enter_context(closing(learner))
        pruner = BackgroundPruner(path, run.keep_gb, plan.play.rollout)
        recorder = opened.enter_context(closing(Recorder(path, frames="none", writer="trainer")))
        progress = RunProgress(state, reporter, rollouts)
        trainer = Trainer(
            plan, folder, start, progress, rollouts, learner, recorder, pruner, stopping
        )
        opened.push_async_callback(trainer.close)
        yield trainer
    pruner.close()  # after the last recorder has stopped


def _reporter(plan: JobPlan, folder: Path) -> Reporter:
    settings, by_state = plan.settings, plan.algorithm.compares == "states"
    # The evaluation after training is played twice: sampled and greedily.
    amounts = PlannedWork(steps=settings.train.steps, games_after=2 * settings.eval.episodes)
    return Reporter(folder, settings.logging, amounts, compares_states=by_state)


def _start_model(model: ModelConfig, seed: int, start: Path) -> Path:
    """Return the folder of the model that the job starts from.

    Raises:
        ConfigError: the model's files cannot be used.
    """
    if start.is_dir():
        return start
    start = resolve_model(model, seed, start)
    if is_on_hub(model):  # earlier checks could not read the files
        strict = model.chat in ("auto", "template")
        check_template(open_encoder(model, start), start, strict=strict)
    return start


def _check_disk(plan: JobPlan, start: Path, folder: Path) -> tuple[JobSize, DiskPlan]:
    """Compare the size of the job's files with the free disk space.

    Raises:
        ConfigError: there is too little disk space.
    """
    settings, size = plan.settings, JobSize.of(start, plan.learner)
    disk = DiskPlan.of(
        size, settings.checkpoint, settings.run, settings.train.steps,
        evaluates=bool(settings.eval.every),
    )  # fmt: skip
    disk.check(folder)
    return size, disk


def _place_weights(plan: JobPlan, size: JobSize, reservation: Reservation) -> None:
    """Find room for the weights that the learner will publish, in memory or else on disk.

    Raises:
        ConfigError: there is no room.
    """
    needs, folder = plan.play.transport.transport_class().needs, None
    if needs.memory_copies:
        copies = needs.memory_copies
        what = f"{copies} x the weights in {plan.settings.model.dtype}"
        folder = reservation.place_weights(copies * size.model, what)
    if folder is not None and needs.backend is not None:
        named = plan.settings.train.weight_transfer
        raise ConfigError(
            f"train.weight_transfer={named}: has no room in shared memory; set "
            "train.weight_transfer=file"
        )
    weight_files.use_folder(folder)


def _warn_of_edits(state: RunState, digests: Mapping[str, str]) -> None:
    """Record the user's code files, and warn about files edited since the last start."""
    for file in state.record_files(digests):
        log.warning(
            "%s was edited since this run last used it; the new version counts from step %d on "
            "(recorded in state.json)",
            file,
            state.step + 1,
        )
