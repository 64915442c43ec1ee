"""Adaptive coefficient of the entropy bonus, which holds the entropy near a target."""

from agentrl.config import EntropyControlConfig


def adapted_entropy_coefficient(
    coefficient: float, entropy: float, settings: EntropyControlConfig
) -> float:
    """Return the coefficient after a step with this entropy (arXiv:2505.22312, section 3).

    It rises by `step` at or below the target, and falls by `step` above it, within [0, `max`].

    Args:
        coefficient: coefficient before the step.
        entropy: mean entropy of the step, in nats per token.
        settings: settings with a target.
    """
    assert settings.target is not None
    change = settings.step if entropy <= settings.target else -settings.step
    return min(max(coefficient + change, 0.0), settings.max)


def applied_entropy_coefficient(
    coefficient: float, entropy: float | None, settings: EntropyControlConfig
) -> float:
    """Return the weight of the entropy bonus in a step: 0 while the entropy is above the target.

    Args:
        coefficient: the adapted coefficient.
        entropy: mean entropy of the previous step; None in the first step, which has no bonus.
        settings: settings; without a target, the coefficient applies unchanged.
    """
    if settings.target is None:
        return coefficient
    return coefficient if entropy is not None and entropy <= settings.target else 0.0
