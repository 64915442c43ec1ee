"""Play the episode groups of training steps, optionally while the learner updates.

Groups without a learning signal are replaced. Staleness is bounded.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from agentrl.algorithms.core.algorithm import Algorithm, method_boundary, most_varied_groups
from agentrl.config import RolloutConfig
from agentrl.errors import LearnerError, boundary
from agentrl.rollout.collector import CollectionProgress, requests_of_step
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.training.evaluation.held_out_evaluation import mean_metrics
from agentrl.training.monitoring.training_health import repetition_share
from agentrl.training.sampling.task_pool import GroupTask
from agentrl.training.sampling.task_sampler import PlayedTask, TaskSampler, chosen_tasks
from agentrl.types import ScoredEpisode, Turn

T = TypeVar("T")
ShowProgress = Callable[[int, str], AbstractAsyncContextManager[None]]
"""Takes a number of episodes and a note, and shows progress while the block runs."""


@dataclass(slots=True, kw_only=True, frozen=True)
class StepEpisodes:
    """The episodes of one training step."""

    groups: list[list[ScoredEpisode]]
    """Groups to train on; old episodes that join a group are marked `replayed`."""
    greedy: list[float] | None
    """The greedy policy's return on each group's seed; None if the algorithm does not need it."""
    played: list[PlayedTask]
    """All groups that were played, including replaced groups, without old episodes."""
    progress: CollectionProgress
    """Counts over all groups, including replaced groups."""
    dropped: int
    """Number of groups without a learning signal, which were replaced."""
    left_out: int
    """Number of groups left out by `algorithm.sampling.keep_varied`."""
    seconds: float

    def metrics(self) -> dict[str, float]:
        """Return rewards, void episodes and throughput; for a mixture, also by environment."""
        episodes = [one for group in self.groups for one in group if not one.replayed]
        turns = [turn for one in episodes for turn in one.episode.turns]
        tokens = sum(len(turn.reply_ids) for turn in turns)
        return {
            **{f"train/{k}": v for k, v in mean_metrics(episodes).items()},
            **{f"train/{k}": v for k, v in self.progress.unscored_metrics().items()},
            **{f"rollout/{k}": v for k, v in self.progress.void_metrics().items()},
            "rollout/missing": sum(one.episode.outcome.void for one in episodes),
            "rollout/dropped_groups": float(self.dropped),
            "rollout/left_out_groups": float(self.left_out),
            "rollout/tokens_per_turn": tokens / max(1, sum(bool(turn.reply_ids) for turn in turns)),
            "rollout/repetition": repetition_share(turn.reply_ids for turn in turns),
            "rollout/turns_per_s": len(turns) / self.seconds,
            "rollout/tokens_per_s": tokens / self.seconds,
            "rollout/episodes_per_s": len(episodes) / self.seconds,
            **_chunk_metrics(turns),
            **self._metrics_by_environment(),
        }

    def _metrics_by_environment(self) -> dict[str, float]:
        """Return each environment's metrics and number of groups in a mixture."""
        metrics: dict[str, float] = {}
        for name in dict.fromkeys(one.task.env for one in self.played if one.task.env):
            groups = [one.episodes for one in self.played if one.task.env == name]
            own = mean_metrics([episode for group in groups for episode in group])
            own = {"groups": float(len(groups)), **own}
            metrics |= {f"env/{name}/{key}": value for key, value in own.items()}
        return metrics


def _own_return(scored: ScoredEpisode) -> float:
    """Return the sum of the rewards of the turns that the policy itself played."""
    turns = zip(scored.episode.turns, scored.rewards, strict=True)
    return sum((reward for turn, reward in turns if turn.reply_ids), 0.0)


def _chunk_metrics(turns: Sequence[Turn]) -> dict[str, float]:
    """Return the mean number of executed actions if a reply may have several."""
    if not any(turn.chunk for turn in turns):
        return {}
    return {"rollout/actions_per_turn": sum(len(turn.chunk) for turn in turns) / len(turns)}


