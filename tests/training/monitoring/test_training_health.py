"""Each sign is seen where it is, said once, and not seen where the training is fine."""

import math

import pytest

from agentrl.training.monitoring.training_health import (
    WINDOW,
    HealthChecks,
    idle_policy_warning,
    invalid_replies_warning,
    mismatch_warning,
    noop_warning,
    repetition_share,
)

FINE = {
    "learner/entropy": 0.5, "train/reward": 1.0, "train/success": 0.5, "rollout/repetition": 0.1,
    "rollout/tokens_per_turn": 20.0, "learner/mismatch_k3": 1e-4,
    "learner/zero_advantage_groups": 0.2,
    "train/reward/format": 0.5, "train/reward/outcome": 0.5,
}  # fmt: skip


def after(later, steps=2 * WINDOW, **settings):
    """What is seen and said over some fine steps and as many that are otherwise."""
    checks, said = HealthChecks(**settings), []
    for numbers in [FINE] * steps + [FINE | later] * steps:
        signs, words = checks.check_step(numbers)
        said += words
    return {name.removeprefix("watch/") for name, seen in signs.items() if seen}, said


def test_a_healthy_training_raises_no_warning():
    assert after({}) == (set(), [])
    assert after({"learner/entropy": 0.01, "train/reward": 5.0, "train/success": 1.0})[0] == set()


def test_fine_tuning_may_lower_the_entropy():
    checks = HealthChecks()
    for step in range(60):
        assert checks.check_step({"learner/entropy": 6.0 / (1 + step)})[1] == []


def test_states_that_no_siblings_share_are_reported_where_they_are_compared():
    alone = {"rollout/state_match_fraction": 0.1}
    assert after(alone) == (set(), [])
    assert after({"rollout/state_match_fraction": 0.5}, compares_states=True) == (set(), [])
    assert after({}, compares_states=True) == (set(), [])  # no state keys: episodes are compared
    seen, said = after(alone, compares_states=True)
    assert seen == {"lone_states"}
    assert "only 10% of the turns share their state" in said[0]
    assert len(said) == 1


@pytest.mark.parametrize(
    ("name", "later", "words"),
    [
        ("collapse", {"learner/entropy": 0.01}, "from 0.5 to 0.01 nats"),
        ("repetition", {"rollout/repetition": 0.8}, "of the 4-grams in replies occur earlier"),
        ("length", {"rollout/tokens_per_turn": 60.0}, "from 20 to 44 tokens"),
        ("length", {"rollout/tokens_per_turn": 8.0}, "from 20 to 8 tokens"),
        ("format", {"train/reward": 2.0, "train/reward/format": 1.5}, "comes from format rewards"),
        ("mismatch", {"learner/mismatch_k3": 0.05}, "their KL divergence grew from 0.0001 to"),
        (
            "zero_advantage_groups",
            {"learner/zero_advantage_groups": 1.0},
            "in 100% of the groups all rewards are equal",
        ),
        (
            "truncated_replies",
            {"train/truncated_replies": 0.12},
            "12% of the replies were cut off at rollout.max_new_tokens=48, usually before",
        ),
        ("stuck", {"train/stuck": 0.5}, "50% of the episodes fail after repeating an action"),
        ("false_completion", {"train/false_completion": 0.75}, "75% of the episodes in which"),
        ("side_effects", {"train/side_effects": 0.5}, "the agent causes 0.5 side effects per"),
    ],
)
def test_each_sign_is_reported_once(name, later, words):
    seen, said = after(later, max_new_tokens=48)
    assert seen == {name}
    assert len(said) == 1
    assert words in said[0]


def test_training_rewards_that_rise_while_held_out_ones_fall_are_reported():
    checks = HealthChecks()
    for step in range(30):
        signs, _ = checks.check_step(FINE | {"train/reward": 1.0 + 0.1 * step})
        if step % 5 == 4:
            checks.add_evaluation(2.0 - abs(step - 9) / 10)
    assert signs["watch/hacking"] == 1.0
    honest = HealthChecks()
    for step in range(30):
        signs, _ = honest.check_step(FINE | {"train/reward": 1.0 + 0.1 * step})
        if step % 5 == 4:
            honest.add_evaluation(step / 10)
    assert signs["watch/hacking"] == 0.0


