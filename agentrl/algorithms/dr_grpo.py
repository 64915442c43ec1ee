"""Dr.GRPO: GRPO done right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import Algorithm, Requires
from agentrl.algorithms.core.statistics import center, per_group
from agentrl.config import Aggregate, AlgorithmConfig

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class DrGRPO(Algorithm):
    """An episode's advantage is its return minus its group's mean.

    Dividing by the standard deviation would favor tasks that are nearly always won or lost.
    """

    about = (
        "GRPO without its divisions by length and standard deviation, which favor long failures "
        "and easy tasks"
    )
    source = "arXiv:2503.20783"
    formula = "R - mean"
    differs = "the advantage in a group of one is R in verl, 0 in TRL and here"
    compares = "episodes"
    requires = Requires(siblings=True)

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """Sums of token losses, divided by a constant."""

        aggregate: Aggregate = "constant"

    def advantages(self, played: Trajectories) -> Tensor:
        return played.to_tokens(per_group(center, played.returns, played.group, played.valid))
