"""The base class of algorithms, their requirements, and checks of the groups they train on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from statistics import pstdev
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from agentrl.algorithms.core.policy_loss import LossInputs, TokenLoss, load_loss
from agentrl.algorithms.core.statistics import nearly_equal
from agentrl.config import (
    AlgorithmConfig,
    CriticConfig,
    GroupFilterConfig,
    ImplicitRewardConfig,
    OverlongConfig,
)
from agentrl.errors import ConfigError, LearnerError, boundary
from agentrl.extension_points import ALGORITHM
from agentrl.types import ScoredEpisode

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.algorithms.core.trajectories import Trajectories

START, SELF = "start", "self"
"""Teachers without a folder: the model before training, and the policy with privileged text."""
_OVERLONG = "algorithm.overlong"
"""Name of the overlong penalty among the reward functions."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Requires:
    """Inputs that an algorithm needs in addition to the episodes."""

    siblings: bool = False
    """True if the algorithm learns nothing from groups with fewer than two episodes."""
    critic: CriticConfig | None = None
    """A critic, which provides `Trajectories.values` and `last_values`; `advantages` returns its
    targets."""
    implicit_reward: ImplicitRewardConfig | None = None
    """A reward model trained online on outcomes, which provides `Trajectories.implicit`."""
    teacher: str | None = None
    """A frozen model, named as in `algorithm.teacher` of `opd`, which provides
    `Trajectories.teacher`."""
    privileged: str | None = None
    """Text that is added to the teacher's prompts; see `algorithm.privileged` of `opd`."""
    reference: bool = False
    """A frozen copy of the policy from the start of reinforcement learning."""
    old_logprobs: bool = False
    """The learner's log-probabilities before the update."""
    all_tokens: bool = False
    """True if the loss has a gradient where advantages are 0. If false, samples whose advantages
    are all 0 are skipped."""
    greedy: bool = False
    """The greedy policy's return on each group's seed, in `Trajectories.greedy`."""
    state_keys: bool = False
    """State keys from the environment, in `Trajectories.states`."""
    reward_functions: bool = False
    """The rewards of each function, in `Trajectories.function_rewards`. A group has a learning
    signal if those of any function differ, even if the totals are equal."""

    @property
    def token_scores(self) -> bool:
        """True if a model must score the sampled tokens before the update."""
        models = (self.critic, self.implicit_reward, self.teacher)
        return any(models) or self.reference or self.old_logprobs


@dataclass(slots=True, kw_only=True, frozen=True)
class AdvantageResult:
    """Advantages, and targets for the critic."""

    advantages: Tensor
    """float64[E, N]"""
    returns: Tensor | None = None
    """float64[E, N], the critic's targets; None without a critic."""


class Algorithm(ABC):
    """An algorithm: its settings, advantages, loss and requirements.

    Example:
        ```python
        class MeanBaseline(Algorithm):
            about = "returns minus the group's mean"
            source = "a textbook"
            requires = Requires(siblings=True)

            def advantages(self, played: Trajectories) -> Tensor:
                return played.to_tokens(
                    per_group(center, played.returns, played.group, played.valid)
                )
        ```

    Args:
        config: settings of this algorithm.
    """

    about: ClassVar[str]
    """One-line description of the algorithm."""
    source: ClassVar[str]
    """Papers that introduced the algorithm."""
    formula: ClassVar[str] = ""
    """The advantage of an episode, turn or token."""
    differs: ClassVar[str] = ""
    """How other implementations differ."""
    compares: ClassVar[Literal["episodes", "turns", "states"] | None] = None
    """The unit that is compared with siblings: whole episodes, turns, or turns that start from the
    same state. If set, adding a constant to the last reward of every episode in a group changes no
    advantage (for `turns` and `states`, at `discount` 1)."""
    Config: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    """Dataclass of the algorithm's settings, all with defaults; extends `AlgorithmConfig`."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.policy_loss = load_loss(config.loss)

    @property
    def requires(self) -> Requires:
        """Inputs that the algorithm needs; override it as a class attribute or a property."""
        return Requires()

    @abstractmethod
    def advantages(self, played: Trajectories) -> Tensor | AdvantageResult:
        """Compute every sampled token's advantage, float64[E, N]; 0 outside `played.token_mask`.

        Void episodes (False in `played.valid`) get 0 and must not influence other episodes. The
        layout of prompts is deliberately hidden, so that advantages cannot depend on it.
        `algorithm.whiten` is applied afterwards.

        Args:
            played: the episodes of a step, group after group.

        Returns:
            The advantages, together with the critic's targets if `requires` has a critic.
        """

    def loss(self, inputs: LossInputs) -> TokenLoss:
        """Compute the policy loss of every token, as selected by `algorithm.loss`."""
        return self.policy_loss(inputs)

    def keep_group(self, group: Sequence[ScoredEpisode]) -> bool:
        """Return whether to train on a group; `algorithm.sampling` has the filters."""
        by_function = self.requires.reward_functions
        return has_learning_signal(group, self.config.sampling, by_function=by_function)

    def shape_rewards(
        self, group: Sequence[ScoredEpisode], max_new_tokens: int
    ) -> list[ScoredEpisode]:
        """Return a group with the rewards to compute advantages from; see `algorithm.overlong`."""
        return penalize_overlong(group, self.config.overlong, max_new_tokens)

    def resample(
        self, returns: Sequence[float], valid: Sequence[bool], seed: int
    ) -> list[int] | None:
        """Choose the episodes to train on, after advantages are computed.

        Args:
            returns: [E]
            valid: [E], False for void episodes.
            seed: seed of the random draws.

        Returns:
            Ascending indices, possibly repeated; None uses each episode once.
        """
        return None

    @property
    def attempts(self) -> int:
        """Maximum number of times a step's groups are played, including replacements."""
        sampling: GroupFilterConfig = self.config.sampling
        # An algorithm with its own filter replaces groups regardless of settings.
        has_filter = sampling.filters or type(self).keep_group is not Algorithm.keep_group
        return 1 + (sampling.refills if has_filter else 0)

    def requirements(self) -> Requires:
        """Combine `requires` with the requirements of settings common to all algorithms."""
        own, config = self.requires, self.config
        # An implicit reward is a log-ratio to the reference. A teacher, the KL in rewards and the
        # importance correction need the learner's own log-probabilities before the update.
        return replace(
            own,
            reference=own.reference
            or own.implicit_reward is not None
            or config.kl.add_to != "none",
            old_logprobs=own.old_logprobs
            or own.teacher is not None
            or config.kl.add_to == "reward"
            or config.importance_correction.kind != "none",
            all_tokens=own.all_tokens
            or self.policy_loss.all_tokens
            or config.kl.add_to == "loss"
            or config.has_entropy_bonus,
        )


