"""Evaluates a model or a scripted player on held-out seeds, and records the episodes."""

import asyncio
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from agentrl import event_loop
from agentrl.cluster import ray_cluster
from agentrl.config import Config, parse_loggers
from agentrl.errors import ConfigError, WorldError, with_short_mistakes
from agentrl.extension_points import LOGGER
from agentrl.files import StrPath, lock_folder
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.workers.open_rollouts import open_rollouts
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.runs.job_failure import recorded_failure
from agentrl.runs.rings import ring_label
from agentrl.runs.run_folder import RunFolder
from agentrl.runs.run_start_records import record_start
from agentrl.training import env_seeds
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.chosen_policy import MODEL, ChosenPolicy, choose_policy
from agentrl.training.command_target import open_target
from agentrl.training.engine_check.compared_prompts import opening_prompts
from agentrl.training.engine_check.engine_comparison import EngineComparison
from agentrl.training.engine_check.reference_copy import ReferenceCopy
from agentrl.training.evaluation.held_out_evaluation import (
    Evaluation,
    play_held_out,
    warn_of_failed_ring,
)
from agentrl.training.monitoring.loggers.console import ConsoleDisplay
from agentrl.training.monitoring.progress import (
    PlannedWork,
    show_engine_start,
    show_progress,
)
from agentrl.training.plan.long_prompts import skip_long_prompts
from agentrl.training.stop_signals import acknowledge_stop_signals
from agentrl.types import Split

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, frozen=True)
class EvaluationJob:
    """A planned evaluation of a policy on one task, which may belong to a suite."""

    policy: ChosenPolicy
    plan: RolloutPlan
    greedy: bool
    split: Split = "eval"
    samples: int = 1
    """Number of episodes per seed."""
    category: str | None = None
    """See `play_held_out`."""
    suite: str | None = None
    """Name of the task's suite; None for an evaluation without a suite."""
    task: str | None = None
    """The task's name in its suite."""

    @property
    def policy_name(self) -> str:
        """Name of the policy in folder names and episode ids."""
        policy = self.policy
        if policy.is_served:
            return "remote"
        if policy.scripted is not None:
            return policy.scripted
        if policy.checkpoint is not None:
            return f"step-{checkpoint_store.step_of(policy.checkpoint)}"
        return "start" if policy.target.run is None else "model"

    def seeds(self) -> list[int]:
        """Return the seed of each episode."""
        settings = self.plan.tasks[""].eval
        if self.split == "demo":
            return env_seeds.demonstration_seeds(self.plan.settings.seed, settings.episodes)
        return env_seeds.evaluation_seeds(settings, settings.episodes)

    def mixture(self) -> dict[str, float]:
        """Return the weight of each environment."""
        # Demonstrations are played in the job's own environment.
        return {"": 1.0} if self.split == "demo" else self.plan.settings.mixture_weights()

    def rings(self) -> dict[str, int]:
        """Return the number of seeds to play in each ring of `eval.rings`."""
        return {} if self.split == "demo" else self.plan.ring_episodes

    def warn_if_untrained(self) -> None:
        """Warn if the initial model of a configuration plays, rather than a trained one."""
        target = self.policy.target
        if self.policy.needs_model and target.run is None:
            log.warning(
                "%s is not a run, so the model that it starts from (%s) is evaluated. To evaluate "
                "a trained model, give the folder of a run.",
                target.name,
                self.plan.settings.model.path,
            )


