"""Evaluation suites: what is played, recorded, reported, compared, continued and refused."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import agentrl
from agentrl import cli, replay
from agentrl.config import EnvConfig, EvalConfig, HorizonConfig, load
from agentrl.errors import ConfigError
from agentrl.policies.engines.hf_engine import HFEngine
from agentrl.training.evaluation.evaluate_suite import SuiteCommand, evaluate_suites
from agentrl.training.evaluation.suite import SuiteTask
from agentrl.training.evaluation.suite_results import TaskResult, read_results, result_of
from agentrl.training.evaluation.suite_table import suite_tables
from tests.data.rows import png
from tests.training.evaluation.test_suite_files import hub

LAKES = f"{Path(__file__).parents[3]}/examples/extend/suite.py:Lakes"
ROWS = [
    {"image": "a.png", "problem": "How many?", "solution": f"<answer> {n % 3} </answer>",
     "kind": "odd" if n % 2 else "even"}
    for n in range(12)
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the folders of suites are added
    return tmp_path


def played(suite: str, **settings) -> tuple[Path, dict[tuple[str, str], TaskResult]]:
    settings = {"targets": ["frozen_lake"], "policies": ["random"], **settings}
    settings["overrides"] = ["logging=[]", *settings.get("overrides", ())]
    where, results = evaluate_suites(SuiteCommand(suites=[suite], **settings))
    return where, {(one.task, one.model): one for one in results}


def test_each_task_is_played_and_recorded_by_itself() -> None:
    where, results = played(LAKES, samples=3, overrides=["run.name=it"])
    assert where == Path("runs/it").absolute()
    assert [task for task, _ in results] == ["4x4", "4x4 slippery", "8x8", "8x8 slippery"]
    for (task, model), one in results.items():
        assert (model, one.samples, one.void, len(one.values)) == ("random", 3, 0, 4)
        saved = load(where / one.run / "config.yaml").env
        assert saved.kwargs["is_slippery"] == ("slippery" in task)
        summary = json.loads((where / one.run / "summary.json").read_text())
        assert (summary["suite"], summary["task"]) == ("suite.py:Lakes", task)
        recorded = replay.open(where / one.run).episodes()
        returns = {seed: [] for seed in one.values}
        for episode in recorded:
            returns[episode.seed].append(episode.reward)
        assert {seed: sorted(v) for seed, v in one.values.items()} == {
            seed: sorted(v) for seed, v in returns.items()
        }
    assert read_results([where])[0].score == results["4x4", "random"].score


def test_a_task_may_have_fewer_turns_than_the_horizon_of_training() -> None:
    trained = EnvConfig(max_turns=20, horizon=HorizonConfig(start=10))
    played = SuiteTask(name="short", max_turns=8).env_of(trained, EvalConfig())
    assert (played.max_turns, played.horizon) == (8, None)


def test_rows_of_a_data_set_are_graded_by_category_and_pass_at_k() -> None:
    Path("data").mkdir()
    Path("data/a.png").write_bytes(png())
    Path("data/rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    Path("data/mine.yaml").write_text(
        "tasks: [{name: count, data: rows.jsonl, grade: numeric, samples: 4, category: kind}]"
    )
    where, results = played("data/mine.yaml", policies=["expert", "random"], targets=["QA-v0"])
    expert, guess = results["count", "expert"], results["count", "random"]
    assert (expert.metric, expert.score.mean, expert.score.count) == ("accuracy", 1.0, 12)
    assert {k: one.mean for k, one in expert.pass_at.items()} == {1: 1.0, 2: 1.0, 4: 1.0}
    assert set(expert.by_category) == {"even", "odd"}
    rates = [guess.pass_at[k].mean for k in (1, 2, 4)]
    assert rates == sorted(rates)
    assert 0 < rates[0] < rates[2]
    tree = json.loads((where / "results.json").read_text())
    (gain,) = tree["differences"]
    assert (gain["model"], gain["than"]) == ("random", "expert")
    assert gain["estimate"]["mean"] == pytest.approx(rates[0] - 1, abs=1e-6)
    assert tree["results"][1]["by_category"]["odd"]["seeds"] == 6


@pytest.mark.slow
def test_r1v_rows_are_right_for_the_expert_and_mostly_wrong_for_guesses() -> None:
    image = {"bytes": png(), "path": None}
    clevr = [{"image": image, "problem": f"Question {n}", "solution": f"<answer>{a}</answer>"}
             for n in range(8) for a in (3, 4)]  # fmt: skip
    hub("MMInstruction/SuperClevr_Val", clevr)
    _, results = played("superclevr", policies=["expert", "random"], targets=["QA-v0"])
    (expert, guess) = results.values()
    assert (expert.score.mean, expert.void, guess.void) == (1.0, 0, 0)
    assert 0 < guess.score.mean < 1
    assert expert.pass_at[1].mean == 1.0


class CountedEngine(HFEngine):
    starts = 0

    async def start(self) -> None:
        type(self).starts += 1
        await super().start()


def test_models_in_folders_are_loaded_once_each_and_sampled(tiny_vlm) -> None:
    other = Path("other")
    other.symlink_to(tiny_vlm)
    small = [f"rollout.engine={__name__}:CountedEngine", "rollout.max_new_tokens=2"]
    small += ["rollout.max_context=512"]
    command = ["eval", str(tiny_vlm), "other", "--suite", "maths", "--episodes", "2", *small]
    assert cli.run([*command, "--samples", "2", "logging=[]"]) == 0
    assert CountedEngine.starts == 2
    (where,) = Path("runs").iterdir()
    results = read_results([where])
    assert [(one.task, one.model) for one in results] == [
        ("easy", str(tiny_vlm)), ("hard", str(tiny_vlm)), ("easy", "other"), ("hard", "other"),
    ]  # fmt: skip
    for one in results:
        recorded = replay.open(one.run).episodes()
        assert len(recorded) == one.episodes == 4
        replies = [replay.open(one.run).episode(e.id).episode.turns[0].reply for e in recorded]
        assert len(set(replies)) > 1  # samples of a question differ


def test_the_command_prints_and_compares(capsys, monkeypatch) -> None:
    quiet = ["logging=[console]", f"eval.suite={LAKES}", "run.name=one"]
    command = ["eval", "frozen_lake", *quiet, "--policy", "random", "--episodes", "2"]
    assert cli.run(command) == 0
    said, progress = capsys.readouterr()
    assert "evaluation: 8x8 slippery" in progress
    assert "agentrl eval runs/one --resume" in progress
    for row in ("4x4", "8x8", "mean of the tasks", "report: runs/one/report.html"):
        assert row in said
    assert cli.run([*command, "run.name=two", "seed=5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kept, lost = (Path("runs/two", one["run"], "result.json") for one in found["results"][:2])
    written = kept.stat().st_mtime_ns
    lost.unlink()  # as if it had been interrupted there
    assert cli.run(["eval", "runs/two", "--resume", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert kept.stat().st_mtime_ns == written
    assert lost.is_file()
    values = [[one["values"] for one in tree["results"]] for tree in (found, again)]
    assert values[0] == values[1]  # a scripted player repeats its game
    assert found["folder"] == "runs/two"
    assert {one["task"] for one in found["results"]} >= {"4x4", "8x8 slippery"}
    assert cli.run(["compare", "runs/one", "runs/two/results.json", "--out", "both.html"]) == 0
    said = capsys.readouterr().out
    assert "minus random (one)" in said
    assert "<svg" in Path("both.html").read_text()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert cli.run(["compare", "runs/one", "runs/two"]) == 0
    printed = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    table = printed.partition("Intervals")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert "minus random (one)" in table
    assert cli.run(["compare", "runs/one", "runs"]) == 2
    assert "give the folder of an evaluation" in capsys.readouterr().err


def test_results_of_different_settings_are_not_compared(capsys) -> None:
    for name, size in (("one", "4x4"), ("two", "8x8")):
        Path("mine.yaml").write_text(
            f"tasks: [{{name: a, env: FrozenLake-v1, kwargs: {{map_name: {size}}}, episodes: 2}}]"
        )
        played("mine.yaml", overrides=[f"run.name={name}"])
    assert cli.run(["compare", "runs/one", "runs/two"]) == 2
    said = capsys.readouterr().err
    assert "played with different settings" in said
    assert "random (one)" in said


SLOW_GAME = """
import time
import gymnasium


