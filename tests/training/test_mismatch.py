import math

import pytest

from agentrl.training.report import mismatch


@pytest.mark.parametrize("learned", [{}, {"mismatch_k1": 0.01}, {"mismatch_k1": -0.1}])
def test_engine_and_learner_that_agree_are_no_news(learned):
    assert mismatch.complaint(3, learned) is None


@pytest.mark.parametrize("mean", [0.2, -0.2, math.inf, math.nan])
def test_engine_that_samples_from_another_policy_is_complained_of(mean):
    words = mismatch.complaint(3, {"mismatch_k1": mean, "mismatch_max": 4.0})
    assert words.startswith(f"step 3: engine and learner disagree by {mean:.3g} nats per token")
    assert "largest: 4" in words
