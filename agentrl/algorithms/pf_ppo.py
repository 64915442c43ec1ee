"""PF-PPO: Policy Filtration for PPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl.algorithms.ppo import PPO
from agentrl.config.bounds import PositiveFloat


class PFPPO(PPO):
    """PPO on episodes drawn with replacement in proportion to |R|^power."""

    about = "PPO on episodes resampled in proportion to their absolute return"
    source = "arXiv:2409.06957"
    formula = "as for `ppo`; episodes are drawn with probability abs(R)^power / sum"
    differs = (
        "the paper ranks the responses to one prompt; abs(R)^power is from verl, which uses power "
        "2 and adds 1e-8; with rewards of 0 and 1, failures are never drawn here and almost never "
        "in verl"
    )

    @dataclass(slots=True, kw_only=True)
    class Config(PPO.Config):
        """How strongly resampling depends on the return."""

        resample_power: PositiveFloat = 1.0
        """Episodes are resampled in proportion to this power of their absolute return."""

    config: Config

    def resample(
        self, returns: Sequence[float], valid: Sequence[bool], seed: int
    ) -> list[int] | None:
        """Draw one index per valid episode; if all returns are 0, use each episode once."""
        candidates = np.flatnonzero(np.array(valid, dtype=bool))
        weights = np.abs(np.array(returns, dtype=np.float64)[candidates])
        weights **= self.config.resample_power
        # Returns that are all 0 or contain NaN do not define a distribution.
        if not weights.sum() > 0:
            return list(map(int, candidates))
        drawn = np.random.default_rng(seed).choice(
            candidates, size=len(candidates), p=weights / weights.sum()
        )
        return sorted(map(int, drawn))