def load_algorithm(config: AlgorithmConfig) -> Algorithm:
    """Create the algorithm named in a configuration."""
    algorithm: Algorithm = ALGORITHM.resolve(config.name)(config)
    return algorithm


def has_learning_signal(
    group: Sequence[ScoredEpisode], settings: GroupFilterConfig, *, by_function: bool = False
) -> bool:
    """Return whether a group passes `algorithm.sampling`'s filters (DAPO, arXiv:2503.14476).

    Args:
        group: the episodes of a group.
        settings: settings in `algorithm.sampling`.
        by_function: compare the rewards of each function instead of their weighted sums.
    """
    valid = [scored for scored in group if not scored.episode.outcome.void]
    returns = [scored.reward for scored in valid]
    if settings.filter_groups:
        compared: dict[str, list[float]] = {}
        for scored in valid:
            own = scored.by_function() if by_function else {"": (1.0, scored.reward)}
            for name, (weight, total) in own.items():
                if weight:
                    compared.setdefault(name, []).append(total)
        if all(nearly_equal(min(totals), max(totals)) for totals in compared.values()):
            return False
    if settings.filter_means is not None and returns:
        low, high = settings.filter_means
        return low <= sum(returns) / len(returns) <= high
    return True


def most_varied_groups(groups: Sequence[Sequence[ScoredEpisode]], fraction: float) -> list[int]:
    """Return the groups whose returns vary most, in ascending order (RAGEN, arXiv:2504.20073).

    Args:
        groups: the groups of a step.
        fraction: share of the groups to return, rounded down, but at least one group. Of groups
            with equal standard deviations, the first are returned.
    """
    spreads = []
    for group in groups:
        returns = [scored.reward for scored in group if not scored.episode.outcome.void]
        spreads.append(pstdev(returns) if returns else 0.0)
    count = max(1, int(fraction * len(groups)))
    return sorted(sorted(range(len(groups)), key=lambda i: -spreads[i])[:count])


def overlong_penalty(length: int, longest: int, buffer: float, penalty: float) -> float:
    """Return min(0, -(length - (longest - buffer)) / buffer * penalty), at least -penalty.

    Source: DAPO, arXiv:2503.14476, equation 13.

    Args:
        length: reply length in tokens.
        longest: maximum reply length in tokens.
        buffer: number of tokens before the limit over which the penalty grows; 0 for no penalty.
        penalty: penalty of a reply at the limit.
    """
    if buffer <= 0:
        return 0.0
    return max(-penalty, min(0.0, -(length - (longest - buffer)) / buffer * penalty))


def penalize_overlong(
    group: Sequence[ScoredEpisode], settings: OverlongConfig, max_new_tokens: int
) -> list[ScoredEpisode]:
    """Add the penalty for overlong replies to a group's rewards; do nothing without a buffer.

    The penalty is one more reward function with weight `algorithm.overlong.penalty`.
    """
    buffer = settings.buffer * max_new_tokens
    if buffer <= 0:
        return list(group)
    shaped = []
    for scored in group:
        lengths = [len(turn.reply_ids) for turn in scored.episode.turns]
        own = tuple(overlong_penalty(length, max_new_tokens, buffer, 1.0) for length in lengths)
        pairs = zip(scored.rewards, own, strict=True)
        scored = replace(scored, rewards=tuple(r + settings.penalty * p for r, p in pairs))
        if scored.weights:
            scored = replace(
                scored,
                components={**scored.components, _OVERLONG: own},
                weights={**scored.weights, _OVERLONG: settings.penalty},
            )
        shaped.append(scored)
    return shaped


def method_boundary(algorithm: Algorithm, method: str) -> AbstractContextManager[None]:
    """Convert exceptions in an algorithm's method to a LearnerError that names the method."""
    return boundary(LearnerError, f"algorithm.name={algorithm.config.name}: {method}() fails")


def check_state_keys(groups: Sequence[Sequence[ScoredEpisode]], algorithm: Algorithm) -> None:
    """Raise `ConfigError` if the algorithm compares equal states and no turn has a state key."""
    turns = [
        turn for group in groups for s in group if not s.episode.outcome.void
        for turn in s.episode.turns
    ]  # fmt: skip
    if algorithm.requires.state_keys and turns and all(turn.state_key is None for turn in turns):
        raise ConfigError(
            f"algorithm.name={algorithm.config.name}: {groups[0][0].episode.env_id} provides no "
            "state keys (info['state_key']); set env.state_key=screen to compare screens instead"
        )
