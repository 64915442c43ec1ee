"""Settings of the algorithm section; their defaults come from a preset."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from agentrl.config.algorithm_presets import DEFAULTS, PRESETS, settings_of
from agentrl.config.bounds import check_at_most, check_not_negative, check_positive
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean

_POSITIVE = (
    "epochs", "tau_positive", "tau_negative", "kl_horizon", "critic_lr", "prime_lr", "prime_beta",
    "importance_high",
)  # fmt: skip
_FRACTIONS = ("discount", "token_discount", "gae_lambda", "turn_gae_lambda", "overlong_buffer")


def _preset() -> Any:
    """A setting whose default depends on the algorithm's name."""
    return field(default=None)


@dataclass(slots=True, kw_only=True)
class AlgorithmConfig:
    """Advantage estimator, loss and everything else that defines the algorithm.

    The algorithm's name sets the default of every other setting of this section; `agentrl
    algorithms` lists them.
    """

    name: str = "state_grpo"
    """A preset; `agentrl algorithms` lists them."""
    estimator: Literal[
        "grpo", "dr_grpo", "rloo", "turn_grpo", "state_grpo", "gigpo", "reinforce_pp",
        "reinforce_pp_baseline", "remax", "gae", "turn_gae", "prime",
    ] = _preset()  # fmt: skip
    """Advantage estimator; docs/algorithms.md has the formulas."""
    discount: float = _preset()
    """Discount of later rewards per turn; unused by `grpo`, `dr_grpo`, `rloo` and
    `reinforce_pp_baseline`, which compare whole episodes."""
    token_discount: float = _preset()
    """Discount of later rewards per token within a turn."""
    gae_lambda: float = _preset()
    """Lambda of `gae`, and of `turn_gae` within a turn."""
    turn_gae_lambda: float = _preset()
    """Lambda of `turn_gae` from turn to turn."""
    episode_weight: float = _preset()
    """For `gigpo`: weight of the whole episode's advantage."""
    state_weight: float = _preset()
    """For `gigpo`: weight of the advantage among turns that start from the same state."""
    whiten: bool = _preset()
    """Normalize a step's advantages over its tokens to mean 0 and standard deviation 1."""
    loss: Literal["ppo", "gspo", "cispo", "sapo"] = _preset()
    """Policy loss per token."""
    clip_low: float = _preset()
    """The probability ratio to the sampling policy is clipped below at `1 - clip_low`."""
    clip_high: float = _preset()
    """The ratio is clipped above at `1 + clip_high`."""
    clip_dual: float = _preset()
    """Dual clip: bounds the loss of tokens with negative advantage whose probability rose a lot."""
    tau_positive: float = _preset()
    """For `sapo`: temperature of the gate for positive advantages."""
    tau_negative: float = _preset()
    """For `sapo`: temperature of the gate for negative advantages."""
    aggregate: Literal[
        "token_mean", "sequence_mean", "sequence_sum", "constant", "token_sum"
    ] = _preset()  # fmt: skip
    """How token losses are reduced, over the whole step: the mean over all tokens; the mean over
    episodes of each one's token mean, of its sum, or of its sum divided by `aggregate_constant`; or
    the sum."""
    aggregate_constant: float = _preset()
    """Divisor of `aggregate=constant`, in tokens; 0 uses the most that an episode can sample."""
    kl: Literal["none", "loss", "reward"] = _preset()
    """Where the KL penalty against the initial policy is applied; `none` keeps no reference
    model."""
    kl_estimate: Literal["k1", "abs", "k2", "k3", "k3+"] = _preset()
    """Estimator of the KL divergence from sampled tokens."""
    kl_coefficient: float = _preset()
    """Weight of the KL penalty."""
    kl_target: float = _preset()
    """Target KL in nats per token, to which the coefficient adapts; 0 keeps it constant."""
    kl_horizon: float = _preset()
    """Time constant of the adaptive KL controller, in steps."""
    entropy_coefficient: float = _preset()
    """Weight of the entropy bonus in the loss."""
    filter_groups: bool = _preset()
    """Replace groups whose episodes all have the same return by groups with other seeds."""
    filter_means: list[float] = _preset()  # noqa: RUF009
    """[lowest, highest] mean return of a group; others are replaced. Empty replaces none."""
    filter_refills: int = _preset()
    """How many times per step filtered groups are replaced at most."""
    overlong_buffer: float = _preset()
    """Length of the penalty zone before `rollout.max_new_tokens`, as a fraction of it."""
    overlong_penalty: float = _preset()
    """Reward subtracted from a reply of `rollout.max_new_tokens`."""
    resample_power: float = _preset()
    """Resample episodes in proportion to this power of their absolute return; 0 for none."""
    importance_correction: Literal[
        "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"
    ] = _preset()  # fmt: skip
    """Importance correction for tokens whose probability in the engine differs from the learner's
    before the update: weight them by the ratio, truncated above, or masked outside its bounds."""
    importance_low: float = _preset()
    """Smallest ratio that is not masked."""
    importance_high: float = _preset()
    """Largest ratio that is not truncated or masked."""
    max_staleness: int = _preset()
    """Largest number of updates by which a token may be older than the learner; older tokens are
    left out of every loss. -1 for no limit."""
    critic_lr: float = _preset()
    """Learning rate of the critic, for `gae` and `turn_gae`."""
    critic_clip: float = _preset()
    """Value clipping: largest change of a value in one update; 0 for no limit."""
    critic_warmup_steps: int = _preset()
    """Number of steps at the start in which only the critic is trained."""
    prime_beta: float = _preset()
    """For `prime`: scale of the implicit reward."""
    prime_lr: float = _preset()
    """Learning rate of the implicit reward model."""
    epochs: int = _preset()
    """Passes over a step's samples."""
    minibatch: int | None = None
    """Samples with nonzero advantage per optimizer step; None makes one step per pass."""

    @property
    def needs_critic(self) -> bool:
        """Whether a critic values states."""
        return self.estimator in ("gae", "turn_gae")

    @property
    def needs_implicit_reward(self) -> bool:
        """Whether an implicit process reward model is trained."""
        return self.estimator == "prime"

    @property
    def needs_reference(self) -> bool:
        """Whether a frozen copy of the policy is kept, as it was when reinforcement began."""
        return self.kl != "none" or self.needs_implicit_reward

    @property
    def needs_old_logprobs(self) -> bool:
        """Whether the learner's log-probabilities before the update are needed."""
        return self.importance_correction != "none" or self.kl == "reward"

    @property
    def needs_token_scores(self) -> bool:
        """Whether any model has to score the sampled tokens before the update."""
        return self.needs_critic or self.needs_reference or self.needs_old_logprobs

    @property
    def needs_greedy(self) -> bool:
        """Whether the greedy policy plays each seed, too."""
        return self.estimator == "remax"

    def __post_init__(self) -> None:
        for name, value in settings_of(self.name).items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value, for any job."""
        check_positive("algorithm", self, *_POSITIVE)
        if self.minibatch is not None:
            check_positive("algorithm", self, "minibatch")
        numbers = (f.name for f in fields(self) if isinstance(getattr(self, f.name), int | float))
        check_not_negative("algorithm", self, *(n for n in numbers if n != "max_staleness"))
        check_at_most("algorithm", self, 1, *_FRACTIONS)
        if self.name not in PRESETS:
            raise ConfigError(
                f"algorithm.name={self.name!r}: no such algorithm"
                f"{did_you_mean(self.name, PRESETS)}. Known: {', '.join(PRESETS)}"
            )

    def validate_for_training(self) -> None:
        """Raise `ConfigError` if settings have no effect or contradict each other."""
        self._check_kl()
        bounds = self.filter_means
        if bounds and (len(bounds) != 2 or bounds[0] > bounds[1]):
            raise ConfigError(f"algorithm.filter_means={bounds}: must be [lowest, highest]")
        if self.importance_low > self.importance_high:
            raise ConfigError(
                f"algorithm.importance_low={self.importance_low}: must not be above "
                f"algorithm.importance_high={self.importance_high}"
            )
        if self.clip_dual < 1:
            raise ConfigError(
                f"algorithm.clip_dual={self.clip_dual}: must be at least 1: below it, tokens with "
                "negative advantage have no gradient; a large value, such as 1000, disables it"
            )
        if self.max_staleness < -1:
            raise ConfigError(
                f"algorithm.max_staleness={self.max_staleness}: must be at least 0, or -1 for no "
                "limit"
            )

    def _check_kl(self) -> None:
        if self.kl != "none" and self.kl_coefficient == 0 and self.kl_target == 0:
            raise ConfigError(
                f"algorithm.kl={self.kl}: algorithm.kl_coefficient=0 loads a reference model "
                "without any penalty; set a coefficient, or algorithm.kl=none"
            )
        usual = settings_of(self.name)
        for name in ("kl_coefficient", "kl_target"):
            value = getattr(self, name)
            if self.kl == "none" and value != usual[name]:
                raise ConfigError(
                    f"algorithm.{name}={value}: has no effect with algorithm.kl=none; set "
                    f"algorithm.kl=loss or reward, or leave it at {usual[name]}"
                )


assert {f.name for f in fields(AlgorithmConfig)} == {"name", "minibatch", *DEFAULTS}