class Slow(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Text(20)

    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "now", {}

    def step(self, action):
        time.sleep(self.seconds)
        return "now", float(action), True, False, {}
"""


@pytest.mark.slow
def test_a_killed_evaluation_continues_after_the_last_finished_task(capsys) -> None:
    Path("slow.py").write_text(SLOW_GAME)
    tasks = [{"name": n, "env": "slow.py:Slow", "episodes": 3} for n in ("first", "second")]
    tasks[1]["kwargs"] = {"seconds": 60}
    Path("mine.yaml").write_text(json.dumps({"tasks": tasks}))
    command = ["eval", "slow.py:Slow", "--suite", "mine.yaml", "--policy", "random", "run.name=it"]
    with subprocess.Popen([sys.executable, "-m", "agentrl", *command]) as process:
        done = Path("runs/it/01-first/result.json")
        deadline = time.monotonic() + 60
        while not done.exists() or not list(Path("runs/it").glob("02-*/config.yaml")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    before = done.read_bytes()
    # What is played was decided when it began; the file may have changed since.
    saved = json.loads(Path("runs/it/suite.json").read_text())
    saved["suites"][0]["tasks"][1]["kwargs"] = {"seconds": 0.01}
    Path("runs/it/suite.json").write_text(json.dumps(saved))
    Path("mine.yaml").unlink()
    assert cli.run(["eval", "runs/it", "--resume", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["task"], one["episodes"]) for one in found["results"]] == [
        ("first", 3), ("second", 3),
    ]  # fmt: skip
    assert done.read_bytes() == before
    assert cli.run(["eval", "runs/it", "--resume", "--greedy"]) == 2
    assert cli.run(["eval", "runs", "--resume"]) == 2


def test_a_model_that_has_changed_is_not_mixed_with_what_it_was(tiny_vlm, capsys) -> None:
    import shutil

    shutil.copytree(tiny_vlm, "model")
    command = ["eval", "model", "--suite", "maths", "--episodes", "1", "--samples", "1"]
    command += ["rollout.engine=hf", "rollout.max_new_tokens=1", "run.name=it", "logging=[]"]
    assert cli.run(command) == 0
    Path("model/model.safetensors").touch()
    assert cli.run(["eval", "runs/it", "--resume"]) == 2
    assert "model has changed in the meantime" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        ("[{name: a}, {name: b, env: Lake-v1}]", "task 'b': env.id: no environment 'Lake-v1'"),
        (
            "[{name: a}, {name: b, kwargs: {depth: 3}}]",
            "task 'b': env.kwargs.depth: FrozenLake-v1 does not accept this argument",
        ),
        (
            "[{name: a, data: rows.jsonl, category: kin}]",
            "category=kin: no row has this column (did you mean 'kind'?)",
        ),
        ("[{name: a, rewards: [lost.py:f]}]", "lost.py: no such file"),
    ],
)
def test_a_mistake_is_found_before_anything_is_played(tasks: str, reason: str) -> None:
    Path("mine.yaml").write_text(f"tasks: {tasks}")
    Path("rows.jsonl").write_text('{"question": "1?", "answer": "1", "kind": "a"}\n')
    with pytest.raises(ConfigError) as raised:
        played("mine.yaml")
    assert reason in str(raised.value)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["frozen_lake", "sokoban"], "'sokoban': write overrides as key=value; to compare several"),
        (["mymodel", "--suite", LAKES], "mymodel: no such run, configuration, model folder or env"),
        (["frozen_lake", "--policy=random", "--policy=model"], "--suite is missing"),
        (["frozen_lake", "--samples", "2"], "--suite is missing"),
        (["Qwen/Qwen2.5-VL-3B-Instruct"], "--suite is missing"),
        (["frozen_lake", "--suite", LAKES, "--demos"], "omit --demos, because a suite is"),
        (["frozen_lake", "frozen_lake", "--suite", LAKES], "frozen_lake is listed twice"),
        (["frozen_lake", "--suite", LAKES, "--episodes", "0"], "episodes=0: must be at least 1"),
        (
            ["frozen_lake", "sokoban", "--suite", "own.yaml", "--policy", "random"],
            "play with different",
        ),
        (["Qwen/Qwen2.5-VL-3B-Instruct", "--suite", "own.yaml"], "is only a model; add env.id"),
        (["data.yaml", "--policy", "random"], "(section sft) and has no environment to play"),
        (["data.yaml", "--suite", "own.yaml"], "data.yaml trains on a data set"),
        (["frozen_lake", "--suite", "minigame"], "did you mean 'minigames'"),
    ],
)
def test_what_cannot_be_played_is_refused(capsys, arguments, reason: str) -> None:
    Path("own.yaml").write_text("tasks: [{name: a}]")
    Path("data.yaml").write_text("sft: {train: {data: chats.jsonl}}")
    assert cli.run(["eval", *arguments]) == 2
    assert reason in capsys.readouterr().err
    assert not Path("runs").exists()


def test_episodes_without_a_reward_are_not_played_again_and_their_share_is_shown() -> None:
    failing = "rewards=[{function: 'tests.rollout.scores:raises_sometimes'}]"
    settings = ["rollout.launcher=local", "logging=[]", "eval.rings=null", failing]
    found = agentrl.evaluate("frozen_lake", policy="random", episodes=20, overrides=settings)
    attempts = replay.open(found.run).episodes()
    unscored = [one for one in attempts if one.outcome.void]
    assert len(attempts) == 20
    assert 0 < len(unscored) == found.void
    assert found.metrics["reward"] == 1.0
    assert found.summary()["unscored"] == pytest.approx(len(unscored) / 20)
    assert f"{len(unscored) / 20:.1%} unscored" in repr(found)
    task = SuiteTask(name="lake", metric="reward")
    result = result_of(task, found, model="random", suite="s", settings="", run="")
    assert f"{len(unscored) / 20:.1%} unscored" in str(suite_tables([result])[0].table.rows)
