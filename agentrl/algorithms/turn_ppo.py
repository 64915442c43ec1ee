"""PPO with bi-level generalized advantage estimation: over turns, then within each turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentrl.algorithms.core.algorithm import AdvantageResult
from agentrl.algorithms.core.statistics import last_of_turns
from agentrl.algorithms.ppo import PPO, gae
from agentrl.config.bounds import Fraction

if TYPE_CHECKING:
    from agentrl.algorithms.core.trajectories import Trajectories


class TurnPPO(PPO):
    """Generalized advantage estimation over turns first, then over the tokens of each turn.

    The first pass runs over the turns' last tokens, with `discount` and `turn_gae_lambda`, and
    gives these tokens their advantages. The second pass runs backwards from each turn's last token
    to its first token, with `token_discount` and `gae_lambda`, and never crosses into another turn.
    """

    about = "generalized advantage estimation over turns, then over the tokens of each"
    source = "arXiv:2510.16907"
    formula = "GAE over turns, then within each turn"
    differs = (
        "VAGEN's current code is simpler: it uses one V per turn, GAE over turns, the same "
        "advantage for all tokens of a turn, and V = 0 after a truncated episode"
    )

    @dataclass(slots=True, kw_only=True)
    class Config(PPO.Config):
        """The critic, and a separate lambda for each pass."""

        discount: float = 0.99
        turn_gae_lambda: Fraction = 0.95
        """GAE's lambda from turn to turn."""

    config: Config

    def advantages(self, played: Trajectories) -> AdvantageResult:
        rewards, values, mask = played.rewards, played.values, played.token_mask
        ends = last_of_turns(mask, played.turn_index)
        # Rewards before a turn's last token belong to the previous turn's return.
        ahead, totals = rewards.new_zeros(len(rewards)), rewards.new_zeros(rewards.shape)
        for t in reversed(range(rewards.shape[1])):
            end = ends[:, t]
            totals[:, t] = (rewards[:, t] + self.config.discount * ahead) * end
            ahead = (ahead + rewards[:, t] * mask[:, t]).where(~end, 0.0)
        of_turns, _ = gae(
            totals, values, ends, played.last_values, self.config.discount,
            self.config.turn_gae_lambda,
        )  # fmt: skip
        # The last token of a turn has the turn's advantage; GAE runs backwards from there.
        discount, lam = self.config.token_discount, self.config.gae_lambda
        advantages = rewards.new_zeros(rewards.shape)
        following = carried = rewards.new_zeros(len(rewards))
        for t in reversed(range(rewards.shape[1])):
            here = mask[:, t]
            delta = rewards[:, t] + discount * following - values[:, t]
            within = of_turns[:, t].where(ends[:, t], delta + discount * lam * carried)
            carried = within.where(here, carried)
            following = values[:, t].where(here, following)
            advantages[:, t] = carried.where(here, advantages[:, t])
        return AdvantageResult(advantages=advantages, returns=(advantages + values) * mask)
