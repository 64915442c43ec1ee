"""Health checks for training failures that the usual curves do not show.

Each check logs a metric at every step, `watch/<name>`, which is 1 while its warning sign is
present, and logs a warning when the sign appears. Means over the last `WINDOW` steps are compared
with means over the first `WINDOW` steps.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from agentrl.actions.players.noop_player import NOOP
from agentrl.runs.failure_modes import REPEATS
from agentrl.runs.metrics_file import EVALUATION, TRAINING_STAGES

WINDOW = 5
"""Number of steps over which metrics are averaged."""

_COLLAPSED = 0.1
"""Share of the first window's entropy."""
_REPEATED = 0.5
"""Share of a reply's 4-grams that occur earlier in the same reply."""
_DRIFTED = 2.0
"""Factor by which replies grow or shrink relative to the first window."""
_FORMAT = 0.9
"""Share of the reward's increase that comes from format rewards."""
_MISMATCH = (10.0, 1e-3)
"""Factor relative to the first window, and minimum in nats per token (k3)."""
_DEAD = 0.9
"""Share of groups with zero advantage."""
_MATCHED = 0.3
"""Share of turns that share their state with another turn; below this, comparing turns at equal
states is of little use."""
_FULL = 0.1
"""Share of episodes truncated by `rollout.max_context`."""
_MAX_MISMATCH = 0.1
"""Mean difference of the engine's and the learner's log-probabilities, in nats per token. Rounding
to bfloat16 explains a hundredth of it; more means that weights or prompts differ."""
MAX_TRUNCATED_REPLIES = 0.05
"""Share of replies cut off at `rollout.max_new_tokens`."""
_STUCK = 0.3
"""Share of unsuccessful episodes with a loop."""
_FALSE_COMPLETION = 0.5
"""Share of claims to have completed the task that are false."""
_SIDE_EFFECTS = 0.1
"""Mean number of side effects of an episode."""
_UNREADABLE = 0.9
"""Share of a model's turns without a valid action; above this, little can be learned."""

Numbers = Mapping[str, float]


