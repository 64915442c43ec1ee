"""What all training jobs have in common: folder, lock, resuming and restarting."""

import logging
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from agentrl import config as configuration
from agentrl import event_loop, replay
from agentrl.config import Config, ModelConfig
from agentrl.errors import AgentRLError, ClusterError, ConfigError, LearnerLost
from agentrl.files import StrPath, lock_folder, remove_partial_files
from agentrl.policies.models.model_source import model_origin
from agentrl.runs.job_failure import may_pass, recorded_failure
from agentrl.runs.resume_state import ResumeState
from agentrl.runs.run_folder import RunFolder
from agentrl.runs.run_start_records import record_start
from agentrl.text.formatting import shown_path
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.command_target import job_name
from agentrl.weight_sync import published_weights

log = logging.getLogger(__name__)

PlanT = TypeVar("PlanT")
"""Type of a job's plan: everything the job needs, resolved and checked before it starts."""


class Job(ABC, Generic[PlanT]):
    """A kind of training job; `run_job` does the work common to all kinds."""

    command: str
    """Command that starts and resumes the job, such as `agentrl train`."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @property
    @abstractmethod
    def steps_key(self) -> str:
        """Key of the setting for the number of steps."""

    @abstractmethod
    def plan(self, *, restored: bool) -> PlanT:
        """Look up and check everything that the configuration names, before any work starts.

        Args:
            restored: True if the job continues from a checkpoint.

        Raises:
            ConfigError: something is missing or invalid; the message says what to do.
        """

    @abstractmethod
    def is_finished(self, summary: Mapping[str, Any]) -> bool:
        """Return whether a run with this `summary.json` has nothing left to do."""

    @abstractmethod
    async def run(
        self, plan: PlanT, folder: RunFolder, state: ResumeState, *, resumed: bool
    ) -> None:
        """Open everything that the job needs, train, and close everything in reverse order."""


def run_job(
    kind: type[Job[PlanT]],
    config: Config | StrPath,
    overrides: Sequence[str],
    resume: StrPath | None,
    begun: Callable[[PlanT], None],
    *,
    is_stage: bool = False,
) -> replay.Run:
    """Run a whole job, or resume a run; see `train`.

    A stage of a pipeline is resumed by the pipeline's command, which logs its own hint.
    """
    if resume is not None:
        folder = RunFolder.existing(Path(resume).absolute())
        folder.check_trains()
        folder.check_writable()
        started_by = folder.command
        if started_by not in (None, kind.command):
            raise ConfigError(
                f"{folder.path} is a run of {started_by}; resume it with {started_by} --resume "
                f"{shlex.quote(str(folder.path))}"
            )
        settings = configuration.load(folder.path / "config.yaml", overrides)
    else:
        settings = configuration.resolve(config, overrides)
    settings = configuration.with_absolute_paths(settings)
    job = kind(settings)
    if resume is None:
        RunFolder.check_new(settings.run)
        plan = job.plan(restored=False)
        folder = RunFolder.create(settings.run, job_name(config, settings))
        folder.save_config(settings.to_dict())
        folder.save_command(job.command)
        begun(plan)
    run = folder.path
    with lock_folder(run):
        if resume is not None:
            summary = folder.final_summary()
            if summary is not None and job.is_finished(summary):
                log.warning("%s is already finished; raise %s to train longer", run, job.steps_key)
                return replay.Run(run)
            latest = checkpoint_store.latest(run)
            plan = job.plan(restored=latest is not None)
            _check_model(settings.model, folder)
            if latest is not None:
                checkpoint_store.check_files(latest)
            for killed in (run, run / "episodes"):
                remove_partial_files(killed)
            begun(plan)
        published_weights.remove_stale_folders()
        command = None if is_stage else job.command
        with recorded_failure(run), _resume_hint(folder, command, resumed=resume is not None):
            record_start(run)
            restarts = settings.run.restarts
            run_with_restarts(job, plan, folder, restarts, resumed=resume is not None)
    return replay.Run(run)


def run_with_restarts(
    job: Job[PlanT], plan: PlanT, folder: RunFolder, restarts: int, *, resumed: bool
) -> None:
    """Run a job; if a rank is lost, close everything and resume from the last checkpoint.

    Raises:
        LearnerLost: ranks were lost more often than `run.restarts`, or twice after the same step.
        ClusterError: Ray did not start, or failed as often as described for `LearnerLost`.
    """
    failed_after = None
    for left in reversed(range(restarts + 1)):
        state = folder.load_state()
        before = state.seconds.get("start")
        try:
            event_loop.run(job.run(plan, folder, state, resumed=resumed))
        except (LearnerLost, ClusterError) as error:
            never_began = failed_after is None and state.seconds.get("start") == before
            if not left or never_began or state.step == failed_after:
                raise
            failed_after = state.step
            _record_restart(folder, failed_after, error)
        else:
            return
        resumed = True


def _record_restart(folder: RunFolder, step: int, error: AgentRLError) -> None:
    """Report a restart, and add it to the run's state.

    Args:
        folder: the run's folder.
        step: the last finished step.
        error: the reason.
    """
    latest = checkpoint_store.latest(folder.path)
    saved = 0 if latest is None else checkpoint_store.step_of(latest)
    repeated = f"; steps {saved + 1} to {step} are repeated" if step > saved else ""
    log.warning("%s", error)
    log.warning(
        "restarting automatically (run.restarts): %s%s", _progress_saved(folder.path), repeated
    )
    state = folder.load_state()
    state.restarts.append(
        {"time": time.time(), "step": step, "resumed_from": saved, "error": str(error)}
    )
    folder.save_state(state)


@contextmanager
def _resume_hint(folder: RunFolder, command: str | None, *, resumed: bool) -> Iterator[None]:
    """Log what a failed or interrupted run has saved, and how to resume it if that helps."""
    run = folder.path
    try:
        yield
    except BaseException as error:
        if isinstance(error, ConfigError) and (resumed or checkpoint_store.latest(run) is None):
            folder.remove_if_empty()
            raise
        if not (run / "config.yaml").is_file():
            raise ConfigError(
                f"{run}: the run's folder was removed or its disk unmounted while the job was "
                "running, so the run cannot be resumed"
            ) from error
        saved = _progress_saved(run)
        name = shlex.quote(str(shown_path(run)))
        hint = "" if command is None else f"resume with: {command} --resume {name}"
        if hint and not may_pass(error):
            # If no checkpoint was saved, starting over loses nothing.
            is_saved = checkpoint_store.latest(run) is not None
            hint = f"fix the cause, then {hint}" if is_saved else "fix the cause first"
        log.warning("%s%s (logs: %s)", saved, hint and f"; {hint}", shown_path(run / "logs"))
        raise


def _check_model(model: ModelConfig, folder: RunFolder) -> None:
    """Check that a resumed run still names the model that it started from.

    Raises:
        ConfigError: the run started from a different model.
    """
    stored = configuration.load(folder.path / "config.yaml")
    own = configuration.with_absolute_paths(stored).model
    if not folder.start.is_dir() or model_origin(own) == model_origin(model):
        return
    key = "path" if own.path != model.path else "tiny"
    raise ConfigError(
        f"{folder.path} started from a different model: its model.{key} is {getattr(own, key)!r}, "
        f"not {getattr(model, key)!r}. Remove the override, or start a new run."
    )


def _progress_saved(run: Path) -> str:
    """Describe the saved progress of an interrupted run."""
    latest = checkpoint_store.latest(run)
    if latest is None:
        return "stopped before the first checkpoint, so a resumed run starts from the beginning"
    step = checkpoint_store.step_of(latest)
    return f"saved up to step {step}" if step else "saved the warm start, but no training steps yet"
