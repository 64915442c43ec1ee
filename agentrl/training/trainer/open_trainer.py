"""Open everything that a training run needs: model, cluster, rollouts, learner and trainer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

from agentrl.cluster import ray_cluster
from agentrl.cluster.reservation import Reservation
from agentrl.config import ModelConfig
from agentrl.errors import ConfigError
from agentrl.policies.chat.template_comparison import check_template
from agentrl.policies.models.model_source import is_on_hub, resolve_model
from agentrl.policies.open_encoder import open_encoder
from agentrl.replay.pruning import BackgroundPruner
from agentrl.replay.recorder import Recorder
from agentrl.rollout.nodes.job_files import JobFiles
from agentrl.rollout.workers.open_rollouts import open_rollouts, reserve
from agentrl.runs.resume_state import ResumeState
from agentrl.runs.run_folder import RunFolder
from agentrl.training.learner.learner_group import open_learner
from agentrl.training.monitoring.progress import PlannedWork
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.monitoring.run_stages import RunStages
from agentrl.training.plan.disk_plan import DiskPlan
from agentrl.training.plan.first_prompts import check_first_prompts
from agentrl.training.plan.host_memory_plan import (
    HostMemoryPlanner,
    check_host_memory,
    phones_per_node,
)
from agentrl.training.plan.job_plan import JobPlan
from agentrl.training.plan.learner_state_size import LearnerStateSize
from agentrl.training.stop_signals import acknowledge_stop_signals
from agentrl.training.teacher import open_teacher
from agentrl.training.trainer.trainer import Trainer
from agentrl.weight_sync import published_weights


@asynccontextmanager
async def open_trainer(
    plan: JobPlan, folder: RunFolder, state: ResumeState
) -> AsyncIterator[Trainer]:
    """Open everything that training needs, and close everything in reverse order."""
    path, run = folder.path, plan.settings.run
    async with AsyncExitStack() as opened:
        stopping = opened.enter_context(acknowledge_stop_signals(run.stop_signal, run.grace_s))
        reporter = opened.enter_context(closing(_reporter(plan, path)))
        # Register this before any actor starts, so that the cluster is left last.
        opened.callback(ray_cluster.leave_cluster)
        reporter.stage("start")
        start = _start_model(plan.settings.model, plan.settings.seed, folder.start)
        teacher = None
        if (named := plan.learner.algorithm.requires.teacher) is not None:
            teacher = open_teacher(named, plan.settings.model, start, folder.teacher)
        size, disk = _check_disk(plan, start, teacher, path)
        plan = plan.without_long_prompts(start)
        settings = plan.settings
        reservation = reserve(settings.rollout, settings.train, settings.devices.hosts)
        opened.callback(reservation.release)
        plan = plan.placed(reservation.layout)
        # Place the weights first, because they take host memory only if it has room for them.
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
        # Otherwise the model's first evaluation would fail, after the warm start.
        if not state.warm:
            await check_first_prompts(rollouts, plan.play)
        with stopping.interrupting():
            files = JobFiles(plan.settings, reservation)
            learner = open_learner(plan.learner, start, reservation, files, path, teacher=teacher)
            opened.enter_context(closing(learner))
        pruner = BackgroundPruner(path, run.keep_gb, plan.settings.rollout)
        recorder = opened.enter_context(closing(Recorder(path, frames="none", writer="trainer")))
        progress = RunStages(state, reporter, rollouts)
        trainer = Trainer(
            plan, folder, start, progress, rollouts, learner, recorder, pruner, stopping
        )
        opened.push_async_callback(trainer.close)
        yield trainer
    pruner.close()  # after the last recorder has stopped


def _reporter(plan: JobPlan, folder: Path) -> Reporter:
    settings, by_state = plan.settings, plan.learner.algorithm.compares == "states"
    # The evaluation after training is played twice: sampled and greedily.
    after = settings.eval.episodes + sum(plan.play.ring_episodes.values())
    amounts = PlannedWork(steps=settings.train.steps, games_after=2 * after)
    return Reporter(
        folder,
        settings.logging,
        amounts,
        compares_states=by_state,
        max_new_tokens=settings.rollout.max_new_tokens,
    )


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


def _check_disk(
    plan: JobPlan, start: Path, teacher: Path | None, folder: Path
) -> tuple[LearnerStateSize, DiskPlan]:
    """Compare the size of the job's files with the free disk space.

    Raises:
        ConfigError: there is too little disk space.
    """
    settings, size = plan.settings, LearnerStateSize.of(start, plan.learner, teacher)
    disk = DiskPlan.of(
        size, settings.checkpoint, settings.run, settings.train.steps,
        evaluates=bool(settings.eval.every),
    )  # fmt: skip
    disk.check(folder)
    return size, disk


def _place_weights(plan: JobPlan, size: LearnerStateSize, reservation: Reservation) -> None:
    """Find room for the weights that the learner will publish, in memory or else on disk.

    Raises:
        ConfigError: neither has room.
    """
    needs, folder = plan.play.transport.transport_class().needs, None
    if needs.memory_copies:
        copies = needs.memory_copies
        what = f"{copies} x the weights in {plan.settings.model.dtype}"
        folder = reservation.place_weights(copies * size.model, what)
    if folder is not None and needs.backend is not None:
        named = plan.settings.train.weight_transfer
        raise ConfigError(
            f"train.weight_transfer={named}: there is not enough shared memory; set "
            "train.weight_transfer=file"
        )
    published_weights.use_folder(folder)
