"""CISPO: Clipped Importance Sampling-weight Policy Optimization."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.losses.cispo import CISPOLoss
from agentrl.config import AlgorithmConfig, LossConfig


class CISPO(GRPO):
    """GRPO's advantages with clipped importance weights, averaged over tokens."""

    about = "clips the importance weight of a token, never its gradient"
    source = "arXiv:2506.13585"

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The paper's loss."""

        loss: LossConfig = field(default_factory=lambda: CISPOLoss.Config(name="cispo"))
