"""Settings of earlier versions: what they are called now."""

from collections.abc import Iterator, Mapping
from typing import Any

RENAMED: Mapping[str, str] = {
    "algorithm.clip_dual": "algorithm.loss.clip_dual",
    "algorithm.clip_high": "algorithm.loss.clip_high",
    "algorithm.clip_low": "algorithm.loss.clip_low",
    "algorithm.correction": "algorithm.importance_correction.kind",
    "algorithm.correction_high": "algorithm.importance_correction.high",
    "algorithm.correction_low": "algorithm.importance_correction.low",
    "algorithm.critic_clip": "algorithm.critic.clip",
    "algorithm.critic_lr": "algorithm.critic.lr",
    "algorithm.critic_warmup_steps": "algorithm.critic.warmup_steps",
    "algorithm.filter_groups": "algorithm.sampling.filter_groups",
    "algorithm.filter_means": "algorithm.sampling.filter_means",
    "algorithm.filter_refills": "algorithm.sampling.refills",
    "algorithm.importance_correction": "algorithm.importance_correction.kind",
    "algorithm.importance_high": "algorithm.importance_correction.high",
    "algorithm.importance_low": "algorithm.importance_correction.low",
    "algorithm.kl": "algorithm.kl.add_to",
    "algorithm.kl_coefficient": "algorithm.kl.coefficient",
    "algorithm.kl_estimate": "algorithm.kl.estimate",
    "algorithm.kl_horizon": "algorithm.kl.horizon",
    "algorithm.kl_target": "algorithm.kl.target",
    "algorithm.overlong_buffer": "algorithm.overlong.buffer",
    "algorithm.overlong_penalty": "algorithm.overlong.penalty",
    "algorithm.prime_beta": "algorithm.implicit_reward.beta",
    "algorithm.prime_lr": "algorithm.implicit_reward.lr",
    "algorithm.tau_negative": "algorithm.loss.tau_negative",
    "algorithm.tau_positive": "algorithm.loss.tau_positive",
    "env.player": "env.player_kwargs",
    "env.translator": "env.translator_kwargs",
    "env.words": "env.translator_class",
    "eval.seeds": "eval.first_seed",
    "train.transfer": "train.weight_transfer",
    "warm_start.again": "warm_start.repeat",
    "warm_start.recorded_where": "warm_start.recorded_filter",
    "warm_start.recorded_filter.least": "warm_start.recorded_filter.min_reward",
    "warm_start.recorded_filter.most": "warm_start.recorded_filter.max_reward",
    "warm_start.recorded_filter.won": "warm_start.recorded_filter.success",
    "warm_start.weights": "warm_start.phase_weights",
}
"""Dotted old key and dotted new one. A section that was a plain value is old if it still is one."""
_NO_LIMIT = {
    "algorithm.aggregate_constant": 0,
    "algorithm.critic.clip": 0,
    "algorithm.kl.target": 0,
    "algorithm.max_staleness": -1,
    "algorithm.sampling.filter_means": [],
}
"""Values that meant what None means today."""
_ESTIMATORS = {
    "cispo": "grpo", "dapo": "grpo", "gspo": "grpo", "pf_ppo": "gae", "ppo": "gae", "sapo": "grpo",
    "turn_ppo": "turn_gae",
}  # fmt: skip
_NAMES = {"gae": "ppo", "turn_gae": "turn_ppo"}


def estimator_of(name: str) -> str:
    """Return the former default of `algorithm.estimator` for an algorithm of this name."""
    return _ESTIMATORS.get(name, name)


def renamed_in(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every old key in a tree, and its new one, in the order in which to rename them."""
    for old, new in RENAMED.items():
        value = _get(tree, old)
        was_plain = new.startswith(f"{old}.")
        if value is not _ABSENT and not (was_plain and isinstance(value, dict)):
            yield old, new


def removed_in(tree: dict[str, Any]) -> str | None:
    """A message about the first key in a tree that has no successor."""
    if _get(tree, "algorithm.estimator") is _ABSENT:
        return None
    return (
        "algorithm.estimator is gone: each algorithm has its own estimator, and algorithm.name "
        "selects it (agentrl algorithms)"
    )


def upgrade(tree: dict[str, Any]) -> None:
    """Give a tree that an earlier version saved, with all its settings, today's keys and values."""
    for old, new in renamed_in(tree):
        put(tree, new, _pop(tree, old))
    for key, value in _NO_LIMIT.items():
        if _get(tree, key) == value:
            put(tree, key, None)
    estimator = _pop(tree, "algorithm.estimator")
    name = _get(tree, "algorithm.name")
    if estimator is not _ABSENT and estimator != estimator_of(str(name)):
        put(tree, "algorithm.name", _NAMES.get(estimator, estimator))
    if _get(tree, "algorithm.resample_power") == 0:
        _pop(tree, "algorithm.resample_power")


class _Absent:
    pass


_ABSENT: Any = _Absent()


def _get(tree: Any, key: str) -> Any:
    for name in key.split("."):
        if not isinstance(tree, dict) or name not in tree:
            return _ABSENT
        tree = tree[name]
    return tree


def _pop(tree: dict[str, Any], key: str) -> Any:
    path, _, name = key.rpartition(".")
    section = _get(tree, path)
    return section.pop(name, _ABSENT) if isinstance(section, dict) else _ABSENT


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key; sections are created as needed."""
    *path, name = key.split(".")
    for part in path:
        if not isinstance(tree.get(part), dict):
            tree[part] = {}
        tree = tree[part]
    tree[name] = value
