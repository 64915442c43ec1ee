"""Collect groups of scored episodes, playing many concurrently without barriers."""

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from agentrl.errors import (
    EnvCrashed,
    EnvError,
    EnvLost,
    RewardError,
    WorldError,
    describe_error,
)
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.text.formatting import pluralize
from agentrl.types import Episode, ScoredEpisode, Split, TruncatedBy

log = logging.getLogger(__name__)


class EpisodeWorker(Protocol):
    """Plays requested episodes for a `Collector`, several at the same time."""

    @property
    def number(self) -> int:
        """Number of the worker; see `RequestQueue`."""

    @property
    def room(self) -> tuple[int, int]:
        """Maximum and minimum number of concurrent episodes."""

    async def wait_until_ready(self) -> bool:
        """Wait while the worker is being replaced; return False if it can play no more."""

    async def play_request(
        self, request: EpisodeRequest, player: str | None, greedy: bool
    ) -> ScoredEpisode | None:
        """Play, score and record one episode; a phone or environment failure makes it void.

        Returns:
            None if the worker was lost, so that the episode has to be played again.
        """


@dataclass(slots=True, kw_only=True)
class CollectionProgress:
    """Counts of the episodes played so far."""

    episodes: int = 0
    turns: int = 0
    tokens: int = 0
    context_full: int = 0
    """Number of episodes truncated because their next prompt would not have fit the context."""
    void: Counter[str] = field(default_factory=Counter)
    """Number of void episodes by cause, including refilled episodes."""

    def __add__(self, other: "CollectionProgress") -> "CollectionProgress":
        return CollectionProgress(
            episodes=self.episodes + other.episodes,
            turns=self.turns + other.turns,
            tokens=self.tokens + other.tokens,
            context_full=self.context_full + other.context_full,
            void=self.void + other.void,
        )

    def add(self, scored: ScoredEpisode) -> None:
        """Count an episode that has ended."""
        episode = scored.episode
        self.episodes += 1
        self.turns += len(episode.turns)
        self.tokens += sum(len(turn.reply_ids) for turn in episode.turns)
        self.context_full += episode.truncated_by is TruncatedBy.CONTEXT
        if (cause := episode.cause) is not None:
            self.void[cause] += 1

    def unscored_metrics(self) -> dict[str, float]:
        """Return the share of episodes that could not be scored, if any; means exclude them."""
        count = self.void.get(RewardError.__name__, 0)
        return {"unscored": count / self.episodes} if count else {}

    def void_metrics(self) -> dict[str, float]:
        """Return how many episodes are void, in total and by cause, or ran out of context."""
        # A growing share may mean that the policy learns to void episodes it is losing.
        total = max(1, self.episodes)
        count = self.void.total()
        metrics: dict[str, float] = {"void": count, "void_share": count / total}
        metrics["context_full"] = self.context_full / total
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
    envs: Sequence[str] | None = None,
) -> list[EpisodeRequest]:
    """Make the requests for one group per seed, numbering groups from `first`.

    The members of a group share its seed; a sequence of seeds gives each member its own. `envs`
    names each group's environment.
    """
    names = [""] * len(seeds) if envs is None else envs
    return [
        EpisodeRequest(
            split=split,
            step=step,
            group=group,
            member=member,
            seed=seed if isinstance(seed, int) else seed[member],
            label=label,
            env=env,
        )
        for group, (seed, env) in enumerate(zip(seeds, names, strict=True), start=first)
        for member in range(group_size)
    ]


