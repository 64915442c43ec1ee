"""Whether engine and learner are still the same policy."""

from collections.abc import Mapping

_BOUND = 0.1
"""Nats per token, the mean of the engine's log-probabilities minus the learner's. Rounding to
bfloat16 makes a hundredth of that; more means other weights, or another prompt."""


def complaint(step: int, learned: Mapping[str, float]) -> str | None:
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
