"""OPD: On-Policy Distillation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from string import Formatter
from typing import TYPE_CHECKING, Self

from agentrl.algorithms.core.algorithm import SELF, START, Algorithm, Requires
from agentrl.algorithms.core.statistics import per_group, standardize
from agentrl.config import AlgorithmConfig
from agentrl.config.bounds import NonNegativeFloat
from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories


class OPD(Algorithm):
    """A token's advantage is the teacher's log-probability minus the policy's, plus GRPO's.

    The first term is the reverse KL to the teacher, estimated on the policy's own samples: a
    policy gradient step on it follows the gradient of KL(policy | teacher) at each token, given
    the tokens before.
    """

    about = "moves each sampled token toward a teacher's probability; also maximizes the reward"
    source = "arXiv:2306.13649, https://thinkingmachines.ai/blog/on-policy-distillation"
    formula = "t + `reward_weight` GRPO of R"
    differs = (
        "verl and prime-rl take logp at the time of the update; verl clamps t to [-10, 10], "
        "prime-rl excludes tokens whose probability has fallen by 0.2 and adds 1e-3 (log r)^2; "
        "TRL computes the KL over the whole vocabulary, or t without clipping (`iw_opd`)"
    )

    @dataclass(slots=True, kw_only=True)
    class Config(AlgorithmConfig):
        """The teacher, and how much the reward counts."""

        teacher: str = "start"
        """A run (`runs/NAME`), one of its checkpoints (`runs/NAME/checkpoints/step-00010`), a
        model's folder, or an id on the Hugging Face Hub. `start` is the model that the job starts
        from, before any warm start, and `self` the policy, with `privileged`."""
        privileged: str | None = None
        """Text with the true state, such as `The target is {target}.`, at the end of the last
        message of the teacher's prompts. `{NAME}` is an entry of the environment's info."""
        reward_weight: NonNegativeFloat = 1.0
        """Weight of the advantage from rewards, which is GRPO's; 0 only distills."""

        def validate_for_training(self) -> None:
            """Raise `ConfigError` if settings have no effect or contradict each other."""
            AlgorithmConfig.validate_for_training(self)
            if self.kl.add_to == "reward" and not self.reward_weight:
                raise ConfigError(
                    "algorithm.kl.add_to=reward: has no effect with algorithm.reward_weight=0; "
                    "set algorithm.kl.add_to=loss"
                )
            if self.teacher == SELF and self.privileged is None:
                raise ConfigError(
                    "algorithm.teacher=self: needs algorithm.privileged, without which the teacher "
                    "is the policy"
                )
            try:
                names = [name for _, name, _, _ in Formatter().parse(self.privileged or "")]
            except ValueError as error:
                raise ConfigError(f"algorithm.privileged={self.privileged!r}: {error}") from error
            if "" in names:
                raise ConfigError(
                    f"algorithm.privileged={self.privileged!r}: name an entry of the environment's "
                    "info in each pair of braces, and write braces that stay as {{ and }}"
                )

        def with_absolute_paths(self, absolute: Callable[[str], str]) -> Self:
            """Return the settings with an absolute path to a local teacher."""
            if self.teacher in (START, SELF):
                return self
            return replace(self, teacher=absolute(self.teacher))

    config: Config

    @property
    def requires(self) -> Requires:
        return Requires(
            siblings=self.config.reward_weight > 0,
            teacher=self.config.teacher,
            privileged=self.config.privileged,
        )

    def advantages(self, played: Trajectories) -> Tensor:
        returns = per_group(standardize, played.returns, played.group, played.valid)
        rewarded = self.config.reward_weight * played.to_tokens(returns)
        return rewarded + played.teacher * played.token_mask
