"""The training loop: play, score, estimate advantages, update, publish, evaluate, save."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from agentrl.algorithms.core.entropy_control import (
    adapted_entropy_coefficient,
    applied_entropy_coefficient,
)
from agentrl.algorithms.core.kl import adapt_coefficient
from agentrl.errors import LearnerError, LearnerLost, boundary
from agentrl.policies.open_encoder import open_encoder
from agentrl.replay.pruning import BackgroundPruner
from agentrl.replay.recorder import Recorder
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.runs.run_folder import SAVING, RunFolder
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.checkpoints.checkpoint_writer import CheckpointWriter
from agentrl.training.demonstrations import warm_start_cache
from agentrl.training.learner.learner_group import AnyLearner
from agentrl.training.monitoring.progress import show_engine_start
from agentrl.training.monitoring.run_stages import RunStages
from agentrl.training.monitoring.running_reward_audit import RunningAudit
from agentrl.training.monitoring.training_health import mismatch_warning
from agentrl.training.offline.warm_start import warm_start
from agentrl.training.plan.job_plan import JobPlan
from agentrl.training.plan.trial_episodes import is_playable_here, play_opening
from agentrl.training.privileged_teacher import PrivilegedTeacher
from agentrl.training.sampling.task_sampler import load_sampler
from agentrl.training.stop_signals import Stopping
from agentrl.training.trainer.learner_comparison import compare_with_learner
from agentrl.training.trainer.run_evaluations import RunEvaluations
from agentrl.training.trainer.step_rollouts import RolloutPrefetcher, StepCollector, StepEpisodes
from agentrl.training.trainer.training_samples import StepSamples, build_training_samples
from agentrl.weight_sync.publisher import Publisher

log = logging.getLogger(__name__)


class Trainer:
    """Runs the stages of a training run, and the steps of reinforcement learning.

    Args:
        plan: the job.
        folder: the run's folder.
        start: the folder of the model that the run starts from.
        progress: shows and times the stages; has the run's state, which is saved after each stage.
        rollouts: play episodes.
        learner: holds and updates the weights.
        recorder: appends scores and advantages to recorded episodes.
        pruner: removes old recordings (`run.keep_gb`).
        stopping: handles a stop signal, which waits for the update in progress.
    """

    def __init__(
        self,
        plan: JobPlan,
        folder: RunFolder,
        start: Path,
        progress: RunStages,
        rollouts: Rollouts,
        learner: AnyLearner,
        recorder: Recorder,
        pruner: BackgroundPruner,
        stopping: Stopping,
    ) -> None:
        self._plan, self._settings = plan, plan.settings
        self._algorithm, settings = plan.learner.algorithm, plan.settings
        self._folder, self._start = folder, start
        self._progress, self.state, self._reporter = progress, progress.state, progress.reporter
        self._rollouts, self._learner = rollouts, learner
        self._recorder, self._pruner, self._stopping = recorder, pruner, stopping
        self._saved_step: int | None = None
        self._checkpoints = CheckpointWriter(
            folder.path, learner, settings.checkpoint, settings.train.deadline_s
        )
        self._publisher = Publisher(plan.play.transport, learner, rollouts.engines)
        self._sampler = load_sampler(
            settings.sampling,
            plan.task_sets,
            settings.rollout,
            run_seed=settings.seed,
            folder=folder.path / "sampler",
        )
        self._teacher: PrivilegedTeacher | None = None
        if (text := self._algorithm.requires.privileged) is not None:
            encoder = open_encoder(settings.model, start)
            self._teacher = PrivilegedTeacher(text, encoder, learner.score_teacher)
        self._audit: RunningAudit | None = None
        if settings.reward_audit is not None:
            self._audit = RunningAudit(settings.reward_audit, self.state.audit, folder.path)
        # Keeps prefetched steps and evaluations from playing at the same time.
        playing = asyncio.Lock()
        self._collector = StepCollector(
            settings.rollout, self._algorithm, self._sampler, rollouts, progress.watched, playing
        )
        self._prefetcher: RolloutPrefetcher[StepEpisodes] | None = None
        self._evaluations = RunEvaluations(
            plan, folder, rollouts, progress, playing,
            needs_success=type(self._sampler).repeats,
        )  # fmt: skip

    async def close(self) -> None:
        """Stop playing."""
        if self._prefetcher is not None:
            await self._prefetcher.close()
        await self._checkpoints.close()

    async def run(self) -> None:
        """Run all unfinished stages."""
        try:
            await self._show_teacher_real_phones()
            await self._evaluations.evaluate_baselines()
            await self._warm_start()
            await self._evaluations.evaluate_sampled_and_greedy("before")
            step = self.state.step
            if self._evaluations.is_due and not self._folder.has_evaluation(f"step {step}", step):
                await self._end_step()  # the run was stopped before this
            while self.state.step < self._settings.train.steps:
                await self.step(self.state.step + 1)
            await self._evaluations.evaluate_sampled_and_greedy("after")
            await self._checkpoints.wait()
            self.finish()
        except LearnerLost:  # ranks that were lost cannot save anything
            raise
        except BaseException:
            await self._save_before_stopping()
            raise

    async def _show_teacher_real_phones(self) -> None:
        """Check that a teacher can read the true state on real phones, where the plan could not.

        Raises:
            ConfigError: see `PrivilegedTeacher.check`.
        """
        plan = self._plan.play
        if self._teacher is None:
            return
        for name, task in plan.trained.items():
            if not is_playable_here(task.train, plan.settings.devices):
                self._teacher.check(await play_opening(self._rollouts, plan, name))

    async def _warm_start(self) -> None:
        """Train on demonstrations, if the job has any, and start the engines with the result."""
        if not self.state.warm:
            if (warm := self._plan.warm_start) is not None:
                await warm_start(
                    self._plan, warm, self._start, self._rollouts, self._learner, self._progress,
                    self._stopping,
                )  # fmt: skip
            self.state.warm = True
            await self._checkpoint()
        with self._progress.stage("engine start"):
            engine, count = self._settings.rollout.engine, self._rollouts.engines.count
            with show_engine_start(engine, count, self._reporter.progress):
                await self._rollouts.engines.start()
            await self._publisher.publish(self.state.step)
        if self._settings.rollout.engine_check.enabled is not False:
            with self._progress.stage("engine check"):
                found = await compare_with_learner(
                    self._plan, self._start, self._rollouts, self._learner, self._publisher,
                    self.state.step,
                )  # fmt: skip
            self._reporter.log(self.state.step, found.metrics())
            self._reporter.note(str(found))
            self.state.results["engine_check"] = found.record()

    async def step(self, step: int) -> None:
        """Play, score, compute advantages, update, publish; then evaluate, save, prune if due."""
        await self._checkpoints.check()
        with self._progress.stage("reinforcement"):
            began = time.perf_counter()
            played = await self._episodes_of(step)
            audited = await self._check_reward(step, played)
            waited = time.perf_counter() - began
            async with self._stopping.completed_first():
                await self._train_on(step, played, waited, audited)
        await self._end_step()

    async def _episodes_of(self, step: int) -> StepEpisodes:
        """Return a step's scored episodes, played now or prefetched during earlier updates."""
        train = self._settings.train
        if train.mode == "sync":
            return await self._collector.collect_step(step)
        if self._prefetcher is None:
            self._prefetcher = RolloutPrefetcher(
                self._collector.collect_step, step, train.steps, train.lag
            )
        return await self._prefetcher.next_step()

    async def _check_reward(self, step: int, played: StepEpisodes) -> dict[str, float]:
        """Return the metrics of the running audit, if any.

        Raises:
            UnreliableReward: the audit shows that a bound is exceeded; earlier steps are saved.
        """
        if self._audit is None:
            return {}
        verdicts = self._audit.verdicts([one.episodes for one in played.played])
        metrics = self._audit.add_step(step, verdicts)
        if (why := self._audit.broken()) is not None:
            error = self._audit.stop(step, why)
            await self._checkpoint()
            await self._checkpoints.wait()
            raise error
        return {f"audit/{name}": value for name, value in metrics.items()}

    async def _train_on(
        self, step: int, played: StepEpisodes, waited: float, audited: Mapping[str, float]
    ) -> None:
        """Update on a step's episodes, publish the weights, and log the step's metrics."""
        started = time.perf_counter()
        with boundary(
            LearnerError, f"sampling.name={self._settings.sampling.name}: observe() fails"
        ):
            await asyncio.to_thread(self._sampler.observe, step, played.played)
        await self._publisher.make_room()
        built = await asyncio.to_thread(self._build_samples, played, step)
        learned = await asyncio.to_thread(
            self._learner.update,
            built.samples,
            step,
            kl_coefficient=self._kl_coefficient,
            entropy_coefficient=applied_entropy_coefficient(
                self._entropy_coefficient,
                self.state.entropy,
                self._settings.algorithm.entropy_control,
            ),
        )
        self._adapt_kl(learned)
        self._adapt_entropy(learned)
        updated = time.perf_counter()
        self.state.step = step
        await self._publisher.publish(step)
        if self._prefetcher is not None:
            self._prefetcher.mark_trained()
        metrics = {
            **played.metrics(),
            **{f"rollout/{k}": v for k, v in self._plan.play.curriculum(step).items()},
            **{f"learner/{name}": value for name, value in learned.items()},
            **{f"rollout/{k}": v for k, v in self._rollouts.worker_metrics().items()},
            **{
                f"{'rollout' if name == 'state_match_fraction' else 'learner'}/{name}": value
                for name, value in built.metrics.items()
            },
            "seconds/rollout": played.seconds,
            "seconds/wait": waited,
            "seconds/update": updated - started,
            "seconds/publish": time.perf_counter() - updated,
            **self._sampler.metrics(),
            **audited,
        }
        self._reporter.log(step, metrics)
        if (warning := mismatch_warning(step, learned)) is not None:
            log.warning("%s", warning)

    def _build_samples(self, played: StepEpisodes, step: int) -> StepSamples:
        """Score tokens, compute advantages, record them, and build the samples of the update."""
        built = build_training_samples(
            played.groups,
            self._algorithm,
            self._learner.score_tokens,
            max_new_tokens=self._settings.rollout.max_new_tokens,
            version=self.state.step,
            seed=self._settings.seed * 1_000_003 + step,
            greedy=played.greedy,
            kl_coefficient=self._kl_coefficient,
            teacher=self._teacher,
        )
        episodes = [scored for group in played.groups for scored in group]
        for scored, advantages in zip(episodes, built.advantages, strict=True):
            if not scored.replayed:  # its record already has advantages
                self._recorder.record_advantages(scored, advantages, step=step)
        return built

    @property
    def _kl_coefficient(self) -> float:
        own = self.state.kl_coefficient
        return self._settings.algorithm.kl.coefficient if own is None else own

    def _adapt_kl(self, learned: Mapping[str, float]) -> None:
        """Adapt the KL coefficient to `algorithm.kl.target`, if set."""
        settings = self._settings.algorithm.kl
        if settings.target is not None and "kl" in learned:
            self.state.kl_coefficient = adapt_coefficient(
                self._kl_coefficient, learned["kl"], settings.target, settings.horizon
            )

    @property
    def _entropy_coefficient(self) -> float:
        own = self.state.entropy_coefficient
        return self._settings.algorithm.entropy_coefficient if own is None else own

    def _adapt_entropy(self, learned: Mapping[str, float]) -> None:
        """Adapt the entropy coefficient to `algorithm.entropy_control.target`, if set."""
        settings = self._settings.algorithm.entropy_control
        if settings.target is not None and "entropy" in learned:
            self.state.entropy = learned["entropy"]
            self.state.entropy_coefficient = adapted_entropy_coefficient(
                self._entropy_coefficient, learned["entropy"], settings
            )

    async def _end_step(self) -> None:
        """Evaluate, save and prune if due."""
        if self._evaluations.is_due:
            await self._evaluations.evaluate_step()
        step, every = self.state.step, self._settings.checkpoint.every
        if step in (self._evaluations.best_step, self._settings.train.steps) or step % every == 0:
            await self._checkpoint()
        self._pruner.begin()

    async def _checkpoint(self) -> None:
        step = self.state.step
        self.state.sampler = await asyncio.to_thread(self._sampler.state)
        self.state.tasks_taken = self._sampler.tasks.state(step)
        self._folder.save_state(self.state)
        is_best = step == self._evaluations.best_step
        with self.state.timing(SAVING):
            await self._checkpoints.save(step, asdict(self.state), best=is_best)
        self._saved_step = step

    async def _save_before_stopping(self) -> None:
        """Finish writing checkpoints, and save the last finished step after a signal."""
        await self._checkpoints.wait()
        stopping = self._stopping
        if stopping.signal is None or stopping.is_block_incomplete:  # between two steps
            return
        if self.state.step and self._saved_step != self.state.step:
            await self._checkpoint()
            await self._checkpoints.wait()

    def restore(self) -> None:
        """Load the last checkpoint, if any."""
        latest = checkpoint_store.latest(self._folder.path)
        if latest is None:
            self.state.step, self.state.warm = 0, False
            self.state.results.pop("before", None)
            if self._folder.has_begun:
                self._rewind(-1)
                for player, result in self.state.results.items():  # played before warm start
                    if player != self.state.unfinished:
                        self._reporter.result(player, result)
            self._sampler.restore({})
            self._sampler.tasks.restore({})
            return
        kept = checkpoint_store.load(latest, self._learner)
        self._saved_step = kept["step"]
        self.state.step, self.state.best, self.state.warm = kept["step"], kept.get("best"), True
        self.state.kl_coefficient = kept.get("kl_coefficient")
        self.state.entropy_coefficient = kept.get("entropy_coefficient")
        self.state.entropy = kept.get("entropy")
        self._sampler.restore(kept.get("sampler", {}))
        # Earlier versions did not count tasks, but set some aside for each attempt of each step.
        set_aside = kept["step"] * self._algorithm.attempts * self._settings.rollout.groups
        self._sampler.tasks.restore(kept.get("tasks_taken", {}), set_aside)
        if self.state.step < self._settings.train.steps:
            self.state.results.pop("after", None)
        self._rewind(self.state.step)

    def _rewind(self, step: int) -> None:
        """Drop reports about steps that will be repeated."""
        self._reporter.rewind(step)
        self._folder.rewind(max(0, step))

    def finish(self) -> None:
        """Export the final model and write the summary."""
        with self.state.timing(SAVING):
            self._learner.export(self._folder.model)
        if (warm := self._settings.warm_start) is not None:
            warm_start_cache.write_marker(self._folder.model, warm, self._plan.play.env_ids)
        seconds = {stage: round(spent, 1) for stage, spent in self.state.seconds.items()}
        results = self.state.results | {
            "steps": self.state.step,
            "restarts": len(self.state.restarts),
            "seconds": seconds,
        }
        if self._audit is not None:
            self._audit.save()
        self._folder.write_summary(results)
        self._folder.save_state(self.state)
        self._reporter.finish(results)
        if self.state.void:
            causes = ", ".join(f"{count} x {cause}" for cause, count in self.state.void.items())
            log.warning(
                "some episodes were void, and played again up to rollout.max_refills times per "
                "step: %s",
                causes,
            )
