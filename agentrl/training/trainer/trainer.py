"""The stages of a training run and the steps of reinforcement learning."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentrl.algorithms.core.advantages import check_state_keys
from agentrl.algorithms.core.kl import adapt_coefficient
from agentrl.config import WarmStartConfig
from agentrl.errors import LearnerError, LearnerLost, boundary
from agentrl.policies.open_model import open_encoder, resize_for
from agentrl.replay.pruning import BackgroundPruner
from agentrl.replay.recorder import Recorder
from agentrl.rollout.environments.load_translator_and_players import load_player
from agentrl.rollout.workers.rollouts import Rollouts
from agentrl.runs.run_folder import SAVING, RunFolder
from agentrl.runs.run_state import RunState
from agentrl.training import env_seeds
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.checkpoints.checkpoint_writer import CheckpointWriter
from agentrl.training.demonstrations import warm_start_cache
from agentrl.training.evaluation.evaluate import Evaluation, mean_metrics, play_held_out
from agentrl.training.learner.learner_group import AnyLearner
from agentrl.training.monitoring.progress import show_engine_start, show_progress
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.monitoring.running_audit import RunningAudit
from agentrl.training.monitoring.training_health import (
    invalid_replies_warning,
    mismatch_warning,
    repetition_share,
)
from agentrl.training.offline import warm_start
from agentrl.training.offline.supervised_dataset import (
    SupervisedDataset,
    rerender_demonstrations,
)
from agentrl.training.plan.job_plan import JobPlan
from agentrl.training.sampling.task_sampler import GroupTask, PlayedTask, load_sampler
from agentrl.training.stop_signals import Stopping
from agentrl.training.trainer.step_rollouts import RolloutPrefetcher, StepCollector, StepEpisodes
from agentrl.training.trainer.training_samples import StepSamples, build_training_samples
from agentrl.types import ScoredEpisode
from agentrl.weight_sync.publisher import Publisher

log = logging.getLogger(__name__)


class Trainer:
    """Runs the stages of a training run.

    Args:
        plan: the job.
        folder: the run's folder.
        start: the folder of the model that the run starts from.
        state: the progress of the run; saved after every stage.
        rollouts: play episodes.
        learner: holds and updates the weights.
        reporter: shows progress and writes metrics.
        recorder: appends scores and advantages to recorded episodes.
        pruner: removes old recordings (`run.keep_gb`).
        stopping: a signal to stop, which waits for the update in progress.
    """

    def __init__(
        self,
        plan: JobPlan,
        folder: RunFolder,
        start: Path,
        state: RunState,
        rollouts: Rollouts,
        learner: AnyLearner,
        reporter: Reporter,
        recorder: Recorder,
        pruner: BackgroundPruner,
        stopping: Stopping,
    ) -> None:
        self._plan = plan
        self._settings = settings = plan.settings
        self.state = state
        self._folder = folder
        self._start = start
        self._rollouts = rollouts
        self._learner = learner
        self._reporter = reporter
        self._recorder = recorder
        self._pruner = pruner
        self._stopping = stopping
        self._saved_step: int | None = None
        self._best_step: int | None = None
        """The step with the best evaluation so far, if this process played it."""
        self._checkpoints = CheckpointWriter(
            folder.path, learner, settings.checkpoint, settings.train.deadline_s
        )
        self._publisher = Publisher(plan.play.transport, learner, rollouts.engines)
        self._algorithm = plan.algorithm
        self._sampler = load_sampler(
            settings.sampling,
            plan.task_sets,
            settings.rollout,
            run_seed=settings.seed,
            folder=folder.path / "sampler",
        )
        self._audit: RunningAudit | None = None
        if settings.reward_audit is not None:
            self._audit = RunningAudit(settings.reward_audit, state.audit, folder.path)
        self._player = StepCollector(
            settings.rollout, self._algorithm, self._sampler, rollouts, self._watched
        )
        self._prefetcher: RolloutPrefetcher[StepEpisodes] | None = None
        self._rollouts_lock = asyncio.Lock()
        """Prefetched steps and evaluations never play at the same time."""

    async def close(self) -> None:
        """Stop playing."""
        if self._prefetcher is not None:
            await self._prefetcher.close()
        await self._checkpoints.close()

    def restore(self) -> None:
        """Load the last checkpoint, if there is one."""
        latest = checkpoint_store.latest(self._folder.path)
        if latest is None:
            self.state.step, self.state.warm = 0, False
            self.state.results.pop("before", None)
            if self._folder.has_begun:
                self._rewind(-1)
                for player, result in self.state.results.items():  # played before the warm start
                    self._reporter.result(player, result)
            self._sampler.restore({})
            self._sampler.tasks.restore({})
            return
        kept = checkpoint_store.load(latest, self._learner)
        self._saved_step = kept["step"]
        self.state.step, self.state.best, self.state.warm = kept["step"], kept.get("best"), True
        self.state.kl_coefficient = kept.get("kl_coefficient")
        self._sampler.restore(kept.get("sampler", {}))
        # Versions that counted no tasks set some aside for every attempt of every step.
        set_aside = kept["step"] * self._algorithm.attempts * self._settings.rollout.groups
        self._sampler.tasks.restore(kept.get("tasks_taken", {}), set_aside)
        if self.state.step < self._settings.train.steps:
            self.state.results.pop("after", None)
        self._rewind(self.state.step)

    def _rewind(self, step: int) -> None:
        """Drop what was reported about steps that will be repeated."""
        self._reporter.rewind(step)
        self._folder.rewind(max(0, step))

    # --- stages ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Run every stage that is not finished yet."""
        try:
            await self._run_stages()
        except LearnerLost:
            raise
        except BaseException:
            await self._save_before_stopping()
            raise

    async def _run_stages(self) -> None:
        await self.play_baselines()
        await self.warm_start()
        await self.evaluate_sampled_and_greedy("before")
        step = self.state.step
        if self._evaluation_is_due and not self._folder.has_evaluation(f"step {step}", step):
            await self._end_step()  # the run was stopped before it
        while self.state.step < self._settings.train.steps:
            await self.step(self.state.step + 1)
        await self.evaluate_sampled_and_greedy("after")
        await self._checkpoints.wait()
        self.finish()

    async def _save_before_stopping(self) -> None:
        """Save the last finished step after a signal; otherwise only what is being written."""
        await self._checkpoints.wait()
        stopping = self._stopping
        if stopping.signal is None or stopping.is_block_incomplete:  # between two steps
            return
        if self.state.step and self._saved_step != self.state.step:
            await self._checkpoint()
            await self._checkpoints.wait()

    async def play_baselines(self) -> None:
        """Play the held-out seeds with the scripted players, for comparison with the model."""
        for player in self._plan.baselines:
            if player not in self.state.results:
                with self._stage(f"baseline {player}"):
                    found = await self._evaluate(player, player=player)
                self._keep_result(player, found.summary())

    async def warm_start(self) -> None:
        """Train on demonstrations, or load the cached result."""
        if not self.state.warm:
            if self._settings.warm_start is not None:
                await self._warm_start(self._settings.warm_start)
            self.state.warm = True
            await self._checkpoint()
        with self._stage("engine start"):
            engine, count = self._settings.rollout.engine, self._rollouts.engines.count
            with show_engine_start(engine, count, self._reporter.progress):
                await self._rollouts.engines.start()
            await self._publish()

    async def _warm_start(self, warm: WarmStartConfig) -> None:
        config, mixture = self._settings, self._plan.weights
        recorded = self._plan.demonstrations.episodes
        envs = {name: task.train for name, task in self._plan.play.trained.items()}
        ids = {one.id for one in envs.values()}
        settings = [one.settings for one in envs.values()]
        if all(warm_start_cache.has_warm_start(self._start, warm, one) for one in ids):
            log.warning(
                "warm start skipped: %s already had one for %s (warm_start.repeat=true repeats it)",
                self._start,
                " and ".join(sorted(ids)),
            )
            return
        cached = warm_start_cache.cache_folder(
            warm, config.model, settings, mixture, config.devices, config.seed, recorded
        )
        if cached is not None and cached.is_dir():
            log.warning("warm start loaded from %s (warm_start.cache=null repeats it)", cached)
            self._learner.load_weights(cached / "model.safetensors")
            return
        with self._stage("demonstrations"):
            encoder = await asyncio.to_thread(open_encoder, config.model, self._start)
            demonstrations = await asyncio.to_thread(
                rerender_demonstrations,
                recorded,
                self._plan.play.tasks[""].train,
                encoder,
                config.rollout.max_new_tokens,
                self._reporter.progress,
            )
            if warm.player is not None:
                async with self._watched(warm.episodes):
                    demonstrations += await warm_start.play_demonstrations(
                        warm, mixture, config.seed, self._rollouts
                    )
        with self._stage("warm start"):
            players = {
                name: load_player(
                    one,
                    warm.player,
                    lambda dialect: resize_for(dialect, config.model, encoder),
                )
                for name, one in envs.items()
                if warm.player is not None
            }
            await warm_start.train_on_demonstrations(
                warm,
                SupervisedDataset(demonstrations, warm, players, encoder, config.seed),
                self._learner,
                self._reporter.warm_start,
                config.rollout.deadline_s,
            )
        if cached is not None and warm_start_cache.save_to_cache(cached, warm, ids, self._learner):
            # The same weights that later runs load from the cache, rounded to `model.dtype`.
            self._learner.load_weights(cached / "model.safetensors")

    async def evaluate_sampled_and_greedy(self, when: str) -> None:
        """Evaluate with sampling, as in rollouts, and greedily."""
        if when in self.state.results:
            return
        found = {}
        for name, greedy in (("sampled", False), ("greedy", True)):
            with self._stage(f"evaluation {when}, {name}"):
                evaluation = await self._evaluate(f"{when} {name}", greedy=greedy)
                found[name] = evaluation.summary()
        self._keep_result(when, found)
        warning = invalid_replies_warning(found["sampled"])
        if when == "before" and warning is not None:
            log.warning("%s", warning)

    async def step(self, step: int) -> None:
        """Play, score, compute advantages, update, publish; then evaluate, save, prune when due."""
        await self._checkpoints.check()
        with self._stage("reinforcement"):
            began = time.perf_counter()
            played = await self._take_step(step)
            audited = await self._check_reward(step, played)
            async with self._stopping.completed_first():
                await self._train_on(step, played, time.perf_counter() - began, audited)
        await self._end_step()

    async def _check_reward(self, step: int, played: StepEpisodes) -> dict[str, float]:
        """The metrics of the running audit, if there is one.

        Raises:
            UnreliableReward: it shows that a bound is broken; what was learned before is saved.
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
        """Update on the episodes of a step, publish the weights, and log its metrics."""
        started = time.perf_counter()
        with boundary(
            LearnerError, f"sampling.name={self._settings.sampling.name}: observe() fails"
        ):
            await asyncio.to_thread(self._sampler.observe, step, played.played)
        await self._publisher.make_room()
        built = await asyncio.to_thread(self._build_samples, played.groups, step, played.greedy)
        learned = await asyncio.to_thread(
            self._learner.update,
            built.samples,
            step,
            kl_coefficient=self._kl_coefficient,
        )
        self._adapt_kl(learned)
        updated = time.perf_counter()
        self.state.step = step
        await self._publish()
        if self._prefetcher is not None:
            self._prefetcher.mark_trained()
        seconds = {
            "rollout": played.seconds,
            "wait": waited,
            "update": updated - started,
            "publish": time.perf_counter() - updated,
        }
        self._log(step, played, built.metrics, learned, seconds, audited)
        if (warning := mismatch_warning(step, learned)) is not None:
            log.warning("%s", warning)

    async def _end_step(self) -> None:
        """Evaluate, save and prune when due."""
        if self._evaluation_is_due:
            await self._evaluate_step()
        step, every = self.state.step, self._settings.checkpoint.every
        if step in (self._best_step, self._settings.train.steps) or step % every == 0:
            await self._checkpoint()
        self._pruner.begin()

    def finish(self) -> None:
        """Export the final model and write the summary."""
        with self.state.timing(SAVING):
            self._learner.export(self._folder.model)
        if (warm := self._settings.warm_start) is not None:
            ids = {task.train.id for task in self._plan.play.trained.values()}
            warm_start_cache.write_marker(self._folder.model, warm, ids)
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
            log.warning("void episodes, replayed up to rollout.max_refills per step: %s", causes)

    # --- parts of a step ------------------------------------------------------------------

    async def _take_step(self, step: int) -> StepEpisodes:
        """The episodes of this step: played now, or prefetched during earlier updates."""
        if self._settings.train.mode == "sync":
            return await self._play_step(step)
        if self._prefetcher is None:
            self._prefetcher = RolloutPrefetcher(
                self._play_step, step, self._settings.train.steps, self._settings.train.lag
            )
        return await self._prefetcher.next_step()

    async def _play_step(self, step: int) -> StepEpisodes:
        async with self._rollouts_lock:
            return await self._player.play(step)

    def _build_samples(
        self,
        groups: Sequence[Sequence[ScoredEpisode]],
        step: int,
        greedy: Sequence[float] | None,
    ) -> StepSamples:
        built = build_training_samples(
            groups,
            self._algorithm,
            self._learner.score_tokens,
            max_new_tokens=self._settings.rollout.max_new_tokens,
            version=self.state.step,
            seed=self._settings.seed * 1_000_003 + step,
            greedy=greedy,
            kl_coefficient=self._kl_coefficient,
        )
        episodes = [scored for group in groups for scored in group]
        for scored, advantages in zip(episodes, built.advantages, strict=True):
            if not scored.replayed:  # the record has the advantages of the step that played it
                self._recorder.record_advantages(scored, advantages, step=step)
        return built

    def _adapt_kl(self, learned: Mapping[str, float]) -> None:
        """Adapt the KL coefficient to `algorithm.kl.target`, if that is set."""
        settings = self._settings.algorithm.kl
        if settings.target is not None and "kl" in learned:
            self.state.kl_coefficient = adapt_coefficient(
                self._kl_coefficient, learned["kl"], settings.target, settings.horizon
            )

    @property
    def _kl_coefficient(self) -> float:
        own = self.state.kl_coefficient
        return self._settings.algorithm.kl.coefficient if own is None else own

    async def _publish(self) -> None:
        await self._publisher.publish(self.state.step)

    @property
    def _evaluation_is_due(self) -> bool:
        """Every `eval.every` steps and after the last one.

        The last step is included because the evaluation after training plays more episodes and
        is therefore not comparable with those during training.
        """
        every, step = self._settings.eval.every, self.state.step
        return bool(every and step) and (step % every == 0 or step == self._settings.train.steps)

    async def _evaluate_step(self) -> None:
        step = self.state.step
        with self._stage("evaluation during"):
            found = await self._evaluate(
                f"step {step}", episodes=self._settings.eval.episodes_during, step=step
            )
        self._reporter.evaluation(step, found.metrics)
        reward = found.metrics["reward"]
        if self.state.best is None or reward > self.state.best:
            self.state.best, self._best_step = reward, step

    async def _evaluate(
        self,
        name: str,
        *,
        episodes: int | None = None,
        step: int | None = None,
        player: str | None = None,
        greedy: bool = False,
    ) -> Evaluation:
        count = self._settings.eval.episodes if episodes is None else episodes
        mixture = self._plan.weights
        # The stage says what is evaluated, except for the step of an evaluation during training.
        note = "" if step is None else name
        async with self._rollouts_lock, self._watched(count * len(mixture), note):
            found = await play_held_out(
                self._rollouts,
                env_seeds.evaluation_seeds(self._settings.eval, count),
                name=name,
                step=self.state.step if step is None else step,
                player=player,
                greedy=greedy,
                mixture=mixture,
                check=self._check_played,
            )
        self._folder.add_evaluation(found.record(name, self.state.step))
        return found

    def _check_played(self, played: Sequence[ScoredEpisode]) -> None:
        """Fail in the first evaluation instead of after the first training step.

        Raises:
            ConfigError: the environment does not provide what algorithm or sampler require.
        """
        check_state_keys([played], self._algorithm)
        if type(self._sampler).repeats:
            group = PlayedTask(task=GroupTask(env="", seed=0), episodes=played)
            group.successes(self._settings.sampling.success_at)

    # --- bookkeeping ----------------------------------------------------------------------

    def _log(
        self,
        step: int,
        played: StepEpisodes,
        built: dict[str, float],
        learned: dict[str, float],
        seconds: dict[str, float],
        audited: Mapping[str, float],
    ) -> None:
        episodes = [e for group in played.groups for e in group if not e.replayed]
        turns = sum(len(e.episode.turns) for e in episodes)
        tokens = sum(len(t.reply_ids) for e in episodes for t in e.episode.turns)
        self._reporter.log(
            step,
            {
                **{f"train/{k}": v for k, v in mean_metrics(episodes).items()},
                **{f"train/{k}": v for k, v in played.progress.unscored_metrics().items()},
                **{f"learner/{k}": v for k, v in learned.items()},
                **{f"rollout/{k}": v for k, v in played.progress.void_metrics().items()},
                **{f"rollout/{k}": v for k, v in self._rollouts.worker_metrics().items()},
                "rollout/missing": sum(e.episode.outcome.void for e in episodes),
                "rollout/dropped_groups": float(played.dropped),
                **{
                    f"{'rollout' if k == 'state_match_fraction' else 'learner'}/{k}": v
                    for k, v in built.items()
                },
                "rollout/tokens_per_turn": tokens / max(1, turns),
                "rollout/repetition": repetition_share(
                    turn.reply_ids for e in episodes for turn in e.episode.turns
                ),
                "rollout/turns_per_s": turns / played.seconds,
                "rollout/tokens_per_s": tokens / played.seconds,
                "rollout/episodes_per_s": len(episodes) / played.seconds,
                **{f"seconds/{part}": spent for part, spent in seconds.items()},
                **_metrics_by_environment(played),
                **self._sampler.metrics(),
                **audited,
            },
        )

    async def _checkpoint(self) -> None:
        step = self.state.step
        self.state.sampler = await asyncio.to_thread(self._sampler.state)
        self.state.tasks_taken = self._sampler.tasks.state(step)
        self._folder.save_state(self.state)
        with self.state.timing(SAVING):
            await self._checkpoints.save(step, asdict(self.state), best=step == self._best_step)
        self._saved_step = step

    def _keep_result(self, name: str, result: dict[str, Any]) -> None:
        self.state.results[name] = result
        self._reporter.result(name, result)
        self._folder.save_state(self.state)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Report the stage and add up its seconds."""
        self._reporter.stage(name)
        with self.state.timing(name.split(",")[0]):
            yield

    @asynccontextmanager
    async def _watched(self, total: int, note: str = "") -> AsyncIterator[None]:
        """Show the progress of a collection, then count its void episodes by cause."""
        async with show_progress(self._rollouts, self._reporter.progress, total, note):
            yield
        for cause, count in self._rollouts.progress.void.items():
            self.state.void[cause] = self.state.void.get(cause, 0) + count


def _metrics_by_environment(played: StepEpisodes) -> dict[str, float]:
    """The metrics of each environment of a mixture, and its number of groups."""
    metrics: dict[str, float] = {}
    for name in dict.fromkeys(one.task.env for one in played.played if one.task.env):
        groups = [one.episodes for one in played.played if one.task.env == name]
        own = {"groups": float(len(groups)), **mean_metrics([e for group in groups for e in group])}
        metrics |= {f"env/{name}/{key}": value for key, value in own.items()}
    return metrics
