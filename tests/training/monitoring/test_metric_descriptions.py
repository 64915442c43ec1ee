"""Every metric has one description, which the page of metrics and the viewer show."""

import pytest

from agentrl.training.monitoring.metric_descriptions import METRICS, SECTIONS, describe
from agentrl.training.monitoring.training_health import HealthChecks

OF_ENVIRONMENTS = {"score", "right", "looked", "deadlock", "efficiency", "on_target"}
"""Metrics that environments in tests report, beside success and accuracy."""


def described(lines):
    """The lines of a run's `metrics.jsonl`, after checking that all their metrics are described."""
    for name in {name for line in lines for name in line} - {"stage", "step", "time"}:
        found = describe(name)
        assert found is not None, name
        if found.name == "PLAY/METRIC":
            assert name.rpartition("/")[2] in OF_ENVIRONMENTS, name
    return lines


@pytest.mark.parametrize(
    ("metric", "description"),
    [
        ("train/reward", "PLAY/reward"),
        ("hasty/env/maze/reward/format", "PLAY/reward/NAME"),
        ("env/maze/turns", "PLAY/turns"),
        ("env/maze/groups", "env/ENV/groups"),
        ("greedy/score", "PLAY/METRIC"),
        ("rollout/void/device", "rollout/void/CAUSE"),
        ("lr", "loss grad_norm lr token_accuracy entropy tokens skipped optimizer_steps seconds"),
        ("learner/new", None),
        ("audit/new", None),
        ("new", None),
    ],
)
def test_a_metric_is_described_by_its_name(metric, description):
    found = describe(metric)
    assert (found and found.name) == description


def test_every_health_check_is_described_and_every_section_has_metrics():
    symptoms, _ = HealthChecks().check_step({})
    names = [name for one in METRICS for name in one.name.split()]
    assert {name for name in names if name.startswith("watch/")} == symptoms.keys()
    assert {one.section for one in METRICS} == set(SECTIONS)
    assert len(names) == len(set(names))
    for one in METRICS:  # no earlier one hides it
        for name in one.name.split():
            assert describe(name.replace("PLAY", "train").replace("ENV", "maze")) is one
