"""Estimates of tasks from the values of their episodes, and the files that hold them."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from agentrl.errors import ConfigError
from agentrl.files import write_json
from agentrl.training.evaluation.suite_results import (
    differences,
    means,
    read_results,
    tree_of,
)
from agentrl.training.evaluation.suite_table import suite_tables
from tests.viewer.export.test_suite_report import result


def test_void_samples_leave_fewer_of_a_seed_and_no_wrong_ones() -> None:
    values = {1: [0.0, 1.0, 0.0, 0.0], 2: [1.0, 1.0], 3: [0.0, 0.0, 1.0]}
    one = result("m", samples=4, void=3, values=values, categories={})
    assert (one.episodes, one.score.mean) == (9, pytest.approx((1 / 4 + 1 + 1 / 3) / 3))
    expected = {
        k: np.mean([1 - special.comb(len(v) - sum(v), k) / special.comb(len(v), k)
                    for v in values.values() if len(v) >= k])
        for k in (1, 2, 4)
    }  # fmt: skip
    assert {k: found.mean for k, found in one.pass_at.items()} == pytest.approx(expected)
    assert {k: found.count for k, found in one.pass_at.items()} == {1: 3, 2: 3, 4: 1}


def test_differences_are_paired_by_the_seeds_that_both_played() -> None:
    rng = np.random.default_rng(0)
    first = {seed: [float(rng.normal())] for seed in range(20)}
    second = {seed: [first[seed][0] + float(rng.normal(0.2, 0.1))] for seed in range(5, 20)}
    second[99] = [7.0]
    results = [
        result("a", values=first, metric="reward"),
        result("b", values=second, metric="reward"),
    ]
    (found,) = differences(results)
    pairs = [(second[seed][0], first[seed][0]) for seed in range(5, 20)]
    theirs = stats.ttest_rel(*zip(*pairs, strict=True)).confidence_interval(0.95)
    assert found.estimate.count == 15
    assert (found.estimate.low, found.estimate.high) == pytest.approx((theirs.low, theirs.high))


def test_results_survive_their_file_and_keep_distinct_names(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        tree = tree_of([result("m"), result("only" + name)])
        write_json(tmp_path / name / "results.json", tree)
    found = read_results([tmp_path / "x", tmp_path / "y" / "results.json"])
    assert [one.model for one in found] == ["m (x)", "onlyx", "m (y)", "onlyy"]
    assert found[0].pass_at == result("m").pass_at
    assert found[0].by_category["a"].score == result("m").by_category["a"].score
    damaged = json.loads((tmp_path / "x" / "results.json").read_text())
    del damaged["results"][0]["values"]
    (tmp_path / "x" / "results.json").write_text(json.dumps(damaged))
    with pytest.raises(ConfigError, match="cannot be read as suite results"):
        read_results([tmp_path / "x"])


def test_tasks_with_different_metrics_have_no_mean() -> None:
    same = [result("m", task="a"), result("m", task="b", values={1: [1.0]}, categories={})]
    assert means(same) == {("shapes", "m", "seeds"): pytest.approx(0.75)}
    assert means([same[0], result("m", task="b", metric="reward")]) == {}
    (table,) = suite_tables([same[0], result("m", task="b", metric="reward")])
    assert table.table.columns[:3] == ["task", "metric", "mean"]
