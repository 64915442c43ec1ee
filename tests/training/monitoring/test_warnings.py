import math

import pytest

from agentrl.training.monitoring import warnings


@pytest.mark.parametrize("learned", [{}, {"mismatch_k1": 0.01}, {"mismatch_k1": -0.1}])
def test_no_warning_while_engine_and_learner_agree(learned):
    assert warnings.mismatch_warning(3, learned) is None


@pytest.mark.parametrize("mean", [0.2, -0.2, math.inf, math.nan])
def test_engine_that_samples_from_another_policy_is_a_warning(mean):
    warning = warnings.mismatch_warning(3, {"mismatch_k1": mean, "mismatch_max": 4.0})
    differ = "step 3: log-probabilities of engine and learner differ by"
    assert warning.startswith(f"{differ} {mean:.3g} nats per token")
    assert "largest: 4" in warning


def test_no_warning_about_a_model_with_valid_actions():
    assert warnings.invalid_replies_warning({"unreadable": 0.5}) is None
    assert warnings.invalid_replies_warning({"reward": 0.0}) is None


def test_model_without_valid_actions_is_a_warning_with_remedies():
    warning = warnings.invalid_replies_warning({"unreadable": 0.97})
    assert warning.startswith("97% of the model's replies contain no valid action")
    assert "warm_start.steps" in warning
