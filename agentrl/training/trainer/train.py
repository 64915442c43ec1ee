"""The whole job: warm start, evaluation, reinforcement, evaluation."""

import asyncio
import json
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from agentrl import config as configuration
from agentrl.cluster import ray_cluster
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.files import sweep, working_in
from agentrl.policies.models.model_source import origin_of, resolve_model
from agentrl.replay.recorder import Recorder
from agentrl.rollout.env_arguments import baselines
from agentrl.rollout.rollout_group import open_rollouts
from agentrl.training import plan
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.monitoring.eta import Amounts
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.run_folder import RunFolder
from agentrl.training.supervised.demonstration_filter import Chosen
from agentrl.training.trainer.retention import Retention

if TYPE_CHECKING:
    from agentrl.training.trainer.trainer import Job

log = logging.getLogger(__name__)


def train(
    config: Config | str | Path,
    *,
    overrides: Sequence[str] = (),
    resume: str | Path | None = None,
    begun: Callable[[Config], None] | None = None,
) -> Path:
    """Run a whole job, or go on with one.

    Args:
        config: a configuration, or its file or packaged name.
        overrides: `key=value` settings.
        resume: the folder of an earlier run, which is continued exactly where its last
            checkpoint stands; its own configuration is taken.
        begun: told of a new job once nothing is wrong with it and before any work.

    Returns:
        The run's folder.

    Raises:
        ConfigError: something that the configuration names does not exist; another process
            works on the run.
        WorldError: the phones, the environment or an engine failed beyond the bounds.
    """
    if resume is not None:
        folder = RunFolder.existing(Path(resume))
        settings = configuration.load(folder.path / "config.yaml", overrides)
    else:
        settings = configuration.resolve(config, overrides)
        taught = plan.check(settings, teaches=True)
        name = "run" if isinstance(config, Config) else Path(config).stem
        folder = RunFolder.create(settings, name)
        if begun is not None:
            begun(settings)
    run = folder.path
    with working_in(run):
        if resume is not None:
            if _is_finished(settings, folder):
                log.warning("%s is already finished; raise train.steps to go on", run)
                return run
            taught = plan.check(settings, teaches=checkpoint_store.latest(run) is None)
            _check_model(settings, folder)
            for killed in (run, run / "episodes"):
                sweep(killed)
        try:
            asyncio.run(_train(settings, folder, taught.episodes, resumed=resume is not None))
        except BaseException as error:
            refused = resume is not None or checkpoint_store.latest(run) is None
            if isinstance(error, ConfigError) and refused:
                raise  # as it stands, it cannot be gone on with
            log.warning(
                "%s; go on with: agentrl train --resume %s%s",
                _kept(run),
                run,
                f" (engines and phones spoke in {run / 'logs'})" if (run / "logs").is_dir() else "",
            )
            raise
    return run


def _check_model(config: Config, folder: RunFolder) -> None:
    """See whether a resumed run is to have the model that it began with: that one stays.

    Raises:
        ConfigError: it is to have another.
    """
    own = configuration.load(folder.path / "config.yaml").model
    if not folder.start.is_dir() or origin_of(own) == origin_of(config.model):
        return
    key = "path" if own.path != config.model.path else "tiny"
    raise ConfigError(
        f"{folder.path} began with another model: its model.{key} is {getattr(own, key)!r}, here "
        f"it is {getattr(config.model, key)!r}. Leave it out, or train anew."
    )


def _is_finished(config: Config, folder: RunFolder) -> bool:
    """Whether a resumed run has nothing left to do."""
    file = folder.path / "summary.json"
    if not (file.is_file() and folder.model.is_dir()):
        return False
    try:
        summary = json.loads(file.read_text())
    except (OSError, ValueError):
        summary = None
    if not isinstance(summary, dict):
        log.warning("%s: cannot be read, and is written anew", file)
        return False
    played = {*baselines(config), "before", "after"} <= summary.keys()
    return played and bool(summary.get("steps", 0) >= config.train.steps)


def _kept(run: Path) -> str:
    """What of a run that ended early is not done again."""
    latest = checkpoint_store.latest(run)
    if latest is None:
        return "kept: no step yet"
    step = checkpoint_store.step_of(latest)
    return f"kept up to step {step}" if step else "kept: the warm start, no step yet"


async def _train(
    config: Config, folder: RunFolder, taught: Sequence[Chosen], *, resumed: bool
) -> None:
    with _telling_interrupts():
        await _all_stages(config, folder, taught, resumed=resumed)


@contextmanager
def _telling_interrupts() -> Iterator[None]:
    """Say at once that Ctrl-C was heard: games and updates under way take a while to end."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    told = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if not told:
            told = True
            log.warning("interrupted: stopping, which may take a while")
        usual(number, frame)

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


async def _all_stages(
    config: Config, folder: RunFolder, taught: Sequence[Chosen], *, resumed: bool
) -> None:
    async with _open_job(config, folder) as job:
        if resumed:
            # Not before: settings that its checkpoint refuses must not become the run's own.
            folder.save_config(config)
        await job.play_baselines()
        await job.warm_up(taught)
        await job.evaluate_both("before")
        while job.state.step < config.train.steps:
            await job.step(job.state.step + 1)
        await job.evaluate_both("after")
        job.finish()


@asynccontextmanager
async def _open_job(config: Config, folder: RunFolder) -> AsyncIterator["Job"]:
    """Everything that a job owns, closed in the reverse order however it ends."""
    # Both take torch, which may be missing: the plan has told of it by now.
    from agentrl.training.learner.learner_group import open_learner
    from agentrl.training.trainer.trainer import Job

    state = folder.load_state()
    # After training everything is played twice: sampled, and greedy.
    amounts = Amounts(steps=config.train.steps, games_after=2 * config.eval.episodes)
    reporter = Reporter(folder.path, config.logging, amounts)
    started = time.perf_counter()
    try:
        reporter.stage("start")
        start = folder.start
        if not start.is_dir():
            start = resolve_model(config.model, config.seed, folder.start)
        rollouts = await open_rollouts(config, start, folder.path)
        retention = Retention(folder.path, config)
        try:
            learner = open_learner(config, start, folder.path)
            recorder = Recorder(folder.path, frames="none", writer="trainer")
            try:
                job = Job(
                    config, folder, start, state, rollouts, learner, reporter, recorder, retention
                )
                job.restore()
                job.spend("start", time.perf_counter() - started)
                try:
                    yield job
                finally:
                    await job.close()
            finally:
                recorder.close()
                learner.close()
        finally:
            await rollouts.close()
        retention.close()  # where nobody can be recording any more
    finally:
        ray_cluster.leave_cluster()
        reporter.close()
