"""An algorithm in one file: Quantile Advantage Estimation (arXiv:2509.22611).

GRPO compares each episode with the mean of its group, so a single lucky episode makes all ordinary
episodes look bad. Here the baseline is a quantile of the group's returns instead: with returns of 0
for failure and 1 for success, a rare success is reinforced or a rare failure is discouraged, and
everything else is left alone.

    agentrl check algorithm examples/extend/algorithm.py:QuantileAdvantage
    agentrl train number_game algorithm=examples/extend/algorithm.py:QuantileAdvantage
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.algorithms.core.statistics import EPSILON, per_group
from agentrl.config import AlgorithmConfig

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class QuantileAdvantage(Algorithm):
    """Advantage: the return minus a quantile of the group's returns, divided by their std."""

    about = "compares each episode's return with a quantile of its group's"
    source = "arXiv:2509.22611"
    formula = "(R - quantile) / (std + 1e-6)"
    compares = "episodes"
    requires = Requires(siblings=True)

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        quantile: Annotated[float, Ge(0), Le(1)] = 0.4
        """Quantile used as the baseline; 0.5 is the median."""

    config: Config

    def advantages(self, played: Trajectories) -> Tensor:
        def compare(returns: Tensor) -> Tensor:
            """Return the advantages [G] of the valid episodes of one group."""
            if len(returns) < 2:
                return returns.new_zeros(returns.shape)
            # The smallest return that at least this share of the group does not exceed.
            rank = math.ceil(self.config.quantile * len(returns) - EPSILON)
            baseline = returns.sort().values[max(0, rank - 1)]
            return (returns - baseline) / (returns.std() + EPSILON)

        return played.to_tokens(per_group(compare, played.returns, played.group, played.valid))