def test_a_returning_sign_is_reported_again_but_a_resumed_one_is_not():
    checks = HealthChecks()
    dead = FINE | {"learner/zero_advantage_groups": 1.0}
    steps = ([dead] * 6 + [FINE] * 6) * 2
    warnings = [warning for numbers in steps for warning in checks.check_step(numbers)[1]]
    assert len(warnings) == 2
    resumed = HealthChecks()
    resumed.restore([dead | {"stage": "reinforcement"}] * 6)
    signs, words = resumed.check_step(dead)
    assert (signs["watch/zero_advantage_groups"], words) == (1.0, [])


def test_full_contexts_are_reported():
    checks = HealthChecks()
    for _ in range(WINDOW):
        signs, words = checks.check_step(FINE | {"rollout/context_full": 0.25})
    assert signs["watch/context_full"] == 1.0
    assert words == [words[0]]
    assert words[0].startswith("25% of the episodes were truncated because their context was full")


def test_a_rare_failure_raises_no_warning():
    rare = {"truncated_replies": 0.01, "stuck": 0.2, "false_completion": 0.3, "side_effects": 0.05}
    assert after({f"train/{name}": value for name, value in rare.items()}) == (set(), [])


def test_claims_in_only_some_of_the_last_steps_raise_no_warning():
    checks = HealthChecks()
    for step in range(2 * WINDOW):
        claims = {"train/false_completion": 1.0} if step % 2 else {}
        assert checks.check_step(FINE | claims)[1] == []


def test_few_steps_or_missing_metrics_raise_no_warning():
    checks = HealthChecks()
    for _ in range(2 * WINDOW):
        signs, words = checks.check_step({})
    assert not any(signs.values())
    assert not words


def test_repetition_counts_repeated_ngrams():
    assert repetition_share([[1, 2, 3, 4, 5]]) == 0
    assert repetition_share([[7] * 8]) == pytest.approx(4 / 5)
    assert repetition_share([[1, 2], []]) == 0


@pytest.mark.parametrize("learned", [{}, {"mismatch_k1": 0.01}, {"mismatch_k1": -0.1}])
def test_no_warning_while_engine_and_learner_agree(learned):
    assert mismatch_warning(3, learned) is None


@pytest.mark.parametrize("mean", [0.2, -0.2, math.inf, math.nan])
def test_engine_that_samples_from_another_policy_is_a_warning(mean):
    warning = mismatch_warning(3, {"mismatch_k1": mean, "mismatch_max": 4.0})
    differ = "step 3: log-probabilities of engine and learner differ by"
    assert warning.startswith(f"{differ} {mean:.3g} nats per token")
    assert "largest: 4" in warning


def test_no_warning_about_a_model_with_valid_actions():
    assert invalid_replies_warning({"unreadable": 0.5}) is None
    assert invalid_replies_warning({"reward": 0.0}) is None


def test_model_without_valid_actions_is_a_warning_with_remedies():
    warning = invalid_replies_warning({"unreadable": 0.97})
    assert warning.startswith("97% of the model's replies contain no valid action")
    assert "warm_start.steps" in warning


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ({}, None),
        ({"random": {"reward": -1.0}}, None),
        ({"noop": {"episodes": 0}}, None),  # all of its episodes were void
        ({"noop": {"reward": 0.0}}, None),
        ({"noop": {"reward": 0.0}, "random": {"reward": 0.0}, "expert": {"reward": 1.0}}, None),
        ({"noop": {"reward": 0.0}, "random": {"reward": -0.5}}, "than those of the player random"),
        (
            {"noop": {"reward": 0.5}, "random": {"reward": 0.2}, "expert": {"reward": 0.4}},
            "earn 0.5, more than those of the player expert",
        ),
        (
            {"noop": {"reward": 0.0, "success": 0.25}},
            "25% of the held-out episodes that do",
        ),
    ],
)
def test_doing_nothing_that_pays_is_a_warning(results, words):
    warning = noop_warning(results)
    assert (warning is None) == (words is None)
    assert words is None or words in warning


def test_a_policy_that_earns_no_more_than_doing_nothing_is_a_warning():
    noop = {"noop": {"reward": 0.25}}
    assert idle_policy_warning({"reward": 0.5}, noop) is None
    assert idle_policy_warning({"reward": 0.5}, {}) is None
    assert idle_policy_warning({}, noop) is None
    assert "earns 0.25 per held-out episode, no more than doing nothing (0.25)" in (
        idle_policy_warning({"reward": 0.25}, noop)
    )