@with_short_mistakes
def evaluate(
    target: Config | StrPath,
    *,
    episodes: int | None = None,
    policy: str = MODEL,
    greedy: bool = False,
    checkpoint: str | None = None,
    demos: bool = False,
    overrides: Sequence[str] = (),
) -> Evaluation:
    """Evaluate the model of a run, the initial model of a configuration, or a scripted player.

    Progress goes to standard error if `logging` includes `console`.

    Args:
        target: a run's folder, a configuration, its file or name, or an environment as in
            `env.id`.
        episodes: number of episodes, each on a different held-out seed; None uses `eval.episodes`.
        policy: `model`, or the name of a scripted player such as `random` or `expert`, which needs
            neither a model nor an engine. With `rollout.engine=remote`, the server's model plays.
        greedy: the model always takes its most probable token.
        checkpoint: checkpoint of the run: `best`, `last` or a step; None uses its final model.
        demos: play the demonstrations' seeds, which a warm start may train on, instead of held-out
            seeds.
        overrides: `key=value` settings.

    Returns:
        The means of all metrics, the results per seed and per ring (`eval.rings`), and the folder
        of the recorded episodes.

    Raises:
        ConfigError: an argument or setting names something that does not exist, or the server does
            not answer.
        WorldError: more than half of the episodes on held-out seeds are void, or no phones are
            left. A ring that fails has no result.
    """
    opened = open_target(target, overrides)
    opened.check_names_env()
    config = opened.config
    count = config.eval.episodes if episodes is None else episodes
    if count < 1:
        raise ConfigError(f"episodes={count}: must be at least 1")
    config = replace(
        config,
        eval=replace(config.eval, episodes=count),
        run=replace(config.run, name=opened.run_name),
    )
    chosen = choose_policy(opened, policy, checkpoint)
    split: Split = "demo" if demos else "eval"
    job = EvaluationJob(policy=chosen, plan=chosen.plan(config), split=split, greedy=greedy)
    if not opened.overrides_key("model.path"):  # the user gave a model explicitly
        job.warn_if_untrained()
    return play_evaluations([job])[0]


def play_evaluations(
    jobs: Sequence[EvaluationJob],
    ended: Callable[[int, Evaluation], None] = lambda number, found: None,
) -> list[Evaluation]:
    """Play and record several evaluations of a policy in turn; its model is loaded only once.

    Args:
        jobs: evaluations that may differ in environments, rewards, evaluation settings and folders.
        ended: called after each evaluation with its index and result.

    Raises:
        ConfigError: a folder already exists, or cannot be created.
        WorldError: see `evaluate`.
        SystemExit: with status 143, after SIGTERM.
    """
    return event_loop.run(_play_all(jobs, ended))


async def _play_all(
    jobs: Sequence[EvaluationJob], ended: Callable[[int, Evaluation], None]
) -> list[Evaluation]:
    found = []
    with acknowledge_stop_signals(), TemporaryDirectory(prefix="agentrl-") as scratch:
        rollouts = _SharedRollouts(jobs[0].policy, Path(scratch))
        try:
            for number, job in enumerate(jobs):
                found.append(await _play_and_record(rollouts, job))
                ended(number, found[-1])
        finally:
            await rollouts.close()
    return found


