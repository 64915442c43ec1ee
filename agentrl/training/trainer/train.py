"""Entry point of a training run: warm start, evaluation, reinforcement learning, evaluation."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

from agentrl import replay
from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.cluster import ray_cluster
from agentrl.cluster.reservation import Reservation
from agentrl.config import Config
from agentrl.errors import ConfigError, with_short_mistakes
from agentrl.files import StrPath
from agentrl.policies.chat.template_probe import check_template
from agentrl.policies.models.model_source import is_on_hub, resolve_model
from agentrl.policies.open_model import open_encoder
from agentrl.replay.pruning import BackgroundPruner
from agentrl.replay.recorder import Recorder
from agentrl.rollout.nodes.job_files import user_files
from agentrl.rollout.play_plan import baseline_players, plan_play
from agentrl.rollout.workers.open_rollouts import open_rollouts, reserve
from agentrl.training import preflight
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.disk_space import DiskPlan
from agentrl.training.host_memory_plan import check_host_memory
from agentrl.training.job import run_job
from agentrl.training.job_size import JobSize
from agentrl.training.long_prompts import skip_long_prompts
from agentrl.training.monitoring.progress import PlannedWork
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.run_folder import RunFolder, RunState
from agentrl.training.stop_signals import acknowledge_stop_signals
from agentrl.training.supervised.demonstration_filter import SelectedEpisode
from agentrl.weight_sync import weight_files
from agentrl.weight_sync.transport_choice import TransportChoice

log = logging.getLogger(__name__)


@with_short_mistakes
def train(
    config: Config | StrPath,
    *,
    overrides: Sequence[str] = (),
    resume: StrPath | None = None,
    begun: Callable[[Config], None] = lambda config: None,
) -> replay.Run:
    """Run a whole training job, or resume one.

    Args:
        config: a configuration, the path of a YAML file, or the name of a packaged one.
        overrides: `key=value` settings.
        resume: the folder of an earlier run; training continues from its last checkpoint, with
            the configuration stored there.
        begun: called with the configuration after all checks and before any work; not if the run
            is already finished.

    Returns:
        The run: its summary, checkpoints, episodes and model.

    Raises:
        ConfigError: something that the configuration names does not exist, or another process
            is working on this run.
        WorldError: the phones, the environment or an engine failed more often than allowed.
        LearnerError: training diverged, or ranks died more often than `run.restarts` allows.
        SystemExit: after SIGTERM or `run.stop_signal`, with status 128 + its number.
    """
    return run_job(Reinforcement(), config, overrides, resume, begun)


class Reinforcement:
    """Warm start, evaluation, reinforcement learning, evaluation."""

    command, steps_key = "agentrl train", "train.steps"

    def check(self, config: Config, *, restored: bool) -> Sequence[SelectedEpisode]:
        """See `Job.check`; the recorded episodes of a warm start that is still to come."""
        if (given := config.only_learns_from) is not None:
            command = given.replace("reward_model", "train-reward-model")
            raise ConfigError(
                f"{given}: there is such a section, but no environment (env); did you mean "
                f"agentrl {command}?"
            )
        return preflight.check(config, warm_start_pending=not restored).episodes

    def is_finished(self, config: Config, summary: Mapping[str, Any]) -> bool:
        """See `Job.is_finished`."""
        played = {*baseline_players(plan_play(config)), "before", "after"}
        return played <= summary.keys() and bool(summary.get("steps", 0) >= config.train.steps)

    async def run(
        self,
        config: Config,
        folder: RunFolder,
        state: RunState,
        checked: Sequence[SelectedEpisode],
        *,
        resumed: bool,
    ) -> None:
        """See `Job.run`."""
        if checkpoint_store.latest(folder.path) is not None:
            checked = ()  # the warm start is done
        await _train(config, folder, state, checked, resumed=resumed)


def _place_weights(
    choice: TransportChoice, dtype: str, size: JobSize, reservation: Reservation
) -> None:
    """Find room for the weights that the learner will publish, in memory or else on disk.

    Raises:
        ConfigError: there is none.
    """
    needs, folder = choice.transport_class().needs, None
    if needs.memory_copies:
        copies = needs.memory_copies
        what = f"{copies} x the weights in {dtype}"
        folder = reservation.place_weights(copies * size.model, what)
    if folder is not None and needs.backend is not None:
        raise ConfigError(
            f"train.weight_transfer={choice.train.weight_transfer}: has no room in shared memory; "
            "set train.weight_transfer=file"
        )
    weight_files.use_folder(folder)


def _start_model(config: Config, folder: RunFolder) -> Path:
    """The folder of the model that the job starts from.

    Raises:
        ConfigError: its files cannot be used.
    """
    start = folder.start
    if not start.is_dir():
        start = resolve_model(config.model, config.seed, folder.start)
        if is_on_hub(config.model):  # its files could not be read before
            strict = config.model.chat in ("auto", "template")
            check_template(open_encoder(config.model, start), start, strict=strict)
    return start


async def _train(
    config: Config,
    folder: RunFolder,
    state: RunState,
    demonstrations: Sequence[SelectedEpisode],
    *,
    resumed: bool,
) -> None:
    """Open everything that training needs, train, and close it in reverse order."""
    # Both import torch, which may be missing; the plan has reported that by now.
    from agentrl.training.learner.learner_group import open_learner
    from agentrl.training.trainer.trainer import Trainer

    # The evaluation after training is played twice: sampled and greedy.
    amounts = PlannedWork(steps=config.train.steps, games_after=2 * config.eval.episodes)
    async with AsyncExitStack() as opened:
        more = () if config.run.stop_signal is None else (signal.Signals[config.run.stop_signal],)
        stopping = opened.enter_context(acknowledge_stop_signals(*more, grace_s=config.run.grace_s))
        by_state = load_algorithm(config.algorithm).compares == "states"
        reporter = Reporter(folder.path, config.logging, amounts, compares_states=by_state)
        opened.enter_context(closing(reporter))
        opened.callback(ray_cluster.leave_cluster)
        started = time.perf_counter()
        reporter.stage("start")
        start = _start_model(config, folder)
        size = JobSize.of(
            start, config.model, config.optim, config.train.master_dtype, config.algorithm
        )
        disk = DiskPlan.of(
            size, config.checkpoint, config.run, config.train.steps,
            evaluates=bool(config.eval.every),
        )  # fmt: skip
        disk.check(folder.path)
        job = skip_long_prompts(config, start)
        reservation = reserve(job.rollout, job.train, job.devices.hosts)
        opened.callback(reservation.release)
        job = reservation.layout.applied_to(job)
        choice = TransportChoice(rollout=job.rollout, train=job.train, lora=job.model.lora)
        await asyncio.to_thread(_place_weights, choice, job.model.dtype, size, reservation)
        await asyncio.to_thread(check_host_memory, job, size, disk, folder.path, reservation)
        rollouts = await open_rollouts(plan_play(job), start, folder.path, reservation=reservation)
        opened.push_async_callback(rollouts.close)
        pruner = BackgroundPruner(folder.path, config.run.keep_gb, config.rollout)
        with stopping.interrupting():
            learner = opened.enter_context(
                closing(open_learner(job, start, reservation, folder.path))
            )
        recorder = opened.enter_context(
            closing(Recorder(folder.path, frames="none", writer="trainer"))
        )
        trainer = Trainer(
            job, folder, start, state, rollouts, learner, reporter, recorder, pruner, stopping
        )
        trainer.restore()
        for file in state.record_files(user_files(config.to_dict())):
            log.warning(
                "%s was edited since this run last used it; the new version counts from step %d on "
                "(recorded in state.json)",
                file,
                state.step + 1,
            )
        state.add_seconds("start", time.perf_counter() - started)
        opened.push_async_callback(trainer.close)
        if resumed:
            # Only now: settings that the checkpoint rejects must not be stored with the run.
            folder.save_config(config)
        await trainer.run(demonstrations)
    pruner.close()  # after the last recorder has stopped