class StepCollector:
    """Plays the training steps of a run.

    Args:
        rollout: settings with the number of groups and members.
        algorithm: decides which groups are kept, and whether the greedy policy plays too.
        sampler: chooses each group's task, and the old episodes that join the group.
        rollouts: play the episodes.
        show_progress: shows the progress of the episodes.
        playing: lock held while a step plays; evaluations hold it too.
    """

    def __init__(
        self,
        rollout: RolloutConfig,
        algorithm: Algorithm,
        sampler: TaskSampler,
        rollouts: Rollouts,
        show_progress: ShowProgress,
        playing: asyncio.Lock,
    ) -> None:
        self._rollout, self._algorithm, self._sampler = rollout, algorithm, sampler
        self._rollouts, self._show_progress = rollouts, show_progress
        self._playing = playing

    async def collect_step(self, step: int) -> StepEpisodes:
        """Play all episodes that a step trains on.

        Raises:
            WorldError: more than half of the episodes are void, or no phone is left.
        """
        async with self._playing:
            started, algorithm = time.perf_counter(), self._algorithm
            wanted, progress = self._rollout.groups, CollectionProgress()
            played: list[PlayedTask] = []
            groups: list[list[ScoredEpisode]] = []
            kept: list[int] = []
            for attempt in range(algorithm.attempts):
                tasks = chosen_tasks(self._sampler, step, wanted - len(kept), attempt)
                new = await self._collect_attempt(step, attempt, tasks)
                played += new
                groups += [self._with_replayed(step, one) for one in new]
                progress += self._rollouts.progress
                with method_boundary(algorithm, "keep_group"):
                    kept = [i for i, group in enumerate(groups) if algorithm.keep_group(group)]
                if len(kept) >= wanted:
                    break
            # After the last refill, use groups without a learning signal. A step without any
            # learning signal is not an error.
            usable, greedy = (kept or [*range(len(groups))])[:wanted], None
            fraction = algorithm.config.sampling.keep_varied
            varied = most_varied_groups([groups[i] for i in usable], fraction)
            used = [usable[i] for i in varied]
            if algorithm.requires.greedy:
                greedy = await self._greedy_returns(step, [played[i].task for i in used])
            return StepEpisodes(
                groups=[groups[i] for i in used],
                greedy=greedy,
                played=played,
                progress=progress,
                dropped=len(played) - len(kept),
                left_out=len(usable) - len(used),
                seconds=time.perf_counter() - started,
            )

    async def _collect_attempt(
        self, step: int, attempt: int, tasks: Sequence[GroupTask]
    ) -> list[PlayedTask]:
        size = self._rollout.group_size
        first = attempt * self._rollout.groups
        seeds, envs = [task.seed for task in tasks], [task.env for task in tasks]
        requests = requests_of_step("train", step, seeds, size, first=first, envs=envs)
        async with self._show_progress(len(requests), f"step {step}"):
            episodes = await self._rollouts.collect(requests)
        return [
            PlayedTask(task=task, episodes=episodes[index * size : (index + 1) * size])
            for index, task in enumerate(tasks)
        ]

    def _with_replayed(self, step: int, played: PlayedTask) -> list[ScoredEpisode]:
        """Return a group together with the old episodes that join it."""
        with boundary(LearnerError, f"sampling.name={self._sampler.config.name}: replay() fails"):
            old = self._sampler.replay(step, played)
        return [*played.episodes, *(replace(scored, replayed=True) for scored in old)]

    async def _greedy_returns(self, step: int, tasks: Sequence[GroupTask]) -> list[float]:
        """Return the greedy policy's return on each task; 0 for a void episode.

        Like the others' returns, it leaves out what a scripted player earned before
        (`env.start`).
        """
        seeds, envs = [task.seed for task in tasks], [task.env for task in tasks]
        requests = requests_of_step("train", step, seeds, 1, "greedy", envs=envs)
        async with self._show_progress(len(requests), f"step {step}, greedy"):
            episodes = await self._rollouts.collect(requests, greedy=True)
        return [0.0 if one.episode.outcome.void else _own_return(one) for one in episodes]


class RolloutPrefetcher(Generic[T]):
    """Plays step after step in a background task, at most `lag` updates ahead of the learner.

    Args:
        collect_step: plays one step.
        first: the first step.
        last: the last step, inclusive.
        lag: number of updates that a step's weights may be behind when it starts; with 0, each step
            waits for the previous update.
    """

    def __init__(
        self, collect_step: Callable[[int], Awaitable[T]], first: int, last: int, lag: int
    ) -> None:
        self._collect_step, self._steps = collect_step, range(first, last + 1)
        self._slots = asyncio.Semaphore(lag + 1)
        self._played: asyncio.Queue[T | BaseException] = asyncio.Queue()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            for step in self._steps:
                await self._slots.acquire()
                self._played.put_nowait(await self._collect_step(step))
        except Exception as error:  # raised again in `next_step`
            self._played.put_nowait(error)

    async def next_step(self) -> T:
        """Return the next step once it is played.

        Raises:
            AgentRLError: playing the step failed.
        """
        played = await self._played.get()
        if isinstance(played, BaseException):
            raise played
        return played

    def mark_trained(self) -> None:
        """Note that the last returned step is trained on and its weights are published."""
        self._slots.release()

    async def close(self) -> None:
        """Stop playing."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
