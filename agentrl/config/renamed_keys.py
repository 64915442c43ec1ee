"""Keys of earlier versions, and what they are called now."""

from collections.abc import Iterator, Mapping
from typing import Any

RENAMED = {
    "algorithm.correction": "importance_correction",
    "algorithm.correction_high": "importance_high",
    "algorithm.correction_low": "importance_low",
    "env.player": "player_kwargs",
    "env.translator": "translator_kwargs",
    "env.words": "translator_class",
    "eval.seeds": "first_seed",
    "train.transfer": "weight_transfer",
    "warm_start.again": "repeat",
    "warm_start.recorded_where": "recorded_filter",
    "warm_start.weights": "phase_weights",
}
"""Dotted old key, and the new name in the same section."""


def renamed_in(tree: Mapping[Any, Any]) -> Iterator[tuple[str, str, str]]:
    """Section, old name and new name of every key of an earlier version in a tree."""
    for key, new in RENAMED.items():
        section, _, old = key.partition(".")
        values = tree.get(section)
        if isinstance(values, Mapping) and old in values:
            yield section, old, new
