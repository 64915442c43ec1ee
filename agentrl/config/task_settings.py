"""Settings of the tasks to train on: how they are sampled, and the environments of a mixture."""

import re
from dataclasses import dataclass, field, fields
from typing import Any

from agentrl.config.bounds import EpisodeCount, PositiveFloat, check_bounds
from agentrl.config.env_settings import EnvConfig, HorizonConfig, StartConfig, WrapperConfig
from agentrl.config.reward_settings import RewardConfig
from agentrl.config.type_checks import find_mistyped
from agentrl.errors import ConfigError
from agentrl.text.name_suggestions import did_you_mean


@dataclass(slots=True, kw_only=True)
class SamplerConfig:
    """How the tasks of a training step are chosen; each sampler adds its own settings.

    The section may be written as just the name.
    """

    name: str
    """`uniform`, `solve_rate`, `success_replay`, or your own class (`my_sampler.py:MySampler`)."""
    pool: EpisodeCount | None = None
    """Train repeatedly on this many seeds of each environment, so that tasks repeat; None uses the
    rows of a data set, or a new seed for each group."""
    success_at: float | None = None
    """Minimum reward for an episode to count as solved; None requires the environment's metric
    `success` or `accuracy` to be 1."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid combination of settings."""


@dataclass(slots=True, kw_only=True)
class MixtureConfig:
    """One environment of a job that trains on several, or a level of the job's environment.

    Each group is played in a single environment; all environments are evaluated. Without
    `rewards`, the job's rewards apply, or the environment's own reward if it has a different `id`.
    """

    name: str = "???"
    """Name in the metrics, `env/NAME/...`: letters, digits, `.`, `_`, `+` and `-`."""
    weight: PositiveFloat = 1.0
    """Share of the groups, relative to the sum of all weights; see also `sampling`."""
    env: dict[str, Any] = field(default_factory=dict)
    """Differences from the section `env`, such as `{kwargs: {boxes: 2}}`; `kwargs` and
    `translator_kwargs` are merged. With a different `id`, this is the whole section, and nothing is
    taken from `env`."""
    rewards: list[RewardConfig] | None = None
    """Reward functions of this environment; None uses the job's functions, or the environment's own
    reward if it has a different `id`."""
    eval_kwargs: dict[str, Any] = field(default_factory=dict)
    """Overrides of this environment's `kwargs` for evaluation. `eval.kwargs` apply as well, except
    to entries with a different `id` and to arguments set in this entry's `env.kwargs`."""

    def has_other_id(self, base: EnvConfig) -> bool:
        """True if this environment's id differs from that of the job's `env`."""
        return bool(self.env.get("id", base.id) != base.id)

    def environment(self, base: EnvConfig, where: str) -> EnvConfig:
        """Return the whole section `env` of this environment.

        Args:
            base: the section `env`.
            where: key of this entry, for error messages.

        Raises:
            ConfigError: a key is unknown, or a value has the wrong type.
        """
        known = [one.name for one in fields(EnvConfig)]
        if unknown := [key for key in self.env if key not in known]:
            raise ConfigError(
                f"{where}.env.{unknown[0]}: unknown key{did_you_mean(unknown[0], known)}"
            )
        if (found := find_mistyped(self.env, EnvConfig, f"{where}.env")) is not None:
            raise ConfigError(": ".join(found))
        if self.env.get("prompt") is not None:
            raise ConfigError(
                f"{where}.env.prompt={self.env['prompt']}: an environment of a mixture cannot have "
                "its own prompt; use a translator with different instructions, or set env.prompt "
                "for all levels of the job's environment"
            )
        own = dict(self.env)
        tree = {} if self.has_other_id(base) else {n: getattr(base, n) for n in known}
        for key in ("kwargs", "translator_kwargs"):
            own[key] = {**tree.get(key, {}), **own.get(key, {})}
        if "wrappers" in own:
            own["wrappers"] = [WrapperConfig(**one) for one in own["wrappers"]]
        if own.get("horizon") is not None:
            own["horizon"] = HorizonConfig(**own["horizon"])
        if own.get("start") is not None:
            own["start"] = StartConfig(**own["start"])
        env = EnvConfig(**{**tree, **own})
        check_bounds(env, f"{where}.env")
        return env


def check_mixture(mixture: list[MixtureConfig]) -> None:
    """Check the names and weights of a mixture.

    Raises:
        ConfigError: a name or weight is invalid.
    """
    names = [one.name for one in mixture]
    for index, one in enumerate(mixture):
        where = f"mixture[{index}]"
        if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,40}", one.name):
            raise ConfigError(
                f"{where}.name={one.name!r}: must consist of 1 to 40 letters, digits, '.', '_', "
                "'+' or '-', because it becomes part of metric names"
            )
        if names.count(one.name) > 1:
            raise ConfigError(
                f"{where}.name={one.name}: is already the name of another environment"
            )
