"""PPO: Proximal Policy Optimization, with a critic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import AdvantageResult, Algorithm, Requires
from agentrl.algorithms.core.generalized_advantages import gae
from agentrl.config import AlgorithmConfig, CriticConfig
from agentrl.config.bounds import check_at_most, check_not_negative

if TYPE_CHECKING:
    from agentrl.algorithms.core.trajectories import Trajectories


class PPO(Algorithm):
    """Generalized advantage estimation over the sampled tokens, then whitened.

    The critic's value stands for what follows an episode that was truncated, not for one that
    terminated.
    """

    about = "generalized advantage estimation over tokens, with a critic"
    source = "arXiv:1707.06347, arXiv:1506.02438"
    formula = "delta + gamma lambda A', skipping tokens that were not sampled"
    differs = "verl also skips them, but takes V = 0 after a truncated episode"

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """A critic, and how far its values are trusted."""

        whiten: bool = True
        gae_lambda: float = 1.0
        """Lambda from token to token."""
        critic: CriticConfig = field(default_factory=CriticConfig)

        def validate(self) -> None:
            """Raise `ConfigError` at the first invalid value."""
            AlgorithmConfig.validate(self)
            self.critic.validate()
            check_not_negative("algorithm", self, "gae_lambda")
            check_at_most("algorithm", self, 1, "gae_lambda")

    config: Config

    @property
    def requires(self) -> Requires:
        """A critic."""
        return Requires(critic=self.config.critic)

    def advantages(self, played: Trajectories) -> AdvantageResult:
        """See the class."""
        advantages, returns = gae(
            played.rewards,
            played.values,
            played.token_mask,
            played.last_values,
            played.discounts(self.config.discount, self.config.token_discount),
            self.config.gae_lambda,
        )
        return AdvantageResult(advantages=advantages, returns=returns)
