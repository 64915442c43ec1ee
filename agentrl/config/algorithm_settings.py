"""Settings of the algorithm section, and the presets that provide their defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal


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
    """Most rounds of replacing filtered groups per step."""
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
    """Most updates by which a token may be older than the learner; older tokens are left out of
    every loss. -1 for no limit."""
    critic_lr: float = _preset()
    """Learning rate of the critic, for `gae` and `turn_gae`."""
    critic_clip: float = _preset()
    """Value clipping: largest change of a value in one update; 0 for no limit."""
    critic_warmup_steps: int = _preset()
    """First steps, in which only the critic is trained."""
    prime_beta: float = _preset()
    """For `prime`: scale of the implicit reward."""
    prime_lr: float = _preset()
    """Learning rate of the implicit reward model."""
    epochs: int = _preset()
    """Passes over a step's samples."""
    minibatch: int | None = None
    """Samples with nonzero advantage per optimizer step; None makes one step per pass."""

    def __post_init__(self) -> None:
        for name, value in settings_of(self.name).items():
            if getattr(self, name) is None:
                setattr(self, name, value)


@dataclass(slots=True, kw_only=True, frozen=True)
class Preset:
    """One algorithm: its source, and the settings in which it differs from `DEFAULTS`."""

    about: str
    source: str
    settings: Mapping[str, Any]


DEFAULTS: Mapping[str, Any] = {
    "estimator": "grpo",
    "discount": 1.0,
    "token_discount": 1.0,
    "gae_lambda": 1.0,
    "turn_gae_lambda": 1.0,
    "episode_weight": 1.0,
    "state_weight": 1.0,
    "whiten": False,
    "loss": "ppo",
    "clip_low": 0.2,
    "clip_high": 0.2,
    "clip_dual": 3.0,
    "tau_positive": 1.0,
    "tau_negative": 1.05,
    "aggregate": "token_mean",
    "aggregate_constant": 0.0,
    "kl": "none",
    "kl_estimate": "k3",
    "kl_coefficient": 0.001,
    "kl_target": 0.0,
    "kl_horizon": 10.0,
    "entropy_coefficient": 0.0,
    "filter_groups": False,
    "filter_means": (),
    "filter_refills": 3,
    "overlong_buffer": 0.0,
    "overlong_penalty": 1.0,
    "resample_power": 0.0,
    "importance_correction": "none",
    "importance_low": 0.5,
    "importance_high": 2.0,
    "max_staleness": -1,
    "critic_lr": 1e-5,
    "critic_clip": 0.2,
    "critic_warmup_steps": 0,
    "prime_beta": 0.05,
    "prime_lr": 1e-6,
    "epochs": 1,
}

_CRITIC = {"estimator": "gae", "whiten": True}

PRESETS: Mapping[str, Preset] = {
    "state_grpo": Preset(
        about="compares the returns of sibling turns that start from the same state; of whole "
        "episodes if the environment provides no state keys",
        source="GiGPO's step-level term, with DAPO's clipping",
        settings={"estimator": "state_grpo", "clip_high": 0.28},
    ),
    "turn_grpo": Preset(
        about="compares the return from every turn with all turns of its group",
        source="REINFORCE++'s returns per turn, with DAPO's clipping",
        settings={"estimator": "turn_grpo", "clip_high": 0.28},
    ),
    "grpo": Preset(
        about="normalizes each episode's return by its group's mean and standard deviation",
        source="arXiv:2402.03300",
        settings={"aggregate": "sequence_mean"},
    ),
    "dr_grpo": Preset(
        about="GRPO without its two divisions, which favor long failures and easy tasks",
        source="arXiv:2503.20783",
        settings={"estimator": "dr_grpo", "aggregate": "constant"},
    ),
    "dapo": Preset(
        about="GRPO with a higher upper clip, dynamic sampling, a token mean and a length penalty",
        source="arXiv:2503.14476",
        settings={"clip_high": 0.28, "filter_groups": True, "overlong_buffer": 0.2},
    ),
    "gspo": Preset(
        about="one importance ratio per reply",
        source="arXiv:2507.18071",
        settings={
            "loss": "gspo",
            "clip_low": 3e-4,
            "clip_high": 4e-4,
            "aggregate": "sequence_mean",
        },
    ),
    "cispo": Preset(
        about="clips the importance weight of a token, never its gradient",
        source="arXiv:2506.13585",
        settings={"loss": "cispo", "clip_low": 1.0, "clip_high": 4.0},
    ),
    "sapo": Preset(
        about="a soft gate instead of clipping",
        source="arXiv:2511.20347",
        settings={"loss": "sapo", "aggregate": "sequence_mean"},
    ),
    "rloo": Preset(
        about="leave-one-out: each episode's return minus the mean of its siblings'",
        source="arXiv:2402.14740",
        settings={"estimator": "rloo"},
    ),
    "reinforce_pp": Preset(
        about="returns whitened over the whole batch; needs no siblings",
        source="arXiv:2501.03262",
        settings={"estimator": "reinforce_pp"},
    ),
    "reinforce_pp_baseline": Preset(
        about="returns minus the group's mean, then whitened over the whole batch",
        source="arXiv:2501.03262",
        settings={"estimator": "reinforce_pp_baseline"},
    ),
    "remax": Preset(
        about="returns minus the greedy policy's return on the same seed",
        source="arXiv:2310.10505",
        settings={"estimator": "remax"},
    ),
    "ppo": Preset(
        about="generalized advantage estimation over tokens, with a critic",
        source="arXiv:1707.06347, arXiv:1506.02438",
        settings=_CRITIC,
    ),
    "turn_ppo": Preset(
        about="generalized advantage estimation over turns, then over the tokens of each",
        source="arXiv:2510.16907",
        settings=_CRITIC | {"estimator": "turn_gae", "discount": 0.99, "turn_gae_lambda": 0.95},
    ),
    "pf_ppo": Preset(
        about="PPO on episodes resampled in proportion to their absolute return",
        source="arXiv:2409.06957",
        settings=_CRITIC | {"resample_power": 1.0},
    ),
    "gigpo": Preset(
        about="GRPO over whole episodes plus GRPO over turns that start from the same state",
        source="arXiv:2505.10978",
        settings={"estimator": "gigpo", "discount": 0.95, "aggregate": "sequence_mean"},
    ),
    "prime": Preset(
        about="leave-one-out returns plus an implicit process reward that is trained online",
        source="arXiv:2502.01456",
        settings={"estimator": "prime"},
    ),
}


def settings_of(name: str) -> dict[str, Any]:
    """All settings of a preset; for an unknown name, which `validate` rejects, the defaults."""
    own = PRESETS[name].settings if name in PRESETS else {}
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in {**DEFAULTS, **own}.items()
    }


assert {f.name for f in fields(AlgorithmConfig)} == {"name", "minibatch", *DEFAULTS}
