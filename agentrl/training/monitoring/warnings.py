"""What is worth a warning while a job runs."""

from collections.abc import Mapping

_BOUND = 0.1
"""Nats per token, the mean of the engine's log-probabilities minus the learner's. Rounding to
bfloat16 makes a hundredth of that; more means other weights, or another prompt."""
_UNREADABLE = 0.9
"""Of a model's turns: what is left teaches hardly anything."""


def disagreement(step: int, learned: Mapping[str, float]) -> str | None:
    """What is wrong with a step whose tokens the learner finds much less likely than the engine.

    Args:
        step: of training.
        learned: what `Learner.update` returned.

    Returns:
        One sentence for the user; None where nothing was compared or the two agree.
    """
    mean = learned.get("mismatch_k1")
    if mean is None or abs(mean) <= _BOUND:
        return None
    return (
        f"step {step}: engine and learner disagree by {mean:.3g} nats per token in the mean "
        f"(at most {_BOUND:g} is usual; largest: {learned.get('mismatch_max', mean):.3g}): what "
        "was sampled is not what is trained. Compare with rollout.engine=hf."
    )


def unreadable(metrics: Mapping[str, float]) -> str | None:
    """What to do about a model whose replies are hardly ever actions.

    Args:
        metrics: of its evaluation before reinforcement.

    Returns:
        One sentence for the user; None where enough can be read.
    """
    share = metrics.get("unreadable", 0.0)
    if share < _UNREADABLE:
        return None
    return (
        f"{share:.0%} of the model's replies are no actions, and siblings that all fail teach "
        "nothing. More warm_start.steps may help, a larger rollout.max_new_tokens, or instructions "
        "(env.prompt, env.translator); agentrl view shows what it says"
    )
