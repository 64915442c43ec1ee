"""The entropy coefficient follows Skywork-OR1's rule (arXiv:2505.22312, section 3)."""

import pytest

from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.algorithms.core.entropy_control import (
    adapted_entropy_coefficient,
    applied_entropy_coefficient,
)
from agentrl.config import EntropyControlConfig, algorithm_config
from agentrl.errors import ConfigError


def test_the_coefficient_follows_the_published_rule():
    settings = EntropyControlConfig(target=0.2, step=0.005, max=0.012)
    entropies = [0.5, 0.21, 0.2, 0.1, 0.05, 0.04, 0.3, 0.1]
    # c(k+1) = c(k) + 0.005 if e(k) <= 0.2, else c(k) - 0.005, within [0, 0.012];
    # step k + 1 applies c(k+1) if e(k) <= 0.2, else 0. The first step has no bonus.
    adapted = [0.0, 0.0, 0.005, 0.010, 0.012, 0.012, 0.007, 0.012]
    applied = [0.0, 0.0, 0.0, 0.005, 0.010, 0.012, 0.012, 0.0]
    coefficient, last, seen = 0.0, None, ([], [])
    for entropy in entropies:
        seen[1].append(applied_entropy_coefficient(coefficient, last, settings))
        coefficient = adapted_entropy_coefficient(coefficient, entropy, settings)
        seen[0].append(coefficient)
        last = entropy
    assert seen[0] == pytest.approx(adapted)
    assert seen[1] == pytest.approx(applied)


def test_without_a_target_the_coefficient_applies_unchanged():
    for entropy in (None, 0.0, 9.0):
        assert applied_entropy_coefficient(0.01, entropy, EntropyControlConfig()) == 0.01


def test_a_target_needs_the_entropy_of_all_tokens():
    plain = algorithm_config("grpo")
    assert not load_algorithm(plain).requirements().all_tokens
    targeted = algorithm_config("grpo", entropy_control={"target": 0.5})
    assert load_algorithm(targeted).requirements().all_tokens


@pytest.mark.parametrize(
    ("settings", "coefficient", "message"),
    [
        ({"step": 0.1}, 0.0, "have no effect without algorithm.entropy_control.target"),
        ({"target": 1.0, "max": 0.1}, 0.2, "must not be above algorithm.entropy_control.max=0.1"),
    ],
)
def test_contradicting_settings_are_an_error(settings, coefficient, message):
    config = algorithm_config("grpo", entropy_control=settings, entropy_coefficient=coefficient)
    with pytest.raises(ConfigError, match=message):
        config.validate_for_training()
