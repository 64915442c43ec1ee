"""The settings of an algorithm, and the presets that fill them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal


def _preset() -> Any:
    """A setting that the algorithm of that name decides where nobody else does."""
    return field(default=None)


@dataclass(slots=True, kw_only=True)
class AlgorithmConfig:
    """What the policy learns from its episodes.

    The algorithm's name decides every other setting of this section that is not given;
    `agentrl algorithms` lists them.
    """

    name: str = "state_grpo"
    """A preset; `agentrl algorithms` lists them."""
    estimator: Literal[
        "grpo", "dr_grpo", "rloo", "turn_grpo", "state_grpo", "gigpo", "reinforce_pp",
        "reinforce_pp_baseline", "remax", "gae", "turn_gae", "prime",
    ] = _preset()  # fmt: skip
    """How advantages are found: docs/algorithms.md has the formulas."""
    discount: float = _preset()
    """Of later rewards, from turn to turn; not used by `grpo`, `dr_grpo`, `rloo` and
    `reinforce_pp_baseline`, which compare whole episodes."""
    token_discount: float = _preset()
    """Of later rewards, from token to token within a turn."""
    gae_lambda: float = _preset()
    """Decay of `gae` and, within a turn, of `turn_gae`."""
    turn_gae_lambda: float = _preset()
    """Decay of `turn_gae` from turn to turn."""
    episode_weight: float = _preset()
    """Of `gigpo`: what the whole episode's advantage counts."""
    state_weight: float = _preset()
    """Of `gigpo`: what the advantage among equal states counts."""
    whiten: bool = _preset()
    """Bring the advantages of a step to mean 0 and standard deviation 1, over its tokens."""
    loss: Literal["ppo", "gspo", "cispo", "sapo"] = _preset()
    """What is minimised, token by token."""
    clip_low: float = _preset()
    """A probability may fall to `1 - clip_low` times what it was when sampled."""
    clip_high: float = _preset()
    """And rise to `1 + clip_high` times."""
    clip_dual: float = _preset()
    """Bounds the loss of tokens that became much likelier although they did harm."""
    tau_positive: float = _preset()
    """Of `sapo`: how sharply tokens that did good are held back."""
    tau_negative: float = _preset()
    """Of `sapo`: how sharply tokens that did harm are."""
    aggregate: Literal[
        "token_mean", "sequence_mean", "sequence_sum", "constant", "token_sum"
    ] = _preset()  # fmt: skip
    """Tokens to a loss: the mean over all tokens; the mean over episodes of their tokens' mean, of
    their sum, or of their sum over `aggregate_constant`; the sum. Of the whole step at once."""
    aggregate_constant: float = _preset()
    """In tokens; 0 takes the most that an episode may sample."""
    kl: Literal["none", "loss", "reward"] = _preset()
    """Where the divergence from the model at the start of reinforcement is held against the policy:
    `none` keeps no reference."""
    kl_estimate: Literal["k1", "abs", "k2", "k3", "k3+"] = _preset()
    """How the divergence is estimated from sampled tokens."""
    kl_coefficient: float = _preset()
    """What it counts."""
    kl_target: float = _preset()
    """Nats per token that the coefficient is adapted to hold; 0 leaves it as it is."""
    kl_horizon: float = _preset()
    """Steps that the adaptation takes its time for."""
    entropy_coefficient: float = _preset()
    """What the entropy of the policy is rewarded with in the loss."""
    filter_groups: bool = _preset()
    """Groups whose episodes all earned the same are played anew with other seeds."""
    filter_means: list[float] = _preset()  # noqa: RUF009
    """[lowest, highest] mean return of a group, beyond which it is played anew; empty for none."""
    filter_refills: int = _preset()
    """How often the missing groups of a step are played anew, at most."""
    overlong_buffer: float = _preset()
    """Share of `rollout.max_new_tokens` at its end in which a reply's length costs reward."""
    overlong_penalty: float = _preset()
    """What a reply of `rollout.max_new_tokens` loses."""
    resample_power: float = _preset()
    """Episodes are drawn anew in proportion to this power of their return's size; 0 for none."""
    correction: Literal[
        "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"
    ] = _preset()  # fmt: skip
    """For tokens that the engine sampled with other probabilities than the learner's before the
    update: weigh them by the ratio, truncated, or masked outside its bounds."""
    correction_low: float = _preset()
    """The lowest ratio that is not masked."""
    correction_high: float = _preset()
    """The highest ratio that is not truncated or masked."""
    max_staleness: int = _preset()
    """Updates that a token may be older than the learner; older ones have no part in any
    loss. -1 for any."""
    critic_lr: float = _preset()
    """Of the critic's own optimizer, for `gae` and `turn_gae`."""
    critic_clip: float = _preset()
    """How far a value may move from what it was before the update; 0 for any."""
    critic_warmup_steps: int = _preset()
    """Steps in which the critic alone learns, at the beginning."""
    prime_beta: float = _preset()
    """Of `prime`: scale of the implicit reward."""
    prime_lr: float = _preset()
    """Of the implicit reward model's optimizer."""
    epochs: int = _preset()
    """Passes over the samples of a step."""
    minibatch: int | None = None
    """Samples with an advantage per optimizer step; None takes one step per pass."""

    def __post_init__(self) -> None:
        for name, value in settings_of(self.name).items():
            if getattr(self, name) is None:
                setattr(self, name, value)


