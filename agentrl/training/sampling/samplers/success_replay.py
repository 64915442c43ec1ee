"""Sampler that adds old successes to groups without one, which could not learn otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from agentrl.config import SamplerConfig, sampler_defaults
from agentrl.config.bounds import Fraction, PositiveFloat, PositiveInt, check_bounds
from agentrl.config.type_checks import find_mistyped
from agentrl.errors import ConfigError
from agentrl.extension_points import SAMPLER
from agentrl.text.name_suggestions import did_you_mean
from agentrl.training.sampling.replay_buffer import ReplayBuffer
from agentrl.training.sampling.task_pool import GroupTask, TaskPool
from agentrl.training.sampling.task_sampler import PlayedTask, TaskSampler
from agentrl.types import ScoredEpisode

_MB = 1_000_000


class SuccessReplay(TaskSampler):
    """Revisits tasks that are occasionally solved, and adds old successes to groups without any.

    Mixed groups follow ExGRPO (arXiv:2510.02245) and LUFFY (arXiv:2504.14945): advantages are
    computed over new and old members, and the probability ratio of an old token is that of the
    current policy to the policy that sampled it, from recorded log-probabilities. A task that a
    whole group solves is retired, and episodes older than `max_age` are not replayed.
    """

    about = "tasks of another sampler; adds old successes to groups without one"
    replays: ClassVar[bool] = True

    @dataclass(slots=True, kw_only=True)
    class Config(SamplerConfig):
        """Size of the buffer, and how much is replayed."""

        tasks: str = "uniform"
        """Sampler that chooses the tasks that are not revisited."""
        settings: dict[str, Any] = field(default_factory=dict)
        """Settings of that sampler, such as `{target: 0.5}`, except `pool` and `success_at`."""
        per_group: PositiveInt = 1
        """Maximum number of old successes added to a group without a success, and kept per task."""
        revisit: Fraction = 0.25
        """Fraction of the groups that revisit tasks in the buffer. Endless tasks do not repeat by
        themselves, so without this nothing would be replayed."""
        max_age: PositiveInt = 20
        """Maximum age in training steps of a replayed success."""
        max_episodes: PositiveInt = 256
        """Maximum number of successes in the buffer."""
        max_mb: PositiveFloat = 512.0
        """Maximum size of the buffer on disk, in MB (10^6 bytes)."""

        def validate(self) -> None:
            """Raise `ConfigError` at the first invalid value."""
            chosen_by = self.chosen_by()
            check_bounds(chosen_by, "sampling.settings")
            chosen_by.validate()

        def chosen_by(self) -> SamplerConfig:
            """Return the settings of the sampler that chooses the other tasks.

            Raises:
                ConfigError: there is no such sampler or setting, or it replays episodes itself.
            """
            defaults = sampler_defaults(self.tasks)
            if SAMPLER.resolve(self.tasks).replays:
                raise ConfigError(
                    f"sampling.tasks={self.tasks}: must be a sampler that does not replay episodes "
                    "itself"
                )
            own = {one.name for one in fields(defaults)} - {"name", "pool", "success_at"}
            if unknown := [key for key in self.settings if key not in own]:
                raise ConfigError(
                    f"sampling.settings.{unknown[0]}: {self.tasks} has no such setting"
                    f"{did_you_mean(unknown[0], sorted(own))}"
                )
            found = find_mistyped(self.settings, type(defaults), "sampling.settings")
            if found is not None:
                raise ConfigError(": ".join(found))
            return replace(defaults, pool=self.pool, success_at=self.success_at, **self.settings)

    def __init__(self, config: Any, tasks: TaskPool, folder: Path) -> None:
        super().__init__(config, tasks, folder)
        own = config.chosen_by()
        self._others: TaskSampler = SAMPLER.resolve(own.name)(own, tasks, folder / "tasks")
        self._buffer = ReplayBuffer(folder, config.max_episodes, config.max_mb * _MB)
        self._replayed: list[int] = []
        """Ages in steps of the episodes replayed since the metrics were last read."""

    def choose(self, step: int, count: int, attempt: int = 0) -> Sequence[GroupTask]:
        """See TaskSampler."""
        usable = [one.task for one in self._buffer.all() if self._is_usable(one.step, step)]
        known = [task for task in dict.fromkeys(usable) if self._exists(task)]
        rng = np.random.default_rng([*self.tasks.seed_of(step, attempt), 1])
        # Random rounding keeps the fraction `revisit` on average, even with few groups.
        wanted = int(self.config.revisit * count + rng.random())
        old = [known[i] for i in rng.permutation(len(known))[: min(wanted, count)]]
        return [*self._others.choose(step, count - len(old), attempt), *old]

    def _exists(self, task: GroupTask) -> bool:
        return any(one.env == task.env for one in self.tasks.sets)

    def _is_usable(self, played: int, step: int) -> bool:
        return step - played <= int(self.config.max_age)

    def replay(self, step: int, played: PlayedTask) -> Sequence[ScoredEpisode]:
        """Return the task's old successes, newest first, if no member of the group solved it."""
        if played.successes(self.config.success_at)[0]:
            return ()
        old = self._buffer.of(played.task)[: self.config.per_group]
        loaded = [
            (step - one.step, self._buffer.load(one.id))
            for one in old
            if self._is_usable(one.step, step)
        ]
        self._replayed += [age for age, scored in loaded if scored is not None]
        return [scored for _, scored in loaded if scored is not None]

    def observe(self, step: int, played: Sequence[PlayedTask]) -> None:
        """See TaskSampler; keeps the best successes of each group unless all members succeeded."""
        self._others.observe(step, played)
        # Drop episodes that the next step can no longer replay.
        for one in self._buffer.all():
            if not self._is_usable(one.step, step + 1):
                self._buffer.remove(one.id)
        for group in played:
            successes, valid = group.successes(self.config.success_at)
            if not successes:
                continue
            # Forget a task whose whole group succeeds, as equal rewards leave nothing to learn.
            retired = len(successes) == valid
            kept = [] if retired else sorted(successes, key=_rank)[-self.config.per_group :]
            kept = [scored for scored in kept if _may_be_kept(scored)]
            older = self._buffer.of(group.task)
            for one in older if retired else older[self.config.per_group - len(kept) :]:
                self._buffer.remove(one.id)
            for scored in kept:
                self._buffer.add(group.task, scored, step)

    def metrics(self) -> Mapping[str, float]:
        """See TaskSampler; `replay/episodes` and `replay/age` describe the last step."""
        ages, self._replayed = self._replayed, []
        return {
            **self._others.metrics(),
            "replay/episodes": float(len(ages)),
            "replay/age": fmean(ages) if ages else 0.0,
            "replay/size": float(len(self._buffer)),
            "replay/mb": self._buffer.bytes / _MB,
        }

    def state(self) -> dict[str, Any]:
        """Return the buffer's index and the other sampler's state."""
        return {"buffer": self._buffer.state(), "tasks": self._others.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See TaskSampler."""
        self._buffer.restore(state.get("buffer", []))
        self._others.restore(state.get("tasks", {}))
        self._replayed = []


def _rank(scored: ScoredEpisode) -> tuple[float, float]:
    """Return a sort key: the reward, then the policy's confidence in its tokens."""
    logprobs = [value for turn in scored.episode.turns for value in turn.reply_logprobs]
    return scored.reward, fmean(logprobs) if logprobs else 0.0


def _may_be_kept(scored: ScoredEpisode) -> bool:
    """Return whether an episode has no screens hidden from recordings, such as another app's."""
    turns = scored.episode.turns
    return scored.episode.device is None or all(turn.shown for turn in turns)
