"""Entry point of a training run: warm start, evaluation, reinforcement learning, evaluation."""

import asyncio
import json
import logging
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path

from agentrl import config as configuration
from agentrl import event_loop, replay
from agentrl.cluster import ray_cluster
from agentrl.cluster.reservation import Reservation
from agentrl.config import Config, ModelConfig
from agentrl.errors import AgentRLError, ClusterError, ConfigError, LearnerLost
from agentrl.files import lock_folder, remove_partial_files
from agentrl.policies.chat.template_probe import check_template
from agentrl.policies.models.model_source import is_on_hub, model_origin, resolve_model
from agentrl.policies.open_model import open_encoder
from agentrl.replay.pruning import BackgroundPruner
from agentrl.replay.recorder import Recorder
from agentrl.rollout.make_env import baseline_players
from agentrl.rollout.nodes.job_files import user_files
from agentrl.rollout.workers.open_rollouts import open_rollouts, reserve
from agentrl.training import preflight
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.long_prompts import skip_long_prompts
from agentrl.training.monitoring.progress import PlannedWork
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.run_folder import RunFolder, RunState
from agentrl.training.stop_signals import acknowledge_stop_signals
from agentrl.training.supervised.demonstration_filter import SelectedEpisode
from agentrl.weight_sync import weight_files
from agentrl.weight_sync.transport_choice import TransportChoice

log = logging.getLogger(__name__)