class RequestQueue:
    """Queue of requests; each worker takes the next when it has room.

    A worker first continues a group that it has begun, whose prompts its engine may have cached,
    and then begins a new group. When all groups have begun, it takes requests from the worker with
    the most left.

    Args:
        requests: the requests, in the order in which to begin groups.
    """

    def __init__(self, requests: Sequence[EpisodeRequest]) -> None:
        self._new: dict[str, deque[tuple[int, EpisodeRequest]]] = {}
        self._begun: defaultdict[int, dict[str, deque[tuple[int, EpisodeRequest]]]]
        self._begun = defaultdict(dict)
        self._count = 0
        for index, request in enumerate(requests):
            self.put(index, request)

    def __len__(self) -> int:
        return self._count

    def put(self, index: int, request: EpisodeRequest) -> None:
        """Add a request; `index` identifies it."""
        self._new.setdefault(request.group_id, deque()).append((index, request))
        self._count += 1

    def take(self, worker: int) -> tuple[int, EpisodeRequest]:
        """Return the next request for a worker and its index; the queue must not be empty."""
        # Groups that this worker has begun come first: its engine may have cached their prompts.
        groups = self._begun[worker]
        if not groups and self._new:
            name = next(iter(self._new))
            groups[name] = self._new.pop(name)
        # All groups have begun, so help the worker with the most episodes left.
        if not groups:
            groups = max(self._begun.values(), key=lambda g: sum(map(len, g.values())))
        name = next(iter(groups))
        entry = groups[name].popleft()
        if not groups[name]:
            del groups[name]
        self._count -= 1
        return entry


class FailureLog:
    """Log of failed episodes; repeated failures are only counted, as many may be alike."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._repeated = Counter[str]()

    def add(self, episode: Episode) -> None:
        """Log a void episode's failure, or count it if the same failure was logged before."""
        if not episode.outcome.void:
            return
        error = episode.error or episode.outcome.value
        if error in self._known:
            self._repeated[error] += 1
            return
        self._known.add(error)
        log.warning("%s discarded after %d turns: %s", episode.id, len(episode.turns), error)

    def log_repeated(self) -> None:
        """Log how many episodes have failed for an already logged reason since the last call."""
        for error, count in self._repeated.items():
            episodes = pluralize(count, "more episode")
            log.warning("%s discarded for the same reason: %s", episodes, error)
        self._repeated.clear()


