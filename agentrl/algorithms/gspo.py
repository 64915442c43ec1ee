"""GSPO: Group Sequence Policy Optimization."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.losses.gspo import GSPOLoss
from agentrl.config import LossConfig


class GSPO(GRPO):
    """GRPO's advantages with one importance ratio per reply."""

    about = "one importance ratio per reply"
    source = "arXiv:2507.18071"

    @dataclass(slots=True, kw_only=True)
    class Config(GRPO.Config):
        """The paper's loss."""

        loss: LossConfig = field(default_factory=lambda: GSPOLoss.Config(name="gspo"))
