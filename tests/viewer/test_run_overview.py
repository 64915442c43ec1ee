"""The curves and audits of a run."""

import json
import os

import pytest

from agentrl import replay
from agentrl.files import lock_folder
from agentrl.replay.recorder import Recorder
from agentrl.viewer.export.run_report import report
from agentrl.viewer.metric_charts import MetricCurves
from agentrl.viewer.metric_history import MetricHistory
from agentrl.viewer.run_highlights import LastScreens, highlights
from agentrl.viewer.run_overview import audits, overview
from tests.viewer import runs


@pytest.fixture
def run(tmp_path):
    made = runs.run(tmp_path / "run")
    runs.evaluate(made)
    return made


def points(run, title="Reward"):
    (chart,) = (chart for chart in MetricCurves(run).charts() if chart.title == title)
    return {curve.name: list(curve.points) for curve in chart.curves}


def test_evaluations_of_one_step_are_separate_curves(run):
    assert points(run) == {
        "training": [(1, 0.1), (2, 0.2)],
        "held out, during training": [(2, 0.5), (5, 0.9)],
        "held out, before and after, sampled": [(0, 0.2), (5, 0.6)],
        "held out, before and after, greedy": [(0, 0.3), (5, 0.8)],
    }


def test_no_curve_has_two_points_at_a_step(run):
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"stage": "reinforcement", "step": 1, "train/reward": 0.7}\n')
        metrics.write('{"stage": "evaluation", "step": 2, "sampled/reward": 0.4}\n')
    found = points(run)
    assert found["training"] == [(1, 0.7), (2, 0.2)]
    assert found["held out, during training"] == [(2, 0.4), (5, 0.9)]


def test_a_report_draws_the_same_curves(run):
    page = report(replay.open(run)).decode()
    for name in points(run):
        assert page.count(f">{name}</span>") >= 1
    lines = sum(len(chart.curves) for chart in MetricCurves(run).charts())
    lone = sum(curve.lone for chart in MetricCurves(run).charts() for curve in chart.curves)
    assert lone > 0
    assert page.count("<polyline") == lines - lone  # nothing was measured between before and after


def test_the_latest_audits_are_shown(tmp_path):
    (tmp_path / "audits").mkdir()
    (tmp_path / "audits" / "moved.json").symlink_to("absent")
    for number in range(1, 31):
        report = tmp_path / "audits" / f"judge-{number}.json"
        report.write_text('{"cases": []}')
        os.utime(report, (number, number))
    names = {report["name"] for report in audits(replay.Run(tmp_path))}
    assert names == {f"judge-{number}" for number in range(11, 31)}


@pytest.mark.parametrize("content", ["[1]", '{"step": "x"}', "{"])
def test_odd_files_count_as_absent(run, content):
    (run / "state.json").write_text(content)
    os.mkfifo(run / "summary.json")
    shown = overview(replay.open(run))
    assert (shown["state"], shown["summary"]) == (None, None)


def test_lines_of_metrics_without_a_stage_are_left_out(run):
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"train/reward": 7, "step": 2}\n')
    assert MetricHistory(run).points("train/reward") == [(1, 0.1), (2, 0.2)]


def test_problems_of_episodes_are_shown_by_label(tmp_path):
    problems = [
        {"truncated_replies": 0.5, "stuck": 1.0, "side_effects": 3.0},
        {"truncated_replies": 0.0, "stuck": 0.0, "side_effects": 0.0, "false_completion": 1.0},
        {"truncated_replies": 0.0, "stuck": 0.0},
    ]
    with Recorder(tmp_path) as recorder:
        for number in range(4):
            runs.played(recorder, "after-sampled", number, split="eval")
        runs.played(recorder, "expert", 0, split="eval")
    (index,) = (tmp_path / "episodes").glob("index-*.jsonl")
    lines = [json.loads(line) for line in index.read_text().splitlines()]
    for line, modes in zip(lines, [*problems, None, {"stuck": 0.0}], strict=True):
        del line["failure_modes"]  # an earlier version has none
        line |= {} if modes is None else {"failure_modes": modes}
    index.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = {play["label"]: play["problems"] for play in overview(replay.open(tmp_path))["plays"]}
    shown = "truncated replies 16.7%, stuck 33.3%, 1.5 side effects, false completion 100%"
    assert found == {"after-sampled": shown, "expert": ""}
    assert shown in report(replay.open(tmp_path)).decode()


def test_best_and_worst_are_shown_only_where_they_differ(tmp_path):
    for name, wins, best, worst in (("some", 2, [1, 1], [-1, -1]), ("all", 4, [1, 1], [])):
        with Recorder(tmp_path / name) as recorder:
            for seed in range(4):
                runs.played(recorder, "after-sampled", 0, group=seed, split="eval", won=seed < wins)
        run = replay.open(tmp_path / name)
        found = highlights(run, LastScreens(run))
        assert [one["reward"] for one in found["best"]] == best
        assert [one["reward"] for one in found["worst"]] == worst


def test_the_stage_of_a_running_job_is_short(run):
    (run / "stage").write_text("warm start" * 100)
    with lock_folder(run):
        assert overview(replay.open(run))["stage"] == "warm start" * 20


def test_only_tokens_that_a_model_sampled_are_counted(run):
    sampled = overview(replay.open(run))["tokens"]
    assert sampled == 17 * 3 * 3
    (run / "config.yaml").write_text("env: {players: {greedy: a:B}}\neval: {baselines: [mine]}\n")
    with Recorder(run, writer="more") as recorder:
        for label in ("expert", "mine", "greedy", "human"):
            runs.played(recorder, label, 0, split="eval")
        runs.played(recorder, "demo", 0, split="demo")
    assert overview(replay.open(run))["tokens"] == sampled
