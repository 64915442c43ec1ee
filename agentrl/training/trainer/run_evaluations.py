"""Evaluations of a run on held-out seeds: scripted players, before, during and after training."""

import asyncio
import logging
from collections.abc import Sequence

from agentrl.algorithms.core.algorithm import check_state_keys
from agentrl.errors import WorldError
from agentrl.rollout.rollout_plan import baseline_players
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.runs.rings import ring_label
from agentrl.runs.run_folder import RunFolder
from agentrl.training import env_seeds
from agentrl.training.evaluation.held_out_evaluation import (
    Evaluation,
    play_held_out,
    warn_of_failed_ring,
)
from agentrl.training.monitoring.run_stages import RunStages
from agentrl.training.monitoring.training_health import (
    idle_policy_warning,
    invalid_replies_warning,
    noop_warning,
)
from agentrl.training.plan.job_plan import JobPlan
from agentrl.training.sampling.task_pool import GroupTask
from agentrl.training.sampling.task_sampler import PlayedTask
from agentrl.types import ScoredEpisode

log = logging.getLogger(__name__)


class RunEvaluations:
    """Plays and reports a run's evaluations that are not in its state yet.

    Args:
        plan: the job.
        folder: the run's folder.
        rollouts: play the episodes.
        progress: shows and times the stages.
        playing: lock held while an evaluation plays; training steps hold it too.
        needs_success: whether the sampler needs `sampling.success_at` of every episode.
    """

    def __init__(
        self,
        plan: JobPlan,
        folder: RunFolder,
        rollouts: Rollouts,
        progress: RunStages,
        playing: asyncio.Lock,
        *,
        needs_success: bool,
    ) -> None:
        self._plan, self._folder, self._rollouts = plan, folder, rollouts
        self._progress, self._state, self._reporter = progress, progress.state, progress.reporter
        self._playing, self._needs_success = playing, needs_success
        self.best_step: int | None = None
        """Step with the best evaluation so far, if this process played it."""

    async def evaluate_baselines(self) -> None:
        """Play the held-out seeds with the scripted players, for comparison with the model."""
        have_played = False
        for player in baseline_players(self._plan.play):
            # A resumed run has played some of them.
            if self._begin(player):
                await self._evaluate_rings(f"baseline {player}", player, player=player)
                self._finish(player)
                have_played = True
        if have_played and (warning := noop_warning(self._state.results)) is not None:
            log.warning("%s", warning)

    async def evaluate_sampled_and_greedy(self, when: str) -> None:
        """Evaluate the model both with sampling, as in rollouts, and greedily."""
        if not self._begin(when):
            return
        for name, greedy in (("sampled", False), ("greedy", True)):
            await self._evaluate_rings(f"evaluation {when}, {name}", when, name, greedy=greedy)
        self._finish(when)
        sampled = self._state.results[when]["sampled"]
        warning = invalid_replies_warning(sampled) if when == "before" else None
        if when == "after":
            warning = idle_policy_warning(sampled, self._state.results)
        if warning is not None:
            log.warning("%s", warning)

    @property
    def is_due(self) -> bool:
        """Whether to evaluate now: every `eval.every` steps and after the last step.

        The last step is included because the evaluation after training plays more episodes and
        is therefore not comparable with evaluations during training.
        """
        settings, step = self._plan.settings, self._state.step
        every = settings.eval.every
        return bool(every and step) and (step % every == 0 or step == settings.train.steps)

    async def evaluate_step(self) -> None:
        """Evaluate the last step's weights, with fewer episodes than before and after training."""
        step = self._state.step
        with self._progress.stage("evaluation during"):
            episodes = self._plan.settings.eval.episodes_during
            found = await self._evaluate(f"step {step}", episodes=episodes, note=f"step {step}")
        self._reporter.evaluation(step, found.metrics)
        reward = found.metrics["reward"]
        if self._state.best is None or reward > self._state.best:
            self._state.best, self.best_step = reward, step

    async def _evaluate_rings(
        self, stage: str, *keys: str, player: str | None = None, greedy: bool = False
    ) -> None:
        """Evaluate on the held-out seeds, and then in each ring of `eval.rings`.

        Every part is kept as soon as it is played, so a resumed run plays only the others. A ring
        that fails is left out with a warning, because all other results are valid.

        Args:
            stage: the stage to show.
            keys: where the result belongs in `results`, such as `after`, `sampled`.
            player: a scripted player; None for the model.
            greedy: the model always takes its most probable token.
        """
        name, results = " ".join(keys), self._state.results
        for key in keys[:-1]:
            results = results.setdefault(key, {})
        if keys[-1] not in results:
            with self._progress.stage(stage):
                found = await self._evaluate(name, player=player, greedy=greedy)
            results[keys[-1]] = found.summary()
            self._folder.save_state(self._state)
        result = results[keys[-1]]
        for ring, count in self._plan.play.ring_episodes.items():
            label = ring_label(name, ring)
            if ring in result.get("rings", {}):
                continue
            try:
                with self._progress.stage(f"{stage}, unseen {ring}"):
                    found = await self._evaluate(
                        label, episodes=count, player=player, greedy=greedy, ring=ring
                    )
            except WorldError as error:
                warn_of_failed_ring(label, error)
            else:
                result.setdefault("rings", {})[ring] = found.summary()
                self._folder.save_state(self._state)

    async def _evaluate(
        self,
        name: str,
        *,
        episodes: int | None = None,
        note: str = "",
        player: str | None = None,
        greedy: bool = False,
        ring: str | None = None,
    ) -> Evaluation:
        settings = self._plan.settings.eval
        mixture = self._plan.weights if ring is None else {ring: 1.0}
        count = settings.episodes if episodes is None else episodes
        async with self._playing, self._progress.watched(count * len(mixture), note):
            found = await play_held_out(
                self._rollouts,
                env_seeds.evaluation_seeds(settings, count),
                name=name,
                step=self._state.step,
                player=player,
                greedy=greedy,
                mixture=mixture,
                check=self._check,
            )
        self._folder.add_evaluation(found.record(name, self._state.step))
        return found

    def _check(self, played: Sequence[ScoredEpisode]) -> None:
        """Check episodes in the first evaluation, to fail before the first training step.

        Raises:
            ConfigError: the environment does not provide what the algorithm or sampler requires.
        """
        check_state_keys([played], self._plan.learner.algorithm)
        if self._needs_success:
            group = PlayedTask(task=GroupTask(env="", seed=0), episodes=played)
            group.successes(self._plan.settings.sampling.success_at)

    def _begin(self, name: str) -> bool:
        """Return whether an evaluation has parts to play, and note that it is under way."""
        state = self._state
        if name in state.results and name != state.unfinished:
            return False
        state.unfinished = name
        return True

    def _finish(self, name: str) -> None:
        self._state.unfinished = None
        self._reporter.result(name, self._state.results[name])
        self._folder.save_state(self._state)
