"""Settings of the evaluation on held-out seeds."""

from dataclasses import dataclass, field
from typing import Any

from agentrl.config.bounds import EpisodeCount, NonNegativeInt
from agentrl.extension_points import SUITE

RINGS = ("levels", "rules")
"""Rings around the held-out seeds, from near to far; also the keys of `eval.rings`."""


@dataclass(slots=True, kw_only=True)
class RingsConfig:
    """Evaluation beyond held-out seeds: how far the skill of a model reaches.

    The held-out seeds are the first ring; each ring here changes the environment and is reported in
    a column of its own, before and after training and by `agentrl eval`.
    """

    episodes: EpisodeCount = 20
    """Episodes per ring, on the first of the held-out seeds; never more than `eval.episodes`."""
    levels: dict[str, Any] | None = None
    """Overrides of `env.kwargs` and `eval.kwargs` for levels that training never shows: another
    size, number of cards or map. None does not play this ring."""
    rules: dict[str, Any] | None = None
    """Overrides for another look or another rule: inverted colors, a slippery floor. None does not
    play this ring."""


@dataclass(slots=True, kw_only=True)
class EvalConfig:
    """Evaluation on held-out seeds, which are never trained on."""

    every: NonNegativeInt = 10
    """Steps between evaluations during training, which determine the best checkpoint; the last step
    is always evaluated. 0 disables these evaluations."""
    episodes: EpisodeCount = 100
    """Episodes per evaluation before and after training; these evaluations run once sampled and
    once greedy."""
    episodes_during: EpisodeCount = 20
    """Episodes per evaluation during training."""
    first_seed: int = 1_000_000
    """The first held-out seed."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Overrides of `env.kwargs` for evaluation: another split of the data, or a harder level."""
    rings: RingsConfig | None = None
    baselines: list[str] | None = None
    """Scripted players that are evaluated for comparison; None uses `noop`, which does nothing, and
    `random` and `expert`, if the environment has them."""
    suite: str | None = None
    """Evaluation suite that `agentrl eval` plays instead of the job's environment: a name such as
    `number_game_levels` (`agentrl list suite`), your own YAML file, or your own class
    (`my_suite.py:MySuite`)."""

    @property
    def ring_kwargs(self) -> dict[str, dict[str, Any]]:
        """The overrides of each ring that is played, by its name."""
        if self.rings is None:
            return {}
        overrides = {"levels": self.rings.levels, "rules": self.rings.rules}
        return {ring: kwargs for ring in RINGS if (kwargs := overrides[ring])}

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        if self.suite is not None:
            SUITE.check_name(self.suite)
