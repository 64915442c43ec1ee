"""Collect groups of scored episodes, many in flight, none waiting for another."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from agentrl.errors import RewardError, WorldError
from agentrl.rollout.episode_request import Split, Ticket
from agentrl.types import Episode, Outcome, ScoredEpisode, cause
from agentrl.worker_threads import Workers

log = logging.getLogger(__name__)

Play = Callable[[Ticket], Awaitable[Episode]]
"""Plays one ticket to its end; never raises for a failure of the world."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """What has been played so far; read by whoever displays it."""

    episodes: int = 0
    turns: int = 0
    tokens: int = 0
    void: Counter[str] = field(default_factory=Counter)
    """Void episodes by cause, those that were played again as well."""

    def __add__(self, other: "Progress") -> "Progress":
        return Progress(
            episodes=self.episodes + other.episodes,
            turns=self.turns + other.turns,
            tokens=self.tokens + other.tokens,
            void=self.void + other.void,
        )

    def void_metrics(self) -> dict[str, float]:
        """How many of all the episodes were void, and what share of them, by cause.

        A share that grows is how a policy shows that learns to void the games it is losing.
        """
        total = max(1, self.episodes)
        count = self.void.total()
        numbers: dict[str, float] = {"void": count, "void_share": count / total}
        for reason, voided in self.void.items():
            numbers[f"void/{reason}"] = voided
            numbers[f"void_share/{reason}"] = voided / total
        return numbers


def tickets_of_step(
    split: Split,
    step: int,
    seeds: Sequence[int | Sequence[int]],
    group_size: int,
    label: str = "",
    first: int = 0,
) -> list[Ticket]:
    """One group for each seed, which its members share, or for each sequence of their own seeds.

    Groups are numbered from `first`.
    """
    return [
        Ticket(
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
    """Plays tickets with a bounded number of episodes in flight.

    Args:
        play: plays one ticket.
        score: scores an episode; may raise RewardError.
        concurrency: episodes in flight, at most.
        max_refills: void episodes played again, per call.
        done: told of each episode as it ends, void ones too.
        progress: counts what has been played, while it is played.
        scorers: the threads that score, one for each episode: one that hangs is left behind, and
            delays no other.
        score_s: deadline of one episode's scoring.
        must_score: an episode that cannot be scored ends the collection, instead of being void.
    """

    def __init__(
        self,
        play: Play,
        score: Callable[[Episode], ScoredEpisode],
        concurrency: int,
        max_refills: int,
        done: Callable[[Ticket, ScoredEpisode], None],
        progress: Progress,
        scorers: Workers,
        score_s: float = 60.0,
        must_score: bool = False,
    ) -> None:
        self._play = play
        self._score = score
        self._concurrency = concurrency
        self._max_refills = max_refills
        self._done = done
        self._progress = progress
        self._scorers = scorers
        self._score_s = score_s
        self._must_score = must_score
        self._told: set[str] = set()

    async def collect(self, tickets: Sequence[Ticket]) -> list[ScoredEpisode]:
        """Play all tickets; void episodes are refilled while the bound allows.

        Returns:
            One scored episode per ticket, in the order of the tickets; void where the refills
            ran out.

        Raises:
            WorldError: more than half of the episodes are void, or no phone is left.
            RewardError: an episode cannot be scored, and must be.
        """
        waiting = deque(enumerate(tickets))
        results: dict[int, ScoredEpisode] = {}
        refills = self._max_refills

        async def worker() -> None:
            nonlocal refills
            while waiting:
                place, ticket = waiting.popleft()
                scored, failure = await self._scored(await self._play(ticket))
                self._count(scored)
                self._done(ticket, scored)
                if failure is not None and self._must_score:
                    raise RewardError(
                        f"{scored.episode.id}: {failure}. With rollout.reward_failure=void the "
                        "episode would be played again instead"
                    )
                if scored.episode.outcome.void and refills > 0:
                    refills -= 1
                    waiting.append((place, replace(ticket, attempt=ticket.attempt + 1)))
                else:
                    results[place] = scored

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrency, len(tickets))):
                    group.create_task(worker())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        episodes = [results[place] for place in range(len(tickets))]
        void = [e for e in episodes if e.episode.outcome.void]
        if 2 * len(void) > len(episodes):
            # What is left would be those who survived: no fair sample of anything.
            raise WorldError(f"{len(void)} of {len(episodes)} episodes are void: {_causes(void)}")
        return episodes

    async def _scored(self, episode: Episode) -> tuple[ScoredEpisode, RewardError | None]:
        try:
            async with asyncio.timeout(self._score_s):
                return await self._scorers.call(self._score, episode), None
        except RewardError as error:
            failure = error
        except TimeoutError:
            failure = RewardError(f"none within {self._score_s:g} s")
        words = str(failure)
        if words not in self._told:  # a broken reward fails alike in every episode
            self._told.add(words)
            log.warning("%s is void, and so is who fails alike: %s", episode.id, words)
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
    """The distinct errors, most frequent first."""
    counts: dict[str, int] = {}
    for scored in episodes:
        error = scored.episode.error or scored.episode.outcome.value
        counts[error] = counts.get(error, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])[:3]
    return "; ".join(f"{count} x {error}" for error, count in ranked)
