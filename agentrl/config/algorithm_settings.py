"""Settings that all algorithms share; each algorithm adds its own settings and defaults."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from annotated_types import Gt, Le

from agentrl.config.bounds import (
    BatchSize,
    Fraction,
    LearningRate,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from agentrl.errors import ConfigError, boundary
from agentrl.extension_points import LOSS

Aggregate = Literal["token_mean", "sequence_mean", "sequence_sum", "constant", "token_sum"]


@dataclass(slots=True, kw_only=True)
class LossConfig:
    """The policy loss per token: its name and settings. May be written as just the name."""

    name: str
    """A built-in loss, `module:Class` or `path/file.py:Class`."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""


@dataclass(slots=True, kw_only=True)
class KLConfig:
    """KL penalty against the policy at the start of reinforcement learning."""

    add_to: Literal["none", "loss", "reward"] = "none"
    """Where the penalty is applied; `none` needs no reference model."""
    estimate: Literal["k1", "abs", "k2", "k3", "k3+"] | None = None
    """Estimator of the KL divergence from sampled tokens. None uses k3 in the loss and k1 in the
    reward, where only k1 gives the policy gradient of the KL."""
    coefficient: NonNegativeFloat = 0.001
    """Weight of the penalty."""
    target: PositiveFloat | None = None
    """Target KL in nats per token, which the coefficient is adapted to reach; None keeps it
    constant."""
    horizon: PositiveFloat = 10.0
    """Time constant of the adaptive controller, in steps."""

    @property
    def estimator(self) -> str:
        """The configured estimator, or the default."""
        return self.estimate or ("k1" if self.add_to == "reward" else "k3")

    def validate_for_training(self, usual: "KLConfig") -> None:
        """Raise `ConfigError` if settings have no effect or contradict each other.

        Args:
            usual: the algorithm's defaults.
        """
        if self.add_to != "none":
            if self.coefficient == 0 and self.target is None:
                raise ConfigError(
                    "algorithm.kl.coefficient=0: would load a reference model without using it; "
                    "set a coefficient above 0, or algorithm.kl.add_to=none"
                )
            if self.add_to == "reward" and self.estimator != "k1":
                raise ConfigError(
                    f"algorithm.kl.estimate={self.estimator}: cannot be added to the reward, where "
                    "only k1 gives the policy gradient of the KL (docs/algorithms.md); set "
                    "algorithm.kl.estimate=k1, or algorithm.kl.add_to=loss"
                )
            return
        for name in ("coefficient", "target"):
            value, default = getattr(self, name), getattr(usual, name)
            if value != default:
                raise ConfigError(
                    f"algorithm.kl.{name}={value}: has no effect with algorithm.kl.add_to=none; "
                    "set algorithm.kl.add_to=loss or reward, or reset it to "
                    f"{'null' if default is None else default}"
                )


@dataclass(slots=True, kw_only=True)
class EntropyControlConfig:
    """Adaptation of `algorithm.entropy_coefficient` to a target entropy (arXiv:2505.22312)."""

    target: PositiveFloat | None = None
    """Target entropy in nats per token; None keeps the coefficient constant. After each step at or
    below the target, the coefficient rises by `step`, otherwise it falls; while the entropy is
    above the target, there is no bonus."""
    step: PositiveFloat = 0.005
    """Change of the coefficient per training step."""
    max: PositiveFloat = 1.0
    """Largest coefficient."""

    def validate_for_training(self, coefficient: float) -> None:
        """Raise `ConfigError` if settings have no effect or contradict each other."""
        if self.target is None and self != EntropyControlConfig():
            raise ConfigError(
                f"algorithm.entropy_control.step={self.step:g}, max={self.max:g}: have no effect "
                "without algorithm.entropy_control.target; set it, or remove them"
            )
        if self.target is not None and coefficient > self.max:
            raise ConfigError(
                f"algorithm.entropy_coefficient={coefficient:g}: must not be above "
                f"algorithm.entropy_control.max={self.max:g}"
            )


@dataclass(slots=True, kw_only=True)
class GroupFilterConfig:
    """Filters for groups of episodes; filtered groups are replaced with groups of other seeds."""

    filter_groups: bool = False
    """Replace groups whose episodes all have the same reward, up to rounding."""
    filter_means: list[float] | None = None
    """[lowest, highest] mean reward of a group; other groups are replaced. None disables this."""
    refills: NonNegativeInt = 3
    """Maximum number of times that filtered groups are replaced in one step."""
    keep_varied: Annotated[float, Gt(0), Le(1)] = 1.0
    """Fraction of a step's groups to train on: those whose returns vary most (RAGEN). The others
    are not replaced."""

    @property
    def filters(self) -> bool:
        """True if any filter is enabled."""
        return self.filter_groups or self.filter_means is not None

    def validate_for_training(self) -> None:
        """Raise `ConfigError` if settings contradict each other."""
        bounds = self.filter_means
        if bounds is not None and (len(bounds) != 2 or bounds[0] > bounds[1]):
            raise ConfigError(
                f"algorithm.sampling.filter_means={bounds}: must be [lowest, highest], or null"
            )


