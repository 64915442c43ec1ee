"""Score episodes with the configured reward functions."""

import asyncio
import itertools
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import numpy as np

from agentrl.config import RewardConfig
from agentrl.data.reward_inputs import CHATML, QueryFormat, env_reward
from agentrl.errors import ConfigError, RewardError
from agentrl.event_loop import post
from agentrl.extension_points import REWARD
from agentrl.rollout.rewards.other_trainer_signatures import check_columns
from agentrl.rollout.rewards.reward_calls import OVERALL, RewardSpec
from agentrl.rollout.rewards.reward_pool import RewardPool
from agentrl.rollout.rewards.reward_process_messages import Result
from agentrl.rollout.rewards.reward_queue import Results
from agentrl.text.name_suggestions import list_names
from agentrl.types import Episode, Outcome, ScoredEpisode

DEADLINE = "rollout.reward_deadline_s"
_Answers = list[Future[Results]]
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_AT_ONCE, _WITH_IMAGES_AT_ONCE = 128, 2
_OWN = "agentrl.data.reward_inputs:env_reward"
"""The environment's own reward, which needs no separate process."""


class RewardFunctions:
    """Weighted sum of reward functions; the environment's own reward if none is configured.

    The functions run in a separate process (`RewardPool`), which ends with `close`, or with this
    object.

    Args:
        rewards: the functions. A class is instantiated once with its kwargs, and the object is
            called without them.
        deadline_s: time limit for a function call, in seconds.
        form: the playing model's chat format, for functions that receive text in this format.
        setting: the deadline's setting, for messages.
        retries: whether to retry a failed batch call for each episode alone.

    Raises:
        ConfigError: a function does not exist, cannot be called, or does not accept its kwargs.
    """

    def __init__(
        self,
        rewards: Sequence[RewardConfig],
        deadline_s: float = 60.0,
        form: QueryFormat = CHATML,
        setting: str = DEADLINE,
        retries: bool = True,
    ) -> None:
        specs = [RewardSpec(function=r.function, kwargs=r.kwargs, kind=r.kind) for r in rewards]
        self._weights = [reward.weight for reward in rewards] or [1.0]
        is_own = len(specs) < 2 and all(REWARD.target(s.function) == _OWN for s in specs)
        self._pool = None if is_own else RewardPool(specs, deadline_s, setting, form, retries)
        self.close = weakref.finalize(self, self._pool.close) if self._pool else lambda: None
        """Ends the process."""
        self._infos = self._pool.infos if self._pool else []
        self._names = [info.name for info in self._infos] or [env_reward.__name__]

    def __enter__(self) -> "RewardFunctions":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def reads_images(self) -> bool:
        """Whether a function needs images, so that recorded episodes' images must be loaded."""
        return any(info.reads_images for info in self._infos)

    @property
    def accept_at(self) -> float:
        """The total at which an audit counts an episode as accepted, from the first function."""
        return next((info.accept_at for info in self._infos), 0.5)

    def explain(self, episode_id: str) -> str | None:
        """Return why an episode got its score, from the first function that knows it."""
        return self._pool.explain(episode_id) if self._pool else None

    @property
    def require_columns(self) -> bool:
        """Whether a function takes data set columns by name."""
        return any(info.required_columns for info in self._infos)

    @property
    def need_answers(self) -> bool:
        """Whether a function's signature always includes the right answer."""
        return any(info.needs_answer for info in self._infos)

    def check_columns(self, columns: Collection[str], *, has_answers: bool) -> None:
        """Check that a data set has the columns and answers that the functions take.

        Raises:
            ConfigError: the data set lacks a column, or answers.
        """
        for info in self._infos:
            check_columns(info.name, info.required_columns, columns)
            if info.needs_answer and not has_answers:
                raise ConfigError(
                    f"rewards: {info.name} takes the right answer as ground_truth, but the data "
                    "has no answers; name their column with env.kwargs.keys={answer: COLUMN}. "
                    f"The columns are {list_names(sorted(columns))}"
                )

    def score(self, episode: Episode) -> ScoredEpisode:
        """Return all components and their weighted sum; a void episode has no reward.

        Raises:
            RewardError: a function failed, took too long, ended its process or did not return a
                valid reward, or no function applies to the episode.
            ConfigError: raised by a function.
        """
        scored = next(self.score_all([episode]))
        if isinstance(scored, RewardError):
            raise scored
        return scored

    async def score_async(self, episode: Episode) -> ScoredEpisode:
        """Score an episode like `score`, without blocking the event loop."""
        pool = self._pool
        if pool is None or not _is_scorable(episode):
            return self._scored(episode, [])
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Results] = loop.create_future()

        # The pool answers in its own thread, and asyncio futures are not thread-safe.
        def settle(done: Future[Results]) -> None:
            # The episode may have been cancelled in the meantime.
            if answer.done():
                return
            if (error := done.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(done.result())

        pool.submit(episode).add_done_callback(lambda done: post(loop, partial(settle, done)))
        return self._scored(episode, await answer)

    def score_all(self, episodes: Iterable[Episode]) -> Iterator[ScoredEpisode | RewardError]:
        """Yield each episode's score, or the reason why scoring failed, in order.

        Raises:
            ConfigError: raised by a function.
        """
        at_once = _WITH_IMAGES_AT_ONCE if self.reads_images else _AT_ONCE
        source, sent = iter(episodes), deque[tuple[list[Episode], _Answers]]()
        while some := list(itertools.islice(source, at_once)):
            scorable = [episode for episode in some if _is_scorable(episode)]
            sent.append((some, self._pool.submit_all(scorable) if self._pool else []))
            # Wait for results while the next episodes are being scored.
            if len(sent) > 1:
                yield from self._received(*sent.popleft())
        for one in sent:
            yield from self._received(*one)

    def _received(
        self, episodes: Sequence[Episode], answers: "_Answers"
    ) -> Iterator[ScoredEpisode | RewardError]:
        left = iter(answers)
        for episode in episodes:
            is_sent = self._pool is not None and _is_scorable(episode)
            try:
                yield self._scored(episode, next(left).result() if is_sent else [])
            except RewardError as error:
                yield error

    def _scored(self, episode: Episode, results: Sequence[Result | None]) -> ScoredEpisode:
        count = len(episode.turns)
        if not _is_scorable(episode):
            return ScoredEpisode(episode=episode, components={}, rewards=(0.0,) * count)
        if self._pool is None:
            results = [tuple(env_reward(episode))]
        components: dict[str, tuple[float, ...]] = {}
        weights: dict[str, float] = {}
        totals = [0.0] * count
        for name, weight, result in zip(self._names, self._weights, results, strict=True):
            assert result is not None, "each function has returned"
            own: tuple[float, ...] | None = None
            if isinstance(result, dict):
                # A batch function's row counts for the last turn, and is empty if not applicable.
                before = (0.0,) * (count - 1)
                for key, value in result.items():
                    components[name if key == OVERALL else f"{name}/{key}"] = (*before, value)
                own = components[name] if result else None
            else:
                own = components[name] = result
            if own is not None:
                weights[name] = weight
                totals = [t + weight * c for t, c in zip(totals, own, strict=True)]
        if not components:
            names = ", ".join(self._names)
            raise RewardError(
                f"no reward function applies to this episode: {names} returned None; at least one "
                "must return a reward"
            )
        # The learner computes in float32.
        if not all(abs(total) <= _FLOAT32_MAX for total in (*totals, sum(totals))):
            raise RewardError(f"the rewards {totals} add up to {sum(totals)}, which is too large")
        return ScoredEpisode(
            episode=episode, components=components, rewards=tuple(totals), weights=weights
        )


def _is_scorable(episode: Episode) -> bool:
    return bool(episode.turns) and not episode.outcome.void


async def score_or_void(
    score: Callable[[Episode], Awaitable[ScoredEpisode]], episode: Episode
) -> tuple[ScoredEpisode, RewardError | None]:
    """Score an episode, or make it void if scoring fails.

    Returns:
        The episode, and the scoring error or None.
    """
    try:
        scored = await score(episode)
        # Only reward functions need the images, which would stay in memory with the episode.
        if episode.final_images:
            scored = replace(scored, episode=replace(scored.episode, final_images=()))
        return scored, None
    except RewardError as error:
        failure = error
    void = replace(
        episode,
        outcome=Outcome.ENV_ERROR,
        error=f"RewardError: {failure}",
        failure=failure,
        truncated_by=None,
        final_images=(),
    )
    rewards = (0.0,) * len(episode.turns)
    return ScoredEpisode(episode=void, components={}, rewards=rewards), failure
