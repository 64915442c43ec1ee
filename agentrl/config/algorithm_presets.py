"""Presets: named algorithms, as defaults of the algorithm section."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
