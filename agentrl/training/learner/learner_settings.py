"""The part of a job that its learner needs."""

from dataclasses import dataclass, replace
from typing import Self

from agentrl.algorithms.core.algorithm import Algorithm, load_algorithm
from agentrl.cluster.placement import Layout
from agentrl.config import (
    Config,
    ModelConfig,
    OptimConfig,
    RolloutConfig,
    TrainConfig,
)


@dataclass(slots=True, kw_only=True, frozen=True)
class LearnerSettings:
    """Settings of every rank of the learner."""

    seed: int
    model: ModelConfig
    algorithm: Algorithm
    optim: OptimConfig
    train: TrainConfig
    rollout: RolloutConfig
    """Sampling settings of replies: temperature and maximum length."""
    env_id: str
    """Environment id, which a checkpoint must match."""
    max_turns: int
    """Maximum turns of an episode, over all environments."""

    @classmethod
    def of(cls, config: Config) -> Self:
        """Extract the learner's part of a configuration, and create the algorithm.

        A job's plan does this once. Only ranks in actors do it again, from the configuration: an
        algorithm in a user's file cannot be pickled, as other processes cannot import its class.
        """
        return cls(
            seed=config.seed,
            model=config.model,
            algorithm=load_algorithm(config.algorithm),
            optim=config.optim,
            train=config.train,
            rollout=config.rollout,
            env_id=config.env.id,
            max_turns=max(job.env.max_turns for job in config.environments().values()),
        )

    def placed(self, layout: Layout) -> Self:
        """Return the settings with the number of ranks set by a layout."""
        rollout, train = layout.applied_to(self.rollout, self.train)
        return replace(self, rollout=rollout, train=train)