class Collector:
    """Collects the requested episodes from workers, in slots that each play one episode at a time.

    An episode that may have crashed its environment's process is replayed alone at the end, so that
    it cannot harm others; if it crashes again, it stays void. An episode's first crash does not
    count as a refill.

    Args:
        requests: what to play.
        max_refills: maximum number of void episodes to replace; evaluation episodes that could not
            be scored are never replaced.
        progress: updated after each episode.
        failures: logs why episodes are void; share it between collections with the same failures.
    """

    def __init__(
        self,
        requests: Sequence[EpisodeRequest],
        max_refills: int,
        progress: CollectionProgress,
        failures: FailureLog | None = None,
    ) -> None:
        self._queue = RequestQueue(requests)
        self._num_requests = len(requests)
        self._refills = max_refills
        self._progress = progress
        self._failures = failures or FailureLog()
        self._results: dict[int, ScoredEpisode] = {}
        self._crashed: set[int] = set()
        """Indices of requests voided by a crash, whether or not they caused it."""
        self._suspects: deque[tuple[int, EpisodeRequest]] = deque()
        """Requests that may have crashed a process, to be played alone."""
        self._num_playing = 0
        self._is_suspect_playing = False
        self._changed = asyncio.Event()

    async def collect_from(
        self, workers: Sequence[EpisodeWorker], player: str | None = None, greedy: bool = False
    ) -> list[ScoredEpisode]:
        """Play the requests concurrently, in as many slots as the workers have room for.

        Args:
            workers: play the episodes; if one is lost, the others play its requests.
            player: see `Rollouts.collect`.
            greedy: see `Rollouts.collect`.

        Returns:
            One scored episode per request, in the order of the requests; void if the refills
            ran out.

        Raises:
            WorldError: more than half of the episodes are void, or a worker raised this error.
            RewardError: more than half of the episodes are void, all because scoring failed; or a
                worker raised this error.
        """
        try:
            async with asyncio.TaskGroup() as group:
                slots = [
                    group.create_task(self._fill_slot(worker, player, greedy))
                    for worker in self._alternating(workers)
                ]
                while len(self._results) < self._num_requests:
                    self._changed.clear()
                    await self._changed.wait()
                # All others are idle, or wait for a worker that is being replaced.
                for slot in slots:
                    slot.cancel()
        except ExceptionGroup as failures:
            first, *others = failures.exceptions
            for other in others:
                log.warning("another worker failed as well: %s", describe_error(other))
            raise first from first.__cause__
        finally:
            self._failures.log_repeated()
        episodes = [self._results[index] for index in range(self._num_requests)]
        void = [e for e in episodes if e.episode.outcome.void]
        if 2 * len(void) > len(episodes):
            # The remaining episodes would be a biased sample.
            kinds = {type(e.episode.failure) for e in void}
            # If only the user's code has failed, it would fail again.
            kind = next((one for one in (RewardError, EnvError) if kinds == {one}), WorldError)
            causes = Counter(e.episode.error or e.episode.outcome.value for e in void)
            frequent = "; ".join(f"{count} x {error}" for error, count in causes.most_common(3))
            raise kind(
                f"{len(void)} of {len(episodes)} episodes are void (failed through no fault of the "
                f"agent): {frequent}"
            ) from next(filter(None, (e.episode.failure for e in void)), None)
        return episodes

    def _alternating(self, workers: Sequence[EpisodeWorker]) -> Iterator[EpisodeWorker]:
        """Yield a worker for each slot, alternating, so that groups are spread evenly."""
        rooms = [min(worker.room[0], self._num_requests) for worker in workers]
        for slot in range(max(rooms)):
            yield from (worker for worker, room in zip(workers, rooms, strict=True) if slot < room)

    async def _fill_slot(self, worker: EpisodeWorker, player: str | None, greedy: bool) -> None:
        """Let a worker play one request after another."""
        while await worker.wait_until_ready():
            await self._wait_for_request()
            is_alone = not self._queue
            index, request = (
                self._suspects.popleft() if is_alone else self._queue.take(worker.number)
            )
            self._num_playing, self._is_suspect_playing = self._num_playing + 1, is_alone
            try:
                scored = await worker.play_request(request, player, greedy)
            finally:
                self._num_playing, self._is_suspect_playing = self._num_playing - 1, False
                self._changed.set()
            if scored is None:
                self._put(index, request, is_suspect=is_alone)
                continue
            self._progress.add(scored)
            self._failures.add(scored.episode)
            if not self._plays_again(index, request, scored.episode, is_alone=is_alone):
                self._results[index] = scored

    def _plays_again(
        self, index: int, request: EpisodeRequest, episode: Episode, *, is_alone: bool
    ) -> bool:
        """Requeue a void episode's request unless refills ran out or the episode is to blame."""
        failure = episode.failure
        is_crash = isinstance(failure, EnvCrashed)
        if not episode.outcome.void or (is_alone and is_crash):
            return False
        # Otherwise a function that fails on wrong replies would score only right ones.
        if request.split == "eval" and isinstance(failure, RewardError):
            return False
        # The first crash costs no refill: another episode in the process may have caused it.
        if isinstance(failure, EnvCrashed | EnvLost) and index not in self._crashed:
            self._crashed.add(index)
        elif self._refills > 0:
            self._refills -= 1
        else:
            return False
        again = replace(request, attempt=request.attempt + 1)
        self._put(index, again, is_suspect=is_crash)
        return True

    def _put(self, index: int, request: EpisodeRequest, *, is_suspect: bool) -> None:
        if is_suspect:
            self._suspects.append((index, request))
        else:
            self._queue.put(index, request)

    async def _wait_for_request(self) -> None:
        """Wait until a request may be taken."""
        # Even when all requests have been taken, some may be requeued.
        while not (
            (self._queue and not self._is_suspect_playing)
            or (self._suspects and not self._queue and self._num_playing == 0)
        ):
            self._changed.clear()
            await self._changed.wait()
