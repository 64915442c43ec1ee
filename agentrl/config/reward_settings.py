"""Settings of reward functions and of their audit."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt

from agentrl.config.bounds import PositiveInt
from agentrl.errors import ConfigError


@dataclass(slots=True, kw_only=True)
class RewardConfig:
    """One reward function and its weight."""

    function: str = "???"
    """`module:name`, `path/file.py:name`, or a name from `agentrl list reward`."""
    weight: float = 1.0
    """Weight of this function in the sum of rewards."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function, in addition to the episode."""
    kind: Literal[
        "auto", "episode", "batch", "sequential", "answer", "answers", "completions", "queries"
    ] = "auto"
    """The function's calling convention: an episode (`episode`); the inputs of several episodes
    (`batch`) or of one (`sequential`), as in EasyR1; the reply and the ground truth (`answer`), or
    lists of them (`answers`), as in veRL; `completions` and the columns of the data set, as in TRL;
    or `queries`, as in OpenRLHF. `auto` reads `REWARD_TYPE` from the function's file, or else goes
    by the name of the first parameter: `reward_inputs`, `reward_input`, `data_source`,
    `data_sources`, `completions` or `queries`."""


@dataclass(slots=True, kw_only=True)
class RewardAuditConfig:
    """Comparison of training rewards with the ground truth reported by the environment."""

    reward: str = "reward"
    """The audited reward: `reward`, the sum of all rewards, or `reward/NAME`, the reward of a
    single function."""
    accept_at: float = 0.5
    """Lowest reward at which an episode counts as accepted."""
    truth: str = "success"
    """The ground truth: `success`, another metric of the environment, `env_reward`, or
    `reward/NAME`. Episodes without this value are not counted."""
    truth_at: float = 1.0
    """Lowest value of `truth` that counts as a success."""
    max_false_accept: Annotated[float, Ge(0), Lt(1)] | None = None
    """Maximum fraction of failed episodes that may be accepted. The job stops when the 95%
    confidence interval of the fraction lies above this; None only logs it."""
    max_false_reject: Annotated[float, Ge(0), Lt(1)] | None = None
    """Maximum fraction of successful episodes that may be rejected; works like
    `max_false_accept`."""
    min_episodes: PositiveInt = 50
    """Minimum number of episodes a fraction is computed from before it can stop the job."""
    window: PositiveInt = 1000
    """Number of most recent episodes that are counted."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        if self.window < self.min_episodes:
            raise ConfigError(
                f"reward_audit.window={self.window}: must be at least "
                f"reward_audit.min_episodes={self.min_episodes}"
            )
        if self.reward == self.truth:
            raise ConfigError(
                f"reward_audit.truth={self.truth}: is the audited reward itself; set it to a value "
                "that the environment reports, such as success"
            )
