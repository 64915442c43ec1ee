"""Collect groups of scored episodes, with many in flight that never wait for each other."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from agentrl.errors import RewardError, WorldError
from agentrl.rollout.failure_log import FailureLog
from agentrl.rollout.make_env import Split
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.types import Episode, Outcome, ScoredEpisode, cause
from agentrl.worker_threads import Workers

Play = Callable[[EpisodeRequest], Awaitable[Episode]]
"""Plays one requested episode; failures of phone or environment become its outcome."""


@dataclass(slots=True, kw_only=True)
class CollectionProgress:
    """Counts of what has been played so far."""

    episodes: int = 0
    turns: int = 0
    tokens: int = 0
    void: Counter[str] = field(default_factory=Counter)
    """Void episodes by cause, including those that were refilled."""

    def __add__(self, other: "CollectionProgress") -> "CollectionProgress":
        return CollectionProgress(
            episodes=self.episodes + other.episodes,
            turns=self.turns + other.turns,
            tokens=self.tokens + other.tokens,
            void=self.void + other.void,
        )

    def void_metrics(self) -> dict[str, float]:
        """Number and share of void episodes, in total and by cause.

        A growing share may mean that the policy learns to void episodes that it is losing.
        """
        total = max(1, self.episodes)
        count = self.void.total()
        metrics: dict[str, float] = {"void": count, "void_share": count / total}
        for reason, voided in self.void.items():
            metrics[f"void/{reason}"] = voided
            metrics[f"void_share/{reason}"] = voided / total
        return metrics


def requests_of_step(
    split: Split,
    step: int,
    seeds: Sequence[int | Sequence[int]],
    group_size: int,
    label: str = "",
    first: int = 0,
) -> list[EpisodeRequest]:
    """Requests for one group per seed, numbered from `first`.

    The members of a group share its seed; a sequence gives each member its own.
    """
    return [
        EpisodeRequest(
            split=split,
            step=step,
            group=group,
            member=member,
            seed=seed if isinstance(seed, int) else seed[member],
            label=label,
        )
        for group, seed in enumerate(seeds, start=first)
        for member in range(group_size)
    ]


class Collector:
    """Plays requested episodes with a bounded number in flight.

    Args:
        play: plays one episode.
        score: scores an episode; may raise RewardError.
        concurrency: maximum number of episodes in flight.
        max_refills: maximum number of void episodes that are replaced, per call.
        on_episode_end: called with each episode when it ends, including void ones.
        progress: is updated after each episode.
        scorers: the scoring threads, one per episode: one that hangs is abandoned and delays no
            other.
        score_deadline_s: deadline for scoring one episode.
        raise_on_reward_error: whether an episode that cannot be scored ends the collection,
            instead of being void.
        failures: logs why episodes are void; shared by collections that may fail alike.
    """

    def __init__(
        self,
        play: Play,
        score: Callable[[Episode], ScoredEpisode],
        concurrency: int,
        max_refills: int,
        on_episode_end: Callable[[EpisodeRequest, ScoredEpisode], None],
        progress: CollectionProgress,
        scorers: Workers,
        score_deadline_s: float = 60.0,
        raise_on_reward_error: bool = False,
        failures: FailureLog | None = None,
    ) -> None:
        self._play = play
        self._score = score
        self._concurrency = concurrency
        self._max_refills = max_refills
        self._on_episode_end = on_episode_end
        self._progress = progress
        self._scorers = scorers
        self._score_deadline_s = score_deadline_s
        self._raise_on_reward_error = raise_on_reward_error
        self._failures = failures or FailureLog()

    async def collect(self, requests: Sequence[EpisodeRequest]) -> list[ScoredEpisode]:
        """Play all requests; void episodes are refilled, up to `max_refills`.

        Returns:
            One scored episode per request, in the order of the requests; void if the refills
            ran out.

        Raises:
            WorldError: more than half of the episodes are void, or no phone is left.
            RewardError: an episode cannot be scored, with `raise_on_reward_error`.
        """
        pending = deque(enumerate(requests))
        results: dict[int, ScoredEpisode] = {}
        refills = self._max_refills

        async def worker() -> None:
            nonlocal refills
            while pending:
                index, request = pending.popleft()
                scored, failure = await self._scored(await self._play(request))
                self._count(scored)
                self._failures.add(scored.episode)
                self._on_episode_end(request, scored)
                if failure is not None and self._raise_on_reward_error:
                    raise RewardError(
                        f"{scored.episode.id}: {failure}. With rollout.reward_failure=void the "
                        "episode would be replaced instead"
                    )
                if scored.episode.outcome.void and refills > 0:
                    refills -= 1
                    pending.append((index, replace(request, attempt=request.attempt + 1)))
                else:
                    results[index] = scored

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrency, len(requests))):
                    group.create_task(worker())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            self._failures.log_repeated()
        episodes = [results[index] for index in range(len(requests))]
        void = [e for e in episodes if e.episode.outcome.void]
        if 2 * len(void) > len(episodes):
            # The episodes that survived would be a biased sample.
            raise WorldError(
                f"{len(void)} of {len(episodes)} episodes are void (failed through no fault of the "
                f"agent): {_causes(void)}"
            )
        return episodes

    async def _scored(self, episode: Episode) -> tuple[ScoredEpisode, RewardError | None]:
        try:
            async with asyncio.timeout(self._score_deadline_s):
                return await self._scorers.call(self._score, episode), None
        except RewardError as error:
            failure = error
        except TimeoutError:
            failure = RewardError(
                f"no reward within rollout.reward_deadline_s={self._score_deadline_s:g} s"
            )
        return _without_reward(episode, failure), failure

    def _count(self, scored: ScoredEpisode) -> None:
        self._progress.episodes += 1
        self._progress.turns += len(scored.episode.turns)
        self._progress.tokens += sum(len(t.reply_ids) for t in scored.episode.turns)
        reason = cause(scored.episode.outcome, scored.episode.error)
        if reason is not None:
            self._progress.void[reason] += 1


def _without_reward(episode: Episode, error: RewardError) -> ScoredEpisode:
    void = replace(episode, outcome=Outcome.ENV_ERROR, error=f"RewardError: {error}")
    return ScoredEpisode(episode=void, components={}, rewards=(0.0,) * len(episode.turns))


def _causes(episodes: Sequence[ScoredEpisode]) -> str:
    """The three most frequent errors."""
    counts: dict[str, int] = {}
    for scored in episodes:
        error = scored.episode.error or scored.episode.outcome.value
        counts[error] = counts.get(error, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])[:3]
    return "; ".join(f"{count} x {error}" for error, count in ranked)
