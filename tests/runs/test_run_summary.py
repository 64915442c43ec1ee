"""Runs in one line each: what they trained, how far they are, and what they have reached."""

import json
import os

import pytest

from agentrl import cli
from agentrl.files import lock_folder
from agentrl.replay.recorder import Recorder
from agentrl.runs.job_state import job_stage, job_state
from agentrl.runs.run_folder import RunFolder
from agentrl.runs.run_summary import summarize
from agentrl.types import Outcome, ScoredEpisode
from tests.replay.episodes import episode, turn

CONFIG = """seed: 3
env: {id: Lake-v0}
algorithm: {name: dapo}
train: {steps: 40}
sft: {steps: 20, train: {data: /data/chats.jsonl}}
"""


def evaluation(name, step, successes, of):
    by_seed = {str(n): {"success": float(n < successes), "reward": 2.0} for n in range(of)}
    return {"name": name, "step": step, "by_seed": by_seed}


def play(successes, of):
    return {"sampled": {"success": successes / of, "reward": 2.0}, "greedy": {"success": 1.0}}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / "lake-1"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG)
    return folder


def write(run, lines, **files):
    (run / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, content in files.items():
        (run / f"{name}.json").write_text(json.dumps(content))


def test_a_finished_run_has_its_result_with_wilsons_interval(run):
    ends = {"before": play(5, 20), "after": play(18, 20), "expert": {"success": 0.95}}
    lines = [
        evaluation("expert", 0, 19, 20),
        evaluation("before sampled", 0, 5, 20),
        evaluation("after greedy", 40, 20, 20),
        evaluation("after sampled", 40, 18, 20),
    ]
    with lock_folder(run):
        assert (job_state(run), job_stage(run)) == ("running", None)
        (run / "stage").write_text("warm start")
        assert summarize(run).stage == "warm start"
    seconds = {"start": 5.0, "reinforcement": 1020.0}
    write(run, lines, summary={**ends, "steps": 40, "seconds": seconds}, state={"step": 40})
    found = summarize(run)
    assert (found.environment, found.algorithm, found.seed) == ("Lake-v0", "dapo", 3)
    assert (found.step, found.steps, found.state, found.stage) == (40, 40, "finished", None)
    # statsmodels.stats.proportion.proportion_confint(18, 20, method="wilson")
    assert found.after.low == pytest.approx(0.698966, abs=1e-5)
    assert found.after.high == pytest.approx(0.972136, abs=1e-5)
    assert found.result == "success 0.25 -> 0.9 (0.699 to 0.972)"
    assert found.headline == (
        "success 0.25 -> 0.9 (95% interval 0.699 to 0.972), expert 0.95, in 17 min 5 s"
    )


def test_a_copied_run_started_when_its_first_metrics_were_logged(run):
    for text, started in (('{"time": 1700000000.5}\n{"time": 1.0}\n', 1700000000.5), ("[]", None)):
        (run / "metrics.jsonl").write_text(text)
        expected = started or (run / "config.yaml").stat().st_mtime
        assert summarize(run).started == expected


def test_a_run_under_way_shows_the_latest_evaluation(run):
    results = {"before": play(5, 20)}
    lines = [
        evaluation("before sampled", 0, 5, 20),
        evaluation("step 10", 10, 4, 8),
        evaluation("step 20", 20, 6, 8),
    ]
    write(run, lines, state={"step": 21, "results": results, "seconds": {"start": 2.0}})
    found = summarize(run)
    assert (found.step, found.steps) == (21, 40)
    assert (found.before.mean, found.after.mean, found.after.count) == (0.25, 0.75, 8)


def test_a_killed_run_shows_the_steps_that_it_logged_after_its_last_checkpoint(run):
    write(run, [], state={"step": 0})
    lines = [{"stage": "reinforcement", "step": step} for step in (1, 2, 3)]
    lines += [{"stage": "evaluation", "step": 9}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "metrics.jsonl").write_text(text + '{"stage": "reinforcement", "st')
    assert (summarize(run).step, summarize(run).steps) == (3, 40)


def test_training_on_data_and_evaluations_are_runs_as_well(run):
    (run / "command").write_text("agentrl sft\n")
    write(run, [], summary={"before": {"loss": 2.5}, "after": {"loss": 0.5}, "steps": 20})
    found = summarize(run)
    assert (found.environment, found.algorithm, found.steps) == ("chats.jsonl", "sft", 20)
    assert found.result == "loss 2.5 -> 0.5"
    (run / "command").unlink()
    write(run, [], summary={"policy": "model", "success": 0.5, "reward": 1.0, "seconds": 7.0})
    found = summarize(run)
    assert (found.command, found.algorithm, found.steps) == ("agentrl eval", "", None)
    assert (found.result, found.seconds) == ("success 0.5", 7.0)


@pytest.mark.parametrize(
    "text",
    ["", "[", "[1]", '{"before": 3, "steps": "x"}', "\0", '{"before": {"sampled": []}}', "9"],
)
def test_damaged_files_count_as_absent(run, text):
    for name in ("summary.json", "state.json", "evaluations.jsonl", "config.yaml", "command"):
        (run / name).write_text(text)
    found = summarize(run)
    assert found.result == ""
    assert found.step == 0


def test_pipes_and_endless_times_count_as_absent(run):
    for name in ("state.json", "command", "metrics.jsonl", "stage"):
        os.mkfifo(run / name)
    summary = {"seconds": {"one": 1e308, "other": 1e308}}
    (run / "summary.json").write_text(json.dumps(summary))
    assert (summarize(run).command, summarize(run).seconds) == ("agentrl train", 0)


def test_games_have_the_result_and_the_time_of_their_valid_episodes(run):
    with Recorder(run, "none") as recorder:
        for number, outcome in enumerate([Outcome.TERMINATED, Outcome.TERMINATED, Outcome.TIMEOUT]):
            info = {"metrics": {"success": float(number)}}
            played = episode(
                f"e{number}", (turn(info=info, timings={"generate": 2.0}),), outcome,
                error="the phone is gone" if outcome.void else None,
            )  # fmt: skip
            one = ScoredEpisode(episode=played, components={}, rewards=(1.0,))
            recorder.episode(one, split="eval", step=0)
    found = summarize(run)
    assert (found.command, found.result) == ("agentrl play", "success 0.5 (0.0945 to 0.905)")
    assert (found.seconds, found.state) == (4.0, None)


def test_a_configuration_whose_aliases_multiply_is_not_read(run):
    lines = [
        "a0: &a0 [x, x]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)),
    ]
    (run / "config.yaml").write_text("\n".join(lines))
    assert RunFolder(run).read_config() == {}
    assert summarize(run).environment == "?"


def test_the_command_lists_runs(run, capsys):
    write(run, [], summary={"after": play(18, 20), "steps": 40}, state={"step": 40})
    assert cli.run(["runs", str(run.parent)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "lake-1" in line][:1]
    assert line.split()[:5] == ["lake-1", "Lake-v0", "dapo", "3", "40"]
    assert "success 0.9" in line
    assert cli.run(["runs", str(run.parent), "--json", "--environment", "lake"]) == 0
    assert json.loads(capsys.readouterr().out)["after"]["mean"] == 0.9
    assert cli.run(["runs", str(run.parent), "--environment", "Snake"]) == 0
    assert capsys.readouterr().out.startswith("No runs of an environment with 'Snake'")
    assert cli.run(["runs", str(run / "absent")]) == 2