def train(
    config: Config | str | Path,
    *,
    overrides: Sequence[str] = (),
    resume: str | Path | None = None,
    begun: Callable[[Config], None] | None = None,
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
    if resume is not None:
        folder = RunFolder.existing(Path(resume))
        folder.check_writable()
        settings = configuration.load(folder.path / "config.yaml", overrides)
    else:
        settings = configuration.resolve(config, overrides)
        demonstrations = preflight.check(settings, warm_start_pending=True)
        name = "run" if isinstance(config, Config) else Path(config).stem
        folder = RunFolder.create(settings.run, name)
        folder.save_config(settings)
        if begun is not None:
            begun(settings)
    run = folder.path
    with lock_folder(run):
        if resume is not None:
            baselines = baseline_players(settings.env, settings.eval)
            if _is_finished(folder, baselines, settings.train.steps):
                log.warning("%s is already finished; raise train.steps to train longer", run)
                return replay.open(run)
            latest = checkpoint_store.latest(run)
            demonstrations = preflight.check(settings, warm_start_pending=latest is None)
            _check_model(settings.model, folder)
            if latest is not None:
                checkpoint_store.check_files(latest)
            for killed in (run, run / "episodes"):
                remove_partial_files(killed)
            if begun is not None:
                begun(settings)
        with _resume_hint(folder, resumed=resume is not None):
            _train_with_restarts(
                settings, folder, demonstrations.episodes, resumed=resume is not None
            )
    return replay.open(run)


def _train_with_restarts(
    config: Config, folder: RunFolder, demonstrations: Sequence[SelectedEpisode], *, resumed: bool
) -> None:
    """Train; after the loss of a rank, close everything and resume from the last checkpoint.

    Raises:
        LearnerLost: more often than `run.restarts`, or twice after the same step.
        ClusterError: Ray did not start, or see `LearnerLost`.
    """
    failed_after = None
    for left in reversed(range(config.run.restarts + 1)):
        state = folder.load_state()
        before = state.seconds.get("start")
        try:
            event_loop.run(_train(config, folder, state, demonstrations, resumed=resumed))
        except (LearnerLost, ClusterError) as error:
            never_began = failed_after is None and state.seconds.get("start") == before
            if not left or never_began or state.step == failed_after:
                raise
            failed_after = state.step
            latest = _record_restart(folder, failed_after, error)
        else:
            return
        if latest is not None:  # the warm start is done
            demonstrations = ()
        resumed = True


def _record_restart(folder: RunFolder, step: int, error: AgentRLError) -> Path | None:
    """Report a restart, and add it to the state of the run.

    Args:
        folder: the run's folder.
        step: the last finished step.
        error: the reason.

    Returns:
        The checkpoint that training continues from; None starts from the beginning.
    """
    latest = checkpoint_store.latest(folder.path)
    saved = 0 if latest is None else checkpoint_store.step_of(latest)
    repeated = f"; steps {saved + 1} to {step} are repeated" if step > saved else ""
    log.warning("%s", error)
    log.warning("restarting by itself (run.restarts): %s%s", _progress_saved(folder.path), repeated)
    state = folder.load_state()
    state.restarts.append(
        {"time": time.time(), "step": step, "resumed_from": saved, "error": str(error)}
    )
    folder.save_state(state)
    return latest


@contextmanager
def _resume_hint(folder: RunFolder, *, resumed: bool) -> Iterator[None]:
    """Log how to resume a run that fails or is interrupted, unless that would fail again."""
    run = folder.path
    try:
        yield
    except BaseException as error:
        if isinstance(error, ConfigError) and (resumed or checkpoint_store.latest(run) is None):
            folder.remove_if_empty()
            raise
        logs = f" (logs of engines and phones: {run / 'logs'})" if (run / "logs").is_dir() else ""
        log.warning("%s; resume with: agentrl train --resume %s%s", _progress_saved(run), run, logs)
        raise


def _check_model(model: ModelConfig, folder: RunFolder) -> None:
    """Check that a resumed run still names the model that it started from.

    Raises:
        ConfigError: it names another one.
    """
    own = configuration.load(folder.path / "config.yaml").model
    if not folder.start.is_dir() or model_origin(own) == model_origin(model):
        return
    key = "path" if own.path != model.path else "tiny"
    raise ConfigError(
        f"{folder.path} started from another model: its model.{key} is {getattr(own, key)!r}, not "
        f"{getattr(model, key)!r}. Leave the setting out, or start a new run."
    )


def _is_finished(folder: RunFolder, baselines: Iterable[str], steps: int) -> bool:
    """Whether a resumed run has nothing left to do."""
    file = folder.path / "summary.json"
    if not (file.is_file() and folder.model.is_dir()):
        return False
    try:
        summary = json.loads(file.read_text())
    except (OSError, ValueError):
        summary = None
    if not isinstance(summary, dict):
        log.warning("%s: cannot be read; it will be rewritten", file)
        return False
    played = {*baselines, "before", "after"} <= summary.keys()
    return played and bool(summary.get("steps", 0) >= steps)


def _progress_saved(run: Path) -> str:
    """What an interrupted run does not have to repeat."""
    latest = checkpoint_store.latest(run)
    if latest is None:
        return "stopped before the first checkpoint: a resumed run starts from the beginning"
    step = checkpoint_store.step_of(latest)
    return f"saved up to step {step}" if step else "saved the warm start, no training step yet"


def _place_weights(
    choice: TransportChoice, dtype: str, start: Path, reservation: Reservation
) -> None:
    """Find room for the weights that the learner will publish, in memory or else on disk.

    Raises:
        ConfigError: there is none.
    """
    needs, folder = choice.transport_class().needs, None
    if needs.memory_copies:
        copies = needs.memory_copies
        needed = copies * weight_files.size_of(start, dtype)
        folder = reservation.place_weights(needed, f"{copies} x the weights in {dtype}")
    if folder is not None and needs.backend is not None:
        raise ConfigError(
            f"train.weight_transfer={choice.train.weight_transfer}: has no room in shared memory; "
            "set train.weight_transfer=file"
        )
    weight_files.use_folder(folder)


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
        reporter = opened.enter_context(closing(Reporter(folder.path, config.logging, amounts)))
        opened.callback(ray_cluster.leave_cluster)
        started = time.perf_counter()
        reporter.stage("start")
        start = folder.start
        if not start.is_dir():
            start = resolve_model(config.model, config.seed, folder.start)
            if is_on_hub(config.model):  # its files could not be read before
                strict = config.model.chat in ("auto", "template")
                check_template(open_encoder(config.model, start), start, strict=strict)
        job = skip_long_prompts(config, start)
        reservation = reserve(job)
        opened.callback(reservation.release)
        job = reservation.layout.applied_to(job)
        choice = TransportChoice(rollout=job.rollout, train=job.train, lora=job.model.lora)
        await asyncio.to_thread(_place_weights, choice, job.model.dtype, start, reservation)
        rollouts = await open_rollouts(job, start, folder.path, reservation=reservation)
        opened.push_async_callback(rollouts.close)
        pruner = BackgroundPruner(folder.path, config.run.keep_gb, config.rollout)
        learner = opened.enter_context(closing(open_learner(job, start, reservation, folder.path)))
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
        trainer.add_seconds("start", time.perf_counter() - started)
        opened.push_async_callback(trainer.close)
        if resumed:
            # Only now: settings that the checkpoint rejects must not be stored with the run.
            folder.save_config(config)
        await trainer.run(demonstrations)
    pruner.close()  # after the last recorder has stopped
