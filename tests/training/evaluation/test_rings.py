"""The rings of an evaluation: what is played in each, and where the results are shown."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import agentrl
from agentrl import cli, replay
from agentrl import config as configuration
from agentrl.config import RINGS, Config
from agentrl.errors import ConfigError
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.runs.metrics_file import read_metrics
from agentrl.runs.rings import player_of, ring_rows_of, ring_table
from agentrl.runs.run_summary import summarize
from agentrl.training.evaluation.suite_results import (
    TaskResult,
    differences,
    means,
    read_results,
)
from agentrl.training.evaluation.suite_table import suite_tables
from agentrl.training.plan.job_plan import check_scripted_play
from agentrl.training.plan.trial_episodes import check_lengths
from agentrl.viewer.export.run_report import report
from agentrl.viewer.run_overview import overview
from tests.training.monitoring.test_metric_descriptions import described

ROOT = Path(__file__).parents[3]
REVEALS = '''
import os
import signal

import gymnasium


class Reveals(gymnasium.Env):
    """Shows its arguments; the accuracy is a tenth of the size, plus a tenth on odd seeds.

    Size 8 has a long text, and size 9 is broken. The fourth held-out episode removes the file
    `interrupt`, if there is one, and interrupts the process.
    """

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Text(500)

    def __init__(self, size=1, dark=False, interrupt=""):
        self.interrupt = interrupt
        self.shown, self.size = f"size {size} dark {dark}" + " " * 400 * (size == 8), size

    def reset(self, *, seed=None, options=None):
        self.odd = seed % 2
        if self.size == 9:
            raise ValueError("no such level")
        if seed == 1_000_003 and os.path.exists(self.interrupt):
            os.unlink(self.interrupt)
            os.kill(os.getpid(), signal.SIGINT)
        return self.shown, {}

    def step(self, action):
        info = {"metrics": {"accuracy": (self.size + self.odd) / 10}}
        return self.shown, 1.0, True, False, info
'''
SHOWN = {"seeds": "size 2 dark False", "levels": "size 5 dark False", "rules": "size 2 dark True"}
"""What the environment shows in each ring; in training its size is 1."""


def job(folder: Path, *overrides: str) -> Config:
    settings = {
        "model": {"path": "tiny", "tiny": {"words": ["<action>", "</action>"]}},
        "env": {
            "id": f"{folder / 'reveals.py'}:Reveals", "max_turns": 1,
            "translator_kwargs": {"instructions": ""},
        },
        "rollout": {
            "engine": "hf", "launcher": "local", "groups": 2, "group_size": 2,
            "max_new_tokens": 4, "max_context": 200,
        },
        "warm_start": {
            "player": "random", "episodes": 16, "steps": 30, "batch": 16, "lr": 3e-3,
            "cache": str(folder / "cache"),
        },
        "algorithm": {"name": "grpo"},
        "train": {"steps": 1},
        "eval": {
            "every": 1, "episodes": 6, "episodes_during": 2, "baselines": ["random"],
            "kwargs": {"size": 2},
            "rings": {"episodes": 4, "levels": {"size": 5}, "rules": {"dark": True}},
        },
        "run": {"dir": str(folder), "name": "run"},
        "logging": ["file"],
    }  # fmt: skip
    return configuration.resolve(configuration.from_dict(settings), overrides)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rings")
    (folder / "reveals.py").write_text(REVEALS)
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A training run with both rings."""
    agentrl.train(job(folder))
    return folder / "run"


def test_each_ring_is_played_with_its_own_arguments(run: Path) -> None:
    recorded = replay.open(run)
    played: dict[str, set[str]] = {}
    seeds: dict[str, list[int]] = {}
    for summary in recorded.episodes():
        shown = {turn.shown for turn in recorded.read(summary).episode.turns}
        played.setdefault(summary.label, set()).update(shown)
        seeds.setdefault(summary.label, []).append(summary.seed)
    assert {*played.pop("train"), *played.pop("demo", set())} == {"size 1 dark False"}
    assert played.pop("step-1") == {SHOWN["seeds"]}  # rings are not played during training
    for name in ("random", "before-sampled", "before-greedy", "after-sampled", "after-greedy"):
        for ring, shown in SHOWN.items():
            label = name if ring == "seeds" else f"{name}-unseen-{ring}"
            assert played.pop(label) == {shown}
            count = 6 if ring == "seeds" else 4
            assert sorted(seeds[label]) == list(range(1_000_000, 1_000_000 + count))
    assert not played


