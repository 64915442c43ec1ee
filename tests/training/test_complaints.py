import math

import pytest

from agentrl.training.monitoring import warnings


@pytest.mark.parametrize("learned", [{}, {"mismatch_k1": 0.01}, {"mismatch_k1": -0.1}])
def test_engine_and_learner_that_agree_are_no_news(learned):
    assert warnings.disagreement(3, learned) is None


@pytest.mark.parametrize("mean", [0.2, -0.2, math.inf, math.nan])
def test_engine_that_samples_from_another_policy_is_complained_of(mean):
    words = warnings.disagreement(3, {"mismatch_k1": mean, "mismatch_max": 4.0})
    assert words.startswith(f"step 3: engine and learner disagree by {mean:.3g} nats per token")
    assert "largest: 4" in words


def test_model_that_can_answer_is_no_news():
    assert warnings.unreadable({"unreadable": 0.5}) is None
    assert warnings.unreadable({"reward": 0.0}) is None


def test_model_that_cannot_answer_is_complained_of_with_what_may_help():
    words = warnings.unreadable({"unreadable": 0.97})
    assert words.startswith("97% of the model's replies are no actions")
    assert "warm_start.steps" in words
