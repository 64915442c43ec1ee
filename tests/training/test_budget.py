import re

import pytest

from agentrl import config as configuration
from agentrl.training.budget import budget
from agentrl.training.supervised import warm_start_marker


def stages(*overrides, name="number_game"):
    return budget(configuration.load(name, overrides))


def minutes(told):
    return float(re.search(r"about ([0-9.]+) min", told)[1])


def test_minutes_stand_beside_the_counts():
    told = stages("train.steps=20")
    assert told["demonstrations"].startswith("300 episodes of at most 24 turns, about 1.")
    assert told["warm start"].startswith("600 steps of 32 turns, about 1.9 min")
    assert told["reinforcement"].startswith("20 steps, together 640 episodes of at most 24 turns, ")
    together = told.pop("together")
    assert "estimate" in together
    assert minutes(together) == pytest.approx(sum(map(minutes, told.values())), abs=1)
    # docs/results.md: 12 minutes.
    assert 9 <= minutes(together) <= 14


def test_stages_without_work_are_left_out():
    told = stages("warm_start=null", "eval.every=0", "eval.baselines=[]", "train.steps=0")
    assert set(told) == {"start", "evaluation before", "evaluation after", "together"}


def test_fewer_and_slower_phones_take_longer():
    quick, few, slow = (
        minutes(
            stages(f"devices={{source: 'virtual:{n}', effect_delay_ms: [{d}, {d}]}}")["together"]
        )
        for n, d in ((32, 0), (2, 0), (2, 300))
    )
    assert quick < few < slow


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("number_game_3b", []),
        ("sokoban", ["rollout.engine=vllm"]),
        ("number_game", ["rollout.engine=hf"]),
        ("number_game", ["devices.source=[emulator-5554]"]),
    ],
)
def test_without_an_estimate_the_counts_stand_alone(name, overrides):
    told = stages(*overrides, name=name)
    assert "reinforcement" in told
    assert "together" not in told
    assert not any("min" in amount for amount in told.values())


def test_model_that_is_warm_costs_no_warm_start(tmp_path):
    told = stages(f"model.path={tmp_path}")
    assert {"demonstrations", "warm start"} <= told.keys()
    warm_start_marker.mark(configuration.load("number_game"), tmp_path)
    told = stages(f"model.path={tmp_path}")
    assert not {"demonstrations", "warm start"} & told.keys()