class HealthChecks:
    """Checks every training step against the history of the run.

    Args:
        compares_states: whether the algorithm compares turns that start from the same state.
        max_new_tokens: `rollout.max_new_tokens`; None if no model replies.
    """

    def __init__(self, *, compares_states: bool = False, max_new_tokens: int | None = None) -> None:
        self._compares_states, self._max_new_tokens = compares_states, max_new_tokens
        self._steps: list[Numbers] = []
        self._evaluations: list[tuple[int, float]] = []
        self._active: set[str] = set()

    def add_evaluation(self, reward: float) -> None:
        """Add the current policy's mean reward on held-out seeds."""
        self._evaluations.append((len(self._steps), reward))

    def restore(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Restore the history of a resumed run, without repeating its warnings."""
        for line in lines:
            if line["stage"] in TRAINING_STAGES:
                self.check_step(line)
            elif line["stage"] == EVALUATION and "sampled/reward" in line:
                self.add_evaluation(line["sampled/reward"])

    def check_step(self, numbers: Numbers) -> tuple[dict[str, float], list[str]]:
        """Check the next step.

        Returns:
            `watch/<name>` for each sign, and a warning for each sign that has just appeared.
        """
        self._steps.append(numbers)
        warnings = {name: check(self) for name, check in _CHECKS.items()}
        active = {name for name, warning in warnings.items() if warning is not None}
        new = [text for name, text in warnings.items() if text and name not in self._active]
        self._active = active
        return {f"watch/{name}": float(name in active) for name in warnings}, new

    def _windows(self, name: str) -> tuple[float, float] | None:
        """Return a metric's means over the first and last windows; None while they overlap."""
        values = [step[name] for step in self._steps if name in step]
        if len(values) < 2 * WINDOW:
            return None
        return fmean(values[:WINDOW]), fmean(values[-WINDOW:])

    def _recent(self, name: str) -> float:
        """Return a metric's mean over the last window; 0 if it is not known for all its steps."""
        values = [step[name] for step in self._steps[-WINDOW:] if name in step]
        return fmean(values) if len(values) == WINDOW else 0.0

    def _rise(self, name: str) -> float:
        windows = self._windows(name)
        return 0.0 if windows is None else windows[1] - windows[0]

    def _collapse(self) -> str | None:
        entropy = self._windows("learner/entropy")
        if entropy is None or entropy[1] >= _COLLAPSED * entropy[0]:
            return None
        # Fine-tuning, which has no reward, is meant to lower entropy.
        if self._windows("train/reward") is None:
            return None
        # If the reward has risen, the policy has become more confident because it is better.
        if self._rise("train/reward") > 0:
            return None
        return (
            f"entropy collapse: the entropy fell from {entropy[0]:.3g} to {entropy[1]:.3g} nats "
            "per token, but the reward did not rise. Try a lower optim.lr, "
            "algorithm.entropy_coefficient, or algorithm.kl.add_to=loss"
        )

    def _repetition(self) -> str | None:
        share = self._windows("rollout/repetition")
        if share is None or share[1] < max(_REPEATED, 2 * share[0]):
            return None
        return (
            f"repetition: {share[1]:.0%} of the 4-grams in replies occur earlier in the same reply "
            f"({share[0]:.0%} at the start). Try a lower optim.lr, algorithm.kl.add_to=loss, or a "
            "penalty on long replies (algorithm.overlong.buffer)"
        )

    def _hacking(self) -> str | None:
        """Detect reward hacking: rewards rise in training but fall on held-out seeds."""
        if len(self._evaluations) < 3:
            return None
        at, best = max(self._evaluations, key=lambda evaluation: evaluation[1])
        later = [reward for step, reward in self._evaluations if step > at]
        rewards = [step.get("train/reward", 0.0) for step in self._steps]
        then, now = rewards[max(0, at - WINDOW) : at], rewards[-WINDOW:]
        if len(later) < 2 or not then or fmean(now) <= fmean(then):
            return None
        # Require two consecutive falls, because a single fall is within the noise of an evaluation.
        if later[-1] >= later[-2] or later[-2] >= best:
            return None
        return (
            f"possible reward hacking: the training reward rose from {fmean(then):.3g} to "
            f"{fmean(now):.3g}, but the reward on held-out seeds fell from {best:.3g} to "
            f"{later[-1]:.3g}. Use agentrl view to see what the policy does"
        )

    def _length(self) -> str | None:
        tokens = self._windows("rollout/tokens_per_turn")
        if tokens is None or 1 / _DRIFTED < tokens[1] / max(1e-9, tokens[0]) < _DRIFTED:
            return None
        return (
            f"the mean reply length changed from {tokens[0]:.0f} to {tokens[1]:.0f} tokens; check "
            "whether your reward is meant to encourage this"
        )

    def _format(self) -> str | None:
        """Detect a reward that rises almost only through its format components."""
        names = {
            key for step in self._steps[-1:] for key in step if key.startswith("train/reward/")
        }
        forms = {name for name in names if "format" in name}
        if not forms or forms == names:
            return None
        total, form = self._rise("train/reward"), sum(map(self._rise, forms))
        if total <= 0 or form < _FORMAT * total or self._rise("train/success") > 0:
            return None
        return (
            f"the reward rose by {total:.3g}, of which {form:.3g} comes from format rewards; the "
            "policy is learning the answer format but not the task"
        )

    def _mismatch(self) -> str | None:
        nats = self._windows("learner/mismatch_k3")
        times, least = _MISMATCH
        if nats is None or nats[1] < max(least, times * nats[0]):
            return None
        return (
            "engine and learner are drifting apart: their KL divergence grew from "
            f"{nats[0]:.2g} to {nats[1]:.2g} nats per token. Set "
            "algorithm.importance_correction.kind=token_truncate to correct for it"
        )

    def _zero_advantage_groups(self) -> str | None:
        shares = [step.get("learner/zero_advantage_groups", 0.0) for step in self._steps[-WINDOW:]]
        if len(shares) < WINDOW or fmean(shares) <= _DEAD:
            return None
        return (
            f"in {fmean(shares):.0%} of the groups all rewards are equal, so they give no learning "
            "signal; the tasks are too easy or too hard for this policy. Set "
            "algorithm.sampling.filter_groups=true to replace such groups"
        )

    def _lone_states(self) -> str | None:
        name = "rollout/state_match_fraction"
        shares = [step[name] for step in self._steps[-WINDOW:] if name in step]
        if not self._compares_states or len(shares) < WINDOW or fmean(shares) >= _MATCHED:
            return None
        return (
            f"only {fmean(shares):.0%} of the turns share their state with another turn of their "
            "group, but the algorithm compares turns at equal states. Use algorithm.name=grpo, "
            "which compares whole episodes, or a coarser state key (env.state_key)"
        )

    def _context_full(self) -> str | None:
        shares = [step.get("rollout/context_full", 0.0) for step in self._steps[-WINDOW:]]
        if len(shares) < WINDOW or fmean(shares) <= _FULL:
            return None
        return (
            f"{fmean(shares):.0%} of the episodes were truncated because their context was full, "
            "and keep the reward up to that point. Raise rollout.max_context, or shorten the "
            "prompts (env.history=window:4, model.max_pixels)"
        )

    def _truncated_replies(self) -> str | None:
        share = self._recent("train/truncated_replies")
        if share <= MAX_TRUNCATED_REPLIES:
            return None
        return (
            f"{share:.0%} of the replies were cut off at "
            f"rollout.max_new_tokens={self._max_new_tokens}, usually before their action. Raise "
            "rollout.max_new_tokens, or penalize long replies (algorithm.overlong.buffer)"
        )

    def _stuck(self) -> str | None:
        share = self._recent("train/stuck")
        if share <= _STUCK:
            return None
        return (
            f"{share:.0%} of the episodes fail after repeating an action at least {REPEATS} times "
            "on a screen that does not change. Penalize actions without effect "
            "(agentrl.rewards.form:effect in rewards), show more of the conversation "
            "(env.history), or raise rollout.temperature"
        )

    def _false_completion(self) -> str | None:
        share = self._recent("train/false_completion")
        if share <= _FALSE_COMPLETION:
            return None
        return (
            f"{share:.0%} of the episodes in which the agent says that the task is done have not "
            "completed it. Reward only the environment's success, not the claim, and give a "
            "false claim less than going on"
        )

    def _side_effects(self) -> str | None:
        count = self._recent("train/side_effects")
        if count <= _SIDE_EFFECTS:
            return None
        return (
            f"the agent causes {count:.2g} side effects per episode, such as opening another app. "
            "Penalize them in a reward (info['side_effects']), or look at the episodes (agentrl "
            "view)"
        )


_CHECKS: Mapping[str, Callable[[HealthChecks], str | None]] = {
    "collapse": HealthChecks._collapse,
    "repetition": HealthChecks._repetition,
    "hacking": HealthChecks._hacking,
    "length": HealthChecks._length,
    "format": HealthChecks._format,
    "mismatch": HealthChecks._mismatch,
    "context_full": HealthChecks._context_full,
    "truncated_replies": HealthChecks._truncated_replies,
    "stuck": HealthChecks._stuck,
    "false_completion": HealthChecks._false_completion,
    "side_effects": HealthChecks._side_effects,
    "lone_states": HealthChecks._lone_states,
    "zero_advantage_groups": HealthChecks._zero_advantage_groups,
}


def repetition_share(replies: Iterable[Sequence[int]]) -> float:
    """Return the share of n-grams of four tokens that occur earlier in the same reply.

    0 if there are no n-grams.
    """
    total = repeated = 0
    for reply in replies:
        ngrams = [tuple(reply[at : at + 4]) for at in range(len(reply) - 3)]
        total += len(ngrams)
        repeated += len(ngrams) - len(set(ngrams))
    return repeated / total if total else 0.0


def mismatch_warning(step: int, learned: Mapping[str, float]) -> str | None:
    """Warn if engine and learner assign different log-probabilities to the same tokens.

    Returns:
        A message for the user; None if nothing was compared, or engine and learner agree.
    """
    mean = learned.get("mismatch_k1")
    if mean is None or abs(mean) <= _MAX_MISMATCH:
        return None
    return (
        f"step {step}: log-probabilities of engine and learner differ by {mean:.3g} nats per token "
        f"on average (expected: at most {_MAX_MISMATCH:g}; largest: "
        f"{learned.get('mismatch_max', mean):.3g}), so the tokens being trained on were not "
        "sampled from this policy. Compare with rollout.engine=hf."
    )


def invalid_replies_warning(metrics: Mapping[str, float]) -> str | None:
    """Warn if a model's replies hardly ever contain a valid action.

    Returns:
        A message for the user; None if enough replies are valid.
    """
    share = metrics.get("unreadable", 0.0)
    if share < _UNREADABLE:
        return None
    return (
        f"{share:.0%} of the model's replies contain no valid action, and groups in which every "
        "episode fails give no learning signal. Look at the replies (agentrl view), and try more "
        "warm_start.steps, a larger rollout.max_new_tokens or clearer instructions (env.prompt, "
        "env.translator_kwargs)"
    )


def noop_warning(results: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Warn if an episode in which nothing is done earns too much.

    Args:
        results: metrics of the scripted players, by their name.

    Returns:
        A message for the user; None if doing nothing was not played, or does not pay.
    """
    noop = results.get(NOOP)
    if noop is None or "reward" not in noop:
        return None
    what = "do nothing (eval.baselines, the player noop)"
    if share := noop.get("success", 0.0):
        return (
            f"{share:.0%} of the held-out episodes that {what} succeed, so success does not show "
            "that the task was done. Run agentrl check env"
        )
    for name in ("expert", "random"):
        reward = results.get(name, {}).get("reward")
        if reward is not None and noop["reward"] > reward:
            return (
                f"held-out episodes that {what} earn {noop['reward']:.3g}, more than those of the "
                f"player {name} ({reward:.3g}), so a policy may learn to do nothing. Penalize "
                "replies without an action (agentrl.rewards.form:action in rewards), or reward "
                "progress"
            )
    return None


def idle_policy_warning(
    metrics: Mapping[str, float], results: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """Warn if a trained policy earns no more than doing nothing.

    Args:
        metrics: metrics of the policy.
        results: metrics of the scripted players, by their name.

    Returns:
        A message for the user; None if it earns more, or doing nothing was not played.
    """
    noop = results.get(NOOP, {}).get("reward")
    if noop is None or "reward" not in metrics or metrics["reward"] > noop:
        return None
    return (
        f"the trained policy earns {metrics['reward']:.3g} per held-out episode, no more than "
        f"doing nothing ({noop:.3g}). Look at its episodes (agentrl view), and check the rewards "
        "with agentrl check env CONFIG"
    )
