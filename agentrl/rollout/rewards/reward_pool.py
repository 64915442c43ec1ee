"""Call reward functions in separate processes, with a deadline.

A call that takes too long or ends its process voids only the episode it scores: a new process
replaces the old, and scores the episodes that were waiting.
"""

import inspect
import itertools
import logging
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from agentrl import user_code
from agentrl.cluster.machine_resources import cores
from agentrl.data.reward_inputs import QueryFormat
from agentrl.errors import AgentRLError, ConfigError, RewardError
from agentrl.extension_points import REWARD
from agentrl.rollout.rewards import reward_process_messages
from agentrl.rollout.rewards.lazy_episode_transfer import pickled
from agentrl.rollout.rewards.loaded_reward import RewardInfo, load_rewards
from agentrl.rollout.rewards.reward_calls import RewardInputs, RewardSpec, prompt_messages
from agentrl.rollout.rewards.reward_process_handle import PooledProcess
from agentrl.rollout.rewards.reward_process_messages import ProcessSpec
from agentrl.rollout.rewards.reward_queue import SHORT_S, Queue, Results, ScoreRequest
from agentrl.types import Episode

log = logging.getLogger(__name__)

_MAX_PROCESSES = 32
_BACKLOG_S = 1.0
"""Start another process only if a process's waiting episodes, if quick to score, would take longer
than this: starting a process takes about as long."""


class RewardPool:
    """Reward functions in one process, or in several if episodes queue up.

    Only stateless functions of a single episode or answer use several processes: not classes, whose
    single instance sees all episodes, nor functions of whole batches.

    Args:
        rewards: the functions, which are loaded only in the process.
        deadline_s: time limit for a function call, in seconds.
        setting: the deadline's setting, for messages.
        form: the playing model's chat format, for functions that receive text in this format.
        retries: whether to retry a failed batch call for each episode alone.

    Raises:
        ConfigError: a function cannot be loaded.
    """

    def __init__(
        self,
        rewards: Sequence[RewardSpec],
        deadline_s: float,
        setting: str,
        form: QueryFormat,
        retries: bool = True,
    ) -> None:
        if reward_process_messages.is_loading:
            raise ConfigError(
                "a reward function's file starts a job when it is imported; move everything except "
                'definitions below `if __name__ == "__main__":`'
            )
        self._form = form
        spec = ProcessSpec(
            rewards=rewards,
            path=[entry or os.getcwd() for entry in sys.path if isinstance(entry, str)],
            roots=user_code.roots(),
            log_level=logging.getLogger().getEffectiveLevel(),
            deadline_s=deadline_s,
            deadline=f"{setting}={deadline_s:g} s",
            end=form.end,
            retries=retries,
        )
        self._queue = Queue(spec=spec, to_message=self._message, grow=self._grow)
        self._ids = itertools.count(1)
        self._left_out: set[str] = set()
        is_ours = all(_is_own_function(REWARD.target(reward.function)) for reward in rewards)
        if is_ours:
            self._queue.infos = [reward.info for reward in load_rewards(rewards)]
        self._processes = [PooledProcess(self._queue, is_lazy=is_ours)]
        try:
            self._queue.infos = self._processes[0].loaded.result()
        except AgentRLError:
            self.close()
            raise
        self._needs_prompt = any(info.is_batch for info in self.infos)

    @property
    def infos(self) -> Sequence[RewardInfo]:
        """Properties of each function."""
        return self._queue.infos

    def submit(self, value: Episode | RewardInputs) -> "Future[Results]":
        """Submit an episode for scoring; the future raises RewardError if scoring fails."""
        return self.submit_all([value])[0]

    def submit_all(self, values: Sequence[Episode | RewardInputs]) -> "list[Future[Results]]":
        """Submit episodes for scoring, in batches where the functions accept them."""
        jobs = [ScoreRequest(id=next(self._ids), value=value) for value in values]
        for job in jobs:
            # A request cannot be cancelled once a process may have it.
            job.answer.set_running_or_notify_cancel()
        with self._queue.changed:
            if self._queue.closed:
                raise RewardError("the reward functions have been closed")
            self._queue.waiting.extend(jobs)
            self._queue.changed.notify_all()
        return [job.answer for job in jobs]

    def explain(self, episode_id: str) -> str | None:
        """Return why an episode got its score; None if no function knows the episode."""
        return self._processes[0].explain(episode_id)

    def close(self) -> None:
        """End the processes without scoring waiting episodes."""
        with self._queue.changed:
            self._queue.closed = True
            self._queue.changed.notify_all()
        for process in self._processes:
            process.close()

    def _grow(self, mean_s: float, computing: float) -> None:
        """Start more processes if episodes would wait too long.

        Args:
            mean_s: a process's mean seconds per episode, over its latest batch.
            computing: fraction of the time in which functions compute rather than wait.
        """
        queue, running = self._queue, len(self._processes)
        with queue.changed:
            is_loading = any(not process.loaded.done() for process in self._processes)
            is_quick = mean_s < SHORT_S and len(queue.waiting) * mean_s < _BACKLOG_S * running
            if queue.closed or is_loading or not queue.can_grow or is_quick:
                return
            count = min(len(queue.waiting), running, _most_processes(computing) - running)
            self._processes += [PooledProcess(queue) for _ in range(count)]

    def _message(self, job: ScoreRequest) -> tuple[int, bytes, str]:
        value, prompt = job.value, ""
        if not isinstance(value, Episode):
            return job.id, pickled(value), prompt
        if self._needs_prompt:
            prompt = self._form.prompt(prompt_messages(value))
        try:
            return job.id, pickled(value), prompt
        # An environment's info may contain an object that cannot be pickled.
        except Exception:
            return job.id, pickled(self._plain(value)), prompt

    def _plain(self, episode: Episode) -> Episode:
        """Return an episode without the values in its infos that cannot be pickled."""

        def plain(info: Any) -> dict[str, Any]:
            kept = {}
            for key, value in info.items():
                try:
                    pickled(value)
                    kept[key] = value
                except Exception as error:
                    what = f"info[{key!r}] of {episode.env_id}"
                    if what not in self._left_out:
                        self._left_out.add(what)
                        log.warning(
                            "reward functions do not receive %s, because it cannot be sent to "
                            "their process: %s", what, error,
                        )  # fmt: skip
            return kept

        def plain_action(action: Any) -> Any:
            return plain({"action": action}).get("action")

        turns = []
        for turn in episode.turns:
            chunk = tuple(
                replace(one, info=plain(one.info), action=plain_action(one.action))
                for one in turn.chunk
            )
            info, action = plain(turn.info), plain_action(turn.action)
            turns.append(replace(turn, info=info, action=action, chunk=chunk))
        return replace(episode, turns=tuple(turns), reset_info=plain(episode.reset_info))


def _is_own_function(target: str) -> bool:
    """Return whether a function is built in, so that its settings can be checked in this process.

    A job checks its rewards before it starts, usually without calling them.
    """
    return target.startswith("agentrl.") and inspect.isroutine(user_code.load(target))


def _most_processes(computing: float) -> int:
    """Return how many processes may run alongside the engines, given the CPU share of each."""
    # The measured fraction may exceed 1.
    count = cores() / 2 / max(computing, 0.01) + 0.1
    return max(1, min(_MAX_PROCESSES, int(count)))
