"""Call reward functions in processes of their own, with a deadline.

A call that takes too long, or ends its process, voids the episode that it scores and no other: the
process is replaced, and what waited for it is scored by the next one.
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

from agentrl import registry
from agentrl.cluster.node_report import cores
from agentrl.data.reward_inputs import QueryFormat
from agentrl.errors import AgentRLError, ConfigError, RewardError
from agentrl.extension_points import REWARD
from agentrl.rollout.rewards import reward_messages
from agentrl.rollout.rewards.loaded_reward import RewardInfo, load_rewards
from agentrl.rollout.rewards.pooled_process import PooledProcess
from agentrl.rollout.rewards.reward_adapters import RewardInputs, prompt_messages
from agentrl.rollout.rewards.reward_messages import ProcessSpec
from agentrl.rollout.rewards.reward_queue import SHORT_S, Queue, Results, ScoreRequest
from agentrl.rollout.rewards.reward_signatures import RewardSpec
from agentrl.rollout.rewards.sent_episode import pickled
from agentrl.types import Episode

log = logging.getLogger(__name__)

_MAX_PROCESSES = 32
_BACKLOG_S = 1.0
"""How long the waiting episodes of a process must take, if each is quick, to start another one: the
start takes about as long."""


class RewardPool:
    """Reward functions in one process, or in several while episodes wait for it.

    Several processes are used only for functions of a single episode or answer that keep no state:
    no classes, whose one instance sees all episodes, and no functions of whole batches.

    Args:
        rewards: the functions, which are loaded in the process only.
        deadline_s: for a call of a function.
        setting: name of the deadline, for messages.
        form: the chat format of the model that plays, for functions that get texts in it.
        retries: whether a batch function that fails for several episodes is called for each alone.

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
        if reward_messages.is_loading:
            raise ConfigError(
                "a reward function's file starts a job while it is imported; put what is not a "
                'definition below `if __name__ == "__main__":`'
            )
        self._form = form
        spec = ProcessSpec(
            rewards=rewards,
            path=[entry or os.getcwd() for entry in sys.path if isinstance(entry, str)],
            roots=registry.roots(),
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
        """The properties of each function."""
        return self._queue.infos

    def submit(self, value: Episode | RewardInputs) -> "Future[Results]":
        """Have an episode scored; the future raises RewardError if it cannot be."""
        return self.submit_all([value])[0]

    def submit_all(self, values: Sequence[Episode | RewardInputs]) -> "list[Future[Results]]":
        """Have episodes scored, together as far as the functions take batches."""
        jobs = [ScoreRequest(id=next(self._ids), value=value) for value in values]
        for job in jobs:
            # A request that is with a process cannot be cancelled.
            job.answer.set_running_or_notify_cancel()
        with self._queue.changed:
            if self._queue.closed:
                raise RewardError("the reward functions have been closed")
            self._queue.waiting.extend(jobs)
            self._queue.changed.notify_all()
        return [job.answer for job in jobs]

    def explain(self, episode_id: str) -> str | None:
        """Say why an episode was scored as it was; None if no function knows it."""
        return self._processes[0].explain(episode_id)

    def close(self) -> None:
        """End the processes; episodes that wait are not scored."""
        with self._queue.changed:
            self._queue.closed = True
            self._queue.changed.notify_all()
        for process in self._processes:
            process.close()

    def _grow(self, mean_s: float, computing: float) -> None:
        """Start more processes if episodes wait for long.

        Args:
            mean_s: seconds that a process took for each of its latest episodes.
            computing: the part of its time that a function computes.
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
        # An environment may put an object into its info that cannot be pickled.
        except Exception:
            return job.id, pickled(self._plain(value)), prompt

    def _plain(self, episode: Episode) -> Episode:
        """Return an episode without what cannot be pickled of its infos."""

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
                            "reward functions do not see %s, as it cannot be sent to their "
                            "process: %s", what, error,
                        )  # fmt: skip
            return kept

        turns = []
        for turn in episode.turns:
            action = plain({"action": turn.action}).get("action")
            turns.append(replace(turn, info=plain(turn.info), action=action))
        return replace(episode, turns=tuple(turns), reset_info=plain(episode.reset_info))


def _is_own_function(target: str) -> bool:
    """Whether a function is our own, which this process can load to check its settings.

    A job checks its rewards before it starts, in most cases without calling them.
    """
    return target.startswith("agentrl.") and inspect.isroutine(registry.load(target))


def _most_processes(computing: float) -> int:
    """Return how many processes may compute for a part of their time, beside the engines."""
    # The fraction is measured, and may exceed 1.
    count = cores() / 2 / max(computing, 0.01) + 0.1
    return max(1, min(_MAX_PROCESSES, int(count)))
