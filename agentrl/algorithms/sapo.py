"""SAPO: Soft Adaptive Policy Optimization."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.losses.sapo import SAPOLoss
from agentrl.config import LossConfig


class SAPO(GRPO):
    """GRPO's advantages with a soft gate."""

    about = "a soft gate instead of clipping"
    source = "arXiv:2511.20347"

    @dataclass(slots=True, kw_only=True)
    class Config(GRPO.Config):
        """The paper's loss."""

        loss: LossConfig = field(default_factory=lambda: SAPOLoss.Config(name="sapo"))