def test_the_summary_the_metrics_and_the_tables_have_a_column_per_ring(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    for result in (summary["random"], summary["after"]["greedy"]):
        found = [result, result["rings"]["levels"], result["rings"]["rules"]]
        assert [round(one["accuracy"], 3) for one in found] == [0.25, 0.55, 0.25]
        assert [one["episodes"] for one in found] == [6, 4, 4]
    metrics = described(read_metrics(run))
    assert {
        line["greedy/ring/levels/accuracy"]
        for line in metrics
        if "greedy/ring/levels/accuracy" in line
    } == {0.55}
    table = ring_table(ring_rows_of(run))
    assert list(table.columns) == ["accuracy", "unseen seeds", "unseen levels", "unseen rules"]
    names = ["random", "before, sampled", "before, greedy", "after, sampled", "after, greedy"]
    assert [row[0] for row in table.rows] == names
    # By hand: Student's t with 3 degrees of freedom is 3.182, the standard error 0.05774 / 2.
    assert table.rows[-1][2] == "0.55 (0.458 to 0.642)"
    assert {ring: round(one.mean, 3) for ring, one in summarize(run).rings.items()} == {
        "levels": 0.55, "rules": 0.25,
    }  # fmt: skip
    assert overview(replay.open(run))["rings"] == {"columns": table.columns, "rows": table.rows}
    assert "<h2>Unseen seeds, levels and rules</h2>" in report(replay.open(run)).decode()
    assert "unseen rules" in replay.open(run)._repr_html_()
    printed = subprocess.run(
        [sys.executable, ROOT / "benchmarks/table_of_runs.py", run],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "| run | player | metric | unseen seeds | unseen levels | unseen rules |" in printed
    assert "| run | after, greedy | accuracy | 0.25 (" in printed


def test_an_evaluation_and_its_comparison_keep_the_rings_apart(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "job.yaml"
    file.write_text(configuration.to_yaml(job(folder, "logging=[]").to_dict()))
    found = agentrl.evaluate(file, policy="random", episodes=5, overrides=["run.name=one"])
    assert {ring: one.episodes for ring, one in found.rings.items()} == {"levels": 4, "rules": 4}
    assert found.metrics["accuracy"] == pytest.approx(0.24)
    assert "unseen levels: Evaluation(" in repr(found)
    assert (
        cli.run(["eval", str(file), "--policy", "random", "--episodes", "3", "run.name=two"]) == 0
    )
    printed = capsys.readouterr().out
    assert "unseen seeds" in printed
    assert "95% intervals over the seeds, unseen levels: accuracy" in printed
    results = read_results([folder / "one"])
    assert [(one.ring, round(one.score.mean, 3)) for one in results] == [
        ("seeds", 0.24), ("levels", 0.55), ("rules", 0.25),
    ]  # fmt: skip
    assert means(results) == {}
    labels = ("random-unseen-levels", "after-sampled-unseen-rules", "noop")
    assert [player_of(label) for label in labels] == ["random", "after-sampled", "noop"]
    twice = [*results, *(replace(one, task=f"{one.task} 2") for one in results)]
    rows = suite_tables([TaskResult.from_json(one.to_json()) for one in twice])[0].table.rows
    assert [row[:2] for row in rows[-3:]] == [
        ["mean of the tasks", "0.24"],
        ["mean of the tasks, unseen levels", "0.55"],
        ["mean of the tasks, unseen rules", "0.25"],
    ]
    assert ring_rows_of(folder / "one")[0].cells[1] == "0.55 (0.458 to 0.642)"


def test_a_ring_that_fails_costs_only_its_own_column(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = job(folder, "eval.rings.levels.size=9", "run.name=broken", "train.steps=0")
    agentrl.train(replace(broken, warm_start=None))
    summary = json.loads((folder / "broken" / "summary.json").read_text())
    for result in (summary["random"], summary["after"]["sampled"], summary["after"]["greedy"]):
        assert (result["episodes"], list(result["rings"])) == (6, ["rules"])
    assert "after greedy unseen levels: no result, because it failed: EnvError: " in caplog.text
    found = agentrl.evaluate(broken, policy="random", overrides=["run.name=broken-eval"])
    assert (found.metrics["accuracy"], list(found.rings)) == (0.25, ["rules"])
    row = ring_rows_of(folder / "broken-eval")[0]
    assert [bool(cell) for cell in row.cells] == [True, False, True]


def test_an_interrupted_ring_keeps_what_was_played_before(folder: Path) -> None:
    marker, run = folder / "interrupt", folder / "stopped"
    overrides = [f"eval.rings.rules.interrupt={marker}", "run.name=stopped", "train.steps=0"]
    marker.touch()
    with pytest.raises(KeyboardInterrupt):
        agentrl.train(replace(job(folder, *overrides), warm_start=None))
    kept = json.loads((run / "state.json").read_text())["results"]["random"]
    assert (kept["episodes"], list(kept["rings"])) == (6, ["levels"])
    agentrl.train(run / "config.yaml", resume=run)
    summary = json.loads((run / "summary.json").read_text())
    for result in (summary["random"], summary["before"]["greedy"], summary["after"]["sampled"]):
        assert list(result["rings"]) == ["levels", "rules"]
    labels = Counter(one.label for one in replay.open(run).episodes())
    assert (labels["random"], labels["random-unseen-levels"]) == (6, 4)
    reported = [line for line in read_metrics(run) if "random/accuracy" in line]
    assert len(reported) == 1


def test_a_ring_whose_first_prompt_is_too_long_is_named_before_any_work(folder: Path) -> None:
    long = job(folder, "eval.rings.levels.size=8", "run.name=long")
    message = r"eval\.rings\.levels={'size': 8}: rollout\.max_context has no room .*\d+ tokens"
    with pytest.raises(ConfigError, match=message):
        check_lengths(plan_rollouts(long), long.warm_start, [])
    with pytest.raises(ConfigError, match=message):
        agentrl.train(long)
    assert not (folder / "long").exists()
    measured = check_lengths(plan_rollouts(job(folder)), None, []).measured
    assert measured["longest first prompt, unseen levels"].endswith(" tokens")


def test_rings_with_other_settings_are_not_compared(folder: Path) -> None:
    for name, size in (("near", 3), ("far", 5)):
        settings = [f"eval.rings.levels.size={size}", f"run.name={name}"]
        agentrl.evaluate(job(folder), policy="random", episodes=2, overrides=settings)
    results = read_results([folder / "near", folder / "far"])
    compared = {one.task.rpartition(", ")[2] for one in differences(results)}
    assert len(compared) == 2
    assert "unseen rules" in compared
    (table,) = suite_tables(results)
    assert table.footnotes[-1].startswith("Not compared, because the rings' settings differ: ")
    assert table.footnotes[-1].endswith("Reveals, unseen levels.")


@pytest.mark.parametrize(
    ("override", "others"),
    [
        ("eval.rings.levels.size=2", ["rules"]),
        ("eval.rings.rules.dark=false", ["levels"]),
        ("mixture=[{name: a}]", []),
    ],
)
def test_a_ring_of_the_same_environment_or_of_a_mixture_is_skipped(
    folder: Path, caplog: pytest.LogCaptureFixture, override: str, others: list[str]
) -> None:
    plan = plan_rollouts(job(folder, override))
    assert list(plan.ring_episodes) == others
    check_scripted_play(plan)
    warnings = [one.getMessage() for one in caplog.records if "skipping this ring" in one.message]
    skipped = [one.partition("=")[0].rpartition(".")[2] for one in warnings]
    assert skipped == [ring for ring in RINGS if ring not in others]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["eval.rings.levels={sise: 5}"], "eval.rings.levels.sise: .*did you mean 'size'"),
        (["eval.rings.episodes=0"], "eval.rings.episodes=0: must be above 0"),
    ],
)
def test_invalid_rings_are_rejected_before_any_work(
    folder: Path, overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_scripted_play(plan_rollouts(job(folder, *overrides)))