@dataclass(slots=True, kw_only=True)
class OverlongConfig:
    """Penalty for replies that come close to `rollout.max_new_tokens`."""

    buffer: Fraction = 0.0
    """Length of the penalty zone before the limit, as a fraction of the limit; 0 for no penalty."""
    penalty: NonNegativeFloat = 1.0
    """Reward subtracted from a reply of `rollout.max_new_tokens`."""


@dataclass(slots=True, kw_only=True)
class ImportanceConfig:
    """Correction for tokens to which the engine and the learner assign different probabilities."""

    kind: Literal[
        "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"
    ] = "none"  # fmt: skip
    """Weight tokens by the learner's probability over the engine's, or by the product of these
    ratios over a reply: truncated above, or masked outside its bounds."""
    low: NonNegativeFloat = 0.5
    """Lowest ratio that is not masked."""
    high: PositiveFloat = 2.0
    """Highest ratio that is neither truncated nor masked."""

    def validate_for_training(self) -> None:
        """Raise `ConfigError` if the bounds contradict each other."""
        if self.low > self.high:
            raise ConfigError(
                f"algorithm.importance_correction.low={self.low}: must not be above "
                f"algorithm.importance_correction.high={self.high}"
            )


@dataclass(slots=True, kw_only=True)
class CriticConfig:
    """The critic, for algorithms that use one."""

    lr: LearningRate = 1e-5
    """Learning rate of the critic."""
    clip: PositiveFloat | None = 0.2
    """Value clipping: largest change of a value in one update; None for no limit."""
    warmup_steps: NonNegativeInt = 0
    """Number of initial steps in which only the critic is trained."""


@dataclass(slots=True, kw_only=True)
class ImplicitRewardConfig:
    """The implicit process reward model, for algorithms that train one."""

    beta: PositiveFloat = 0.05
    """Scale of the reward: beta log(pi_rm / pi_ref)."""
    lr: LearningRate = 1e-6
    """Learning rate of the reward model."""


def _default_loss() -> LossConfig:
    loss: LossConfig = LOSS.resolve("ppo").Config(name="ppo")
    return loss


@dataclass(slots=True, kw_only=True)
class AlgorithmConfig:
    """Settings that all algorithms share.

    The name selects the algorithm, which adds settings and has its own defaults; `agentrl
    algorithms NAME` shows both. The section may be written as just the name.
    """

    name: str
    """A built-in algorithm, `module:Class` or `path/file.py:Class`."""
    loss: LossConfig = field(default_factory=_default_loss)
    discount: Fraction = 1.0
    """Discount of later rewards per turn; no effect if the algorithm compares whole episodes."""
    token_discount: Fraction = 1.0
    """Discount of later rewards per token within a turn."""
    whiten: bool = False
    """Normalize a step's advantages over its tokens to mean 0 and standard deviation 1."""
    aggregate: Aggregate = "token_mean"
    """How a step's token losses are reduced. `token_mean`: the mean over all tokens.
    `sequence_mean`, `sequence_sum`, `constant`: the mean over episodes of the token mean, the token
    sum, or the token sum divided by `aggregate_constant`. `token_sum`: the sum over all tokens."""
    aggregate_constant: PositiveFloat | None = None
    """Divisor for `aggregate=constant`, in tokens; None uses the maximum number of tokens that an
    episode can sample."""
    kl: KLConfig = field(default_factory=KLConfig)
    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy bonus in the loss; with `entropy_control.target`, its initial value."""
    entropy_control: EntropyControlConfig = field(default_factory=EntropyControlConfig)
    sampling: GroupFilterConfig = field(default_factory=GroupFilterConfig)
    overlong: OverlongConfig = field(default_factory=OverlongConfig)
    importance_correction: ImportanceConfig = field(default_factory=ImportanceConfig)
    max_staleness: NonNegativeInt | None = None
    """Maximum number of updates between the weights that sampled a token and the learner's; older
    tokens are excluded from every loss. None for no limit."""
    epochs: PositiveInt = 1
    """Passes over a step's samples."""
    minibatch: BatchSize | None = None
    """Samples with nonzero advantage per optimizer step; None takes a single step per pass."""

    @property
    def has_entropy_bonus(self) -> bool:
        """True if a step may have an entropy bonus."""
        return self.entropy_coefficient > 0 or self.entropy_control.target is not None

    def with_absolute_paths(self, absolute: Callable[[str], str]) -> Self:
        """Return the settings with absolute paths.

        Args:
            absolute: makes a path absolute if something exists there.
        """
        return self

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value, for any job."""
        with boundary(ConfigError, f"{LOSS.setting}={self.loss.name}: validate() fails"):
            self.loss.validate()

    def validate_for_training(self) -> None:
        """Raise `ConfigError` if settings have no effect or contradict each other."""
        self.kl.validate_for_training(type(self)(name=self.name).kl)
        self.entropy_control.validate_for_training(self.entropy_coefficient)
        self.sampling.validate_for_training()
        self.importance_correction.validate_for_training()