@dataclass(slots=True, kw_only=True, frozen=True)
class Preset:
    """One algorithm: where it comes from, and how it differs from `DEFAULTS`."""

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
    "correction": "none",
    "correction_low": 0.5,
    "correction_high": 2.0,
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
        about="siblings are compared at the same state by what came after it; by whole episodes "
        "where the environment names no states",
        source="GiGPO's second term alone, with DAPO's clipping",
        settings={"estimator": "state_grpo", "clip_high": 0.28},
    ),
    "turn_grpo": Preset(
        about="every turn is compared with all turns of its group by what came after it",
        source="REINFORCE++'s returns over turns, with DAPO's clipping",
        settings={"estimator": "turn_grpo", "clip_high": 0.28},
    ),
    "grpo": Preset(
        about="whole episodes against their siblings' mean and standard deviation",
        source="arXiv:2402.03300",
        settings={"aggregate": "sequence_mean"},
    ),
    "dr_grpo": Preset(
        about="GRPO without its two divisions, which favour long failures and easy questions",
        source="arXiv:2503.20783",
        settings={"estimator": "dr_grpo", "aggregate": "constant"},
    ),
    "dapo": Preset(
        about="GRPO with a higher upper bound, refilled groups, a token mean and a length penalty",
        source="arXiv:2503.14476",
        settings={"clip_high": 0.28, "filter_groups": True, "overlong_buffer": 0.2},
    ),
    "gspo": Preset(
        about="one ratio for a whole reply",
        source="arXiv:2507.18071",
        settings={
            "loss": "gspo",
            "clip_low": 3e-4,
            "clip_high": 4e-4,
            "aggregate": "sequence_mean",
        },
    ),
    "cispo": Preset(
        about="clips the weight of a token and never its gradient",
        source="arXiv:2506.13585",
        settings={"loss": "cispo", "clip_low": 1.0, "clip_high": 4.0},
    ),
    "sapo": Preset(
        about="a soft gate instead of a bound",
        source="arXiv:2511.20347",
        settings={"loss": "sapo", "aggregate": "sequence_mean"},
    ),
    "rloo": Preset(
        about="each episode against the mean of the others",
        source="arXiv:2402.14740",
        settings={"estimator": "rloo"},
    ),
    "reinforce_pp": Preset(
        about="returns, whitened over the whole batch; needs no siblings",
        source="arXiv:2501.03262",
        settings={"estimator": "reinforce_pp"},
    ),
    "reinforce_pp_baseline": Preset(
        about="less the siblings' mean, then whitened over the whole batch",
        source="arXiv:2501.03262",
        settings={"estimator": "reinforce_pp_baseline"},
    ),
    "remax": Preset(
        about="returns less what the greedy policy earns on the same seed",
        source="arXiv:2310.10505",
        settings={"estimator": "remax"},
    ),
    "ppo": Preset(
        about="a critic's values over tokens",
        source="arXiv:1707.06347, arXiv:1506.02438",
        settings=_CRITIC,
    ),
    "turn_ppo": Preset(
        about="a critic's values over turns, then over the tokens of each",
        source="arXiv:2510.16907",
        settings=_CRITIC | {"estimator": "turn_gae", "discount": 0.99, "turn_gae_lambda": 0.95},
    ),
    "pf_ppo": Preset(
        about="PPO on episodes drawn in proportion to the size of their return",
        source="arXiv:2409.06957",
        settings=_CRITIC | {"resample_power": 1.0},
    ),
    "gigpo": Preset(
        about="whole episodes, and turns among those that start from the same state",
        source="arXiv:2505.10978",
        settings={"estimator": "gigpo", "discount": 0.95, "aggregate": "sequence_mean"},
    ),
    "prime": Preset(
        about="leave-one-out outcomes and an implicit process reward that is learned on the way",
        source="arXiv:2502.01456",
        settings={"estimator": "prime"},
    ),
}


def settings_of(name: str) -> dict[str, Any]:
    """All settings of a preset; the defaults for a name that is none, which `validate` refuses."""
    own = PRESETS[name].settings if name in PRESETS else {}
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in {**DEFAULTS, **own}.items()
    }


assert {f.name for f in fields(AlgorithmConfig)} == {"name", "minibatch", *DEFAULTS}
