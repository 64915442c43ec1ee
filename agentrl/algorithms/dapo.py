"""DAPO: Decoupled Clip and Dynamic Sampling Policy Optimization."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.ppo import PPOLoss
from agentrl.config import AlgorithmConfig, GroupFilterConfig, LossConfig, OverlongConfig


class DAPOAlgorithm(GRPO):
    """GRPO's advantages with DAPO's loss, dynamic sampling and a soft penalty for long replies."""

    about = (
        "GRPO with a higher upper clip, dynamic sampling, a token-mean loss and a length penalty"
    )
    source = "arXiv:2503.14476"

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The paper's settings."""

        loss: LossConfig = field(default_factory=lambda: PPOLoss.Config(name="ppo", clip_high=0.28))
        sampling: GroupFilterConfig = field(
            default_factory=lambda: GroupFilterConfig(filter_groups=True)
        )
        overlong: OverlongConfig = field(default_factory=lambda: OverlongConfig(buffer=0.2))
