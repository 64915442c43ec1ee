import re

import pytest

from agentrl import config as configuration
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.demonstrations import warm_start_cache
from agentrl.training.plan.work_estimate import estimate_work


def stages(*overrides, name="number_game"):
    config = configuration.load(name, overrides)
    return estimate_work(plan_rollouts(config), config.warm_start, config.train.steps)


def minutes(lines):
    return float(re.search(r"about ([0-9.]+) min", lines)[1])


def test_times_are_shown_with_the_counts():
    lines = stages("train.steps=20")
    assert lines["demonstrations"].startswith("300 episodes of at most 24 turns, about 1.")
    assert lines["warm start"].startswith("600 steps of 32 turns, about 1.9 min")
    assert lines["reinforcement"].startswith("20 steps with 640 episodes of at most 24 turns")
    total = lines.pop("total")
    assert "estimate" in total
    assert minutes(total) == pytest.approx(sum(map(minutes, lines.values())), abs=1)
    # docs/results.md: 12 minutes, when there were no rings.
    assert 9 <= minutes(stages("train.steps=20", "eval.rings=null")["total"]) <= 14


def test_stages_without_work_are_left_out():
    lines = stages("warm_start=null", "eval.every=0", "eval.baselines=[]", "train.steps=0")
    assert set(lines) == {"start", "engine start", "evaluation before", "evaluation after", "total"}


def test_fewer_and_slower_phones_take_longer():
    quick, few, slow = (
        minutes(stages(f"devices={{source: 'virtual:{n}', tempo: {tempo}}}")["total"])
        for n, tempo in ((32, "quick"), (2, "quick"), (2, "real"))
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
def test_without_an_estimate_only_counts_are_shown(name, overrides):
    lines = stages(*overrides, name=name)
    assert "reinforcement" in lines
    assert "total" not in lines
    assert not any("min" in amount for amount in lines.values())


def test_model_that_is_warm_costs_no_warm_start(tmp_path):
    lines = stages(f"model.path={tmp_path}")
    assert {"demonstrations", "warm start"} <= lines.keys()
    config = configuration.load("number_game")
    warm_start_cache.write_marker(tmp_path, config.warm_start, [config.env.id])
    lines = stages(f"model.path={tmp_path}")
    assert not {"demonstrations", "warm start"} & lines.keys()
