"""Warnings about a single step or evaluation."""

from collections.abc import Mapping

_BOUND = 0.1
"""Nats per token: mean of the engine's log-probabilities minus the learner's. Rounding to bfloat16
explains a hundredth of that; more means that weights or prompts differ."""
_UNREADABLE = 0.9
"""Share of a model's turns without a valid action, beyond which little can be learned."""


def mismatch_warning(step: int, learned: Mapping[str, float]) -> str | None:
    """Warn if engine and learner assign different log-probabilities to the same tokens.

    Args:
        step: of training.
        learned: the metrics from `Learner.update`.

    Returns:
        One sentence for the user; None if nothing was compared or the two agree.
    """
    mean = learned.get("mismatch_k1")
    if mean is None or abs(mean) <= _BOUND:
        return None
    return (
        f"step {step}: log-probabilities of engine and learner differ by {mean:.3g} nats per token "
        f"on average (expected: at most {_BOUND:g}; largest: "
        f"{learned.get('mismatch_max', mean):.3g}): the tokens being trained on were not sampled "
        "from this policy. Compare with rollout.engine=hf."
    )


def invalid_replies_warning(metrics: Mapping[str, float]) -> str | None:
    """Warn about a model whose replies hardly ever contain a valid action.

    Args:
        metrics: of its evaluation before reinforcement learning.

    Returns:
        One sentence for the user; None if enough replies are valid.
    """
    share = metrics.get("unreadable", 0.0)
    if share < _UNREADABLE:
        return None
    return (
        f"{share:.0%} of the model's replies contain no valid action, and groups in which every "
        "episode fails give no learning signal. More warm_start.steps, a larger "
        "rollout.max_new_tokens or clearer instructions (env.prompt, env.translator_kwargs) may "
        "help; agentrl view shows the replies"
    )