class _SharedRollouts:
    """Opens the rollouts of successive evaluations, loading the model only once.

    Args:
        policy: plays all evaluations.
        scratch: an empty folder, for a model that must be exported.
    """

    def __init__(self, policy: ChosenPolicy, scratch: Path) -> None:
        self._policy, self._scratch = policy, scratch
        self._model: Path | None = None
        self._opened: Rollouts | None = None
        self._copy: ReferenceCopy | None = None
        """The model in transformers, until the engine has been compared with it."""
        self.engine_check: EngineComparison | None = None
        """Result of the engine's comparison with transformers; None without one."""

    async def open(self, plan: RolloutPlan, folder: Path) -> Rollouts:
        """Open the rollouts of the next evaluation.

        Args:
            plan: may differ from the first evaluation's plan only where `Rollouts.switch` allows
                it.
            folder: folder to record the episodes in.

        Raises:
            ConfigError: the model cannot be loaded, or the environment cannot be opened.
        """
        if self._opened is None:
            self._model = self._policy.model_folder(plan, self._scratch)
            if self._model is not None:
                settings = plan.settings
                self._copy = ReferenceCopy(self._model, settings.model, settings.rollout)
        if self._model is not None:  # its tokenizer determines which prompts are too long
            plan = skip_long_prompts(plan, self._model)
        if self._opened is None:
            version = self._policy.trained_steps
            self._opened = await open_rollouts(plan, self._model, folder, version)
        else:
            await self._opened.switch(plan, folder)
        return self._opened

    async def check_engine(self, job: EvaluationJob, display: ConsoleDisplay) -> None:
        """Compare the engine with transformers before its first episode, if configured.

        Raises:
            EngineMismatch: they disagree.
        """
        copy, self._copy = self._copy, None
        if copy is None or self._opened is None:
            return
        if await asyncio.to_thread(copy.is_wanted):
            display.stage("engine check")
            prompts = await opening_prompts(
                self._opened,
                job.plan,
                copy.encoder,
                job.seeds(),
                split=job.split,
                mixture=[*job.mixture()],
                step=self._policy.trained_steps,
            )
            self.engine_check = await copy.compare(prompts, self._opened.engines.generate)
            display.note(str(self.engine_check))

    async def close(self) -> None:
        """Close everything; may be called twice."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()
        ray_cluster.leave_cluster()


async def _play_and_record(rollouts: _SharedRollouts, job: EvaluationJob) -> Evaluation:
    """Play one evaluation and write its summary; remove its folder if it has no episodes."""
    plan, policy = job.plan, job.policy
    target = policy.target
    folder = RunFolder.create(plan.settings.run, f"{job.split}-{job.policy_name}-{target.name}")
    folder.save_config(plan.settings.to_dict())
    model = plan.settings.rollout.endpoint.model if policy.is_served else None
    is_kept = policy.needs_model and policy.checkpoint is not None
    summary = {
        "target": target.text or target.name,
        "policy": model or policy.name,
        "checkpoint": policy.trained_steps if is_kept else None,
        "greedy": job.greedy,
        **({} if job.task is None else {"suite": job.suite, "task": job.task}),
    }

    def write(found: Evaluation) -> None:
        checked = rollouts.engine_check
        engine = {} if checked is None else {"engine_check": checked.record()}
        audit = {"audit": found.audit} if found.audit else {}
        folder.write_summary({**summary, **engine, **found.summary(), **audit})

    # While the lock is held, `agentrl runs` shows the evaluation as running.
    with lock_folder(folder.path):
        record_start(folder.path)
        folder.write_summary(summary)  # the viewer shows it while episodes are played
        with recorded_failure(folder.path), folder.removed_if_empty():
            found = await _evaluate(rollouts, job, folder.path, write)
    return replace(found, run=folder.path, model=model)


async def _evaluate(
    rollouts: _SharedRollouts,
    job: EvaluationJob,
    folder: Path,
    write: Callable[[Evaluation], None],
) -> Evaluation:
    """Play the held-out seeds, then the rings; write the result after each."""
    plan, policy = job.plan, job.policy
    name = f"{job.policy_name} greedy" if job.greedy else job.policy_name
    chosen, rings = job.seeds(), job.rings()
    with _shown(plan.settings.logging, folder) as display:
        try:
            opened = await rollouts.open(plan, folder)
            if policy.scripted is None:
                engine = plan.settings.rollout.engine
                with show_engine_start(engine, opened.engines.count, display.progress):
                    await opened.engines.start()
                await rollouts.check_engine(job, display)
            stage = "evaluation" if job.task is None else f"evaluation: {job.task}"
            found = await _play(opened, display, job, stage, name, chosen, job.mixture())
            write(found)
            for ring, count in rings.items():
                label = ring_label(name, ring)
                try:
                    beyond = await _play(
                        opened, display, job, f"{stage}, unseen {ring}", label,
                        chosen[:count], {ring: 1.0},
                    )  # fmt: skip
                except WorldError as error:
                    warn_of_failed_ring(label, error)
                else:
                    found = replace(found, rings={**found.rings, ring: beyond})
                    write(found)
        except BaseException:
            await rollouts.close()  # even if actors have died
            raise
        await opened.finish()  # ensures that all recorded episodes are on disk
    return found


async def _play(
    rollouts: Rollouts,
    display: ConsoleDisplay,
    job: EvaluationJob,
    stage: str,
    name: str,
    chosen: Sequence[int],
    mixture: Mapping[str, float],
) -> Evaluation:
    display.stage(stage)
    total = len(chosen) * job.samples * len(mixture)
    async with show_progress(rollouts, display.progress, total, job.policy_name):
        return await play_held_out(
            rollouts,
            chosen,
            split=job.split,
            name=name,
            step=job.policy.trained_steps,
            player=job.policy.scripted,
            greedy=job.greedy,
            mixture=mixture,
            samples=job.samples,
            category=job.category,
        )


@contextmanager
def _shown(loggers: Sequence[Any], folder: Path) -> Iterator[ConsoleDisplay]:
    """Show progress on standard error, because standard output is for the result."""
    classes = [LOGGER.resolve(logger.name) for logger in parse_loggers(loggers)]
    # Without the logger `console`, discard the output.
    is_shown = any(issubclass(cls, ConsoleDisplay) for cls in classes)
    console = Console(stderr=True) if is_shown else Console(file=io.StringIO())
    display = ConsoleDisplay(folder, PlannedWork(), console)
    display.stage("start")
    try:
        yield display
    finally:
        display.close()
