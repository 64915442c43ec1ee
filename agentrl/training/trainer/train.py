"""Entry point of a training run: warm start, evaluation, reinforcement learning, evaluation."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentrl import replay
from agentrl.config import Config
from agentrl.errors import ConfigError, with_short_mistakes
from agentrl.files import StrPath
from agentrl.rollout.nodes.job_files import user_files
from agentrl.rollout.rollout_plan import baseline_players, plan_rollouts
from agentrl.runs.resume_state import ResumeState
from agentrl.runs.run_folder import RunFolder
from agentrl.training.job import Job, run_job
from agentrl.training.plan.job_plan import JobPlan, plan_training

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
                f"the configuration has a section {given}, but no environment (env); did you mean "
                f"agentrl {command}?"
            )
        return plan_training(self.config, warm_start_pending=not restored)

    def is_finished(self, summary: Mapping[str, Any]) -> bool:
        """See `Job.is_finished`."""
        played = {*baseline_players(plan_rollouts(self.config)), "before", "after"}
        return played <= summary.keys() and bool(summary.get("steps", 0) >= self.config.train.steps)

    async def run(
        self, plan: JobPlan, folder: RunFolder, state: ResumeState, *, resumed: bool
    ) -> None:
        """See `Job.run`."""
        # This imports torch, which may be missing; the plan has already reported that.
        from agentrl.training.trainer.open_trainer import open_trainer

        began = time.perf_counter()
        async with open_trainer(plan, folder, state) as trainer:
            trainer.restore()
            _warn_of_edits(state, user_files(plan.settings.to_dict()))
            state.add_seconds("start", time.perf_counter() - began)
            if resumed:
                # Save only now, because settings that the checkpoint rejects must not be stored
                # with the run.
                folder.save_config(plan.settings.to_dict())
            await trainer.run()


def _warn_of_edits(state: ResumeState, digests: Mapping[str, str]) -> None:
    """Record the user's code files, and warn about files edited since the last start."""
    for file in state.record_files(digests):
        log.warning(
            "%s was edited since this run last used it; the new version applies from step %d on "
            "(recorded in state.json)",
            file,
            state.step + 1,
        )
