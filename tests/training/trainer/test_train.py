"""Whole runs of the main loop, small but real."""

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import agentrl
from agentrl import cli, replay
from agentrl import config as configuration
from agentrl.config import Config, EvalConfig, TrainConfig
from agentrl.errors import ConfigError
from agentrl.files import lock_folder
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.engine_host import EngineHost
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.runs.metrics_file import read_metrics
from agentrl.runs.resume_state import ResumeState
from agentrl.runs.run_folder import RunFolder
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.monitoring.progress import PlannedWork
from agentrl.training.monitoring.reporter import Reporter
from agentrl.training.monitoring.run_stages import RunStages
from agentrl.training.plan.job_plan import plan_training
from agentrl.training.plan.work_estimate import estimate_work
from agentrl.training.stop_signals import Stopping
from agentrl.training.trainer import train
from agentrl.training.trainer.trainer import Trainer
from agentrl.types import TruncatedBy
from agentrl.viewer.episodes.token_text import TokenVocabulary, turn_tokens
from tests.training.monitoring.test_metric_descriptions import described

pytestmark = pytest.mark.timeout(400)  # the fixtures are whole jobs

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_environment.yaml"
SMALL = [
    "warm_start.steps=40",
    "warm_start.lr=0.003",
    "train.steps=4",
    "env.horizon={start: 2, steps: 3}",
    "env.start={player: guesser, turns: 1, steps: 3}",
    "rollout.groups=4",
    "rollout.group_size=4",
    "eval.every=3",
    "eval.episodes=8",
    "eval.episodes_during=6",
    "checkpoint.every=1",
    "logging=[file]",
]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "agentrl", "train", *map(str, arguments)]


def run_to_the_end(*arguments: object) -> tuple[str, str]:
    """What a whole run prints; in this process, which has what it must import."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = cli.run(["train", *map(str, arguments)])
    assert status == 0, err.getvalue()[-3000:]
    return out.getvalue(), err.getvalue()


def steps_of(run: Path) -> list[dict[str, float]]:
    lines = described(read_metrics(run))
    return [line for line in lines if line["stage"] == "reinforcement"]


def wait_for_step(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Wait until a step is logged."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be killed"
        if (run / "metrics.jsonl").is_file() and len(steps_of(run)) >= step:
            return
        time.sleep(0.05)
    pytest.fail(f"no step {step} in time")


def kill_while_writing(run: Path, process: subprocess.Popen[str]) -> Path:
    """Kill the run in the middle of writing a checkpoint, and return the incomplete one."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be killed"
        newest = max((run / "checkpoints").glob("step-*"))
        if not (newest / "trainer.json").exists():
            process.send_signal(signal.SIGSTOP)
            if (newest / "learner").exists() and not (newest / "trainer.json").exists():
                process.kill()
                return newest
            process.send_signal(signal.SIGCONT)
    pytest.fail("no checkpoint was being written in time")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """An uninterrupted run, and the settings to repeat it."""
    folder = tmp_path_factory.mktemp("runs")
    settings = [*SMALL, f"run.dir={folder}", f"warm_start.cache={folder / 'cache'}"]
    run_to_the_end(EXAMPLE, *settings, "run.name=whole")
    return folder / "whole", settings


def test_run_leaves_everything_a_user_needs(whole_run):
    run, _ = whole_run
    summary = json.loads((run / "summary.json").read_text())
    assert {"guesser", "before", "after", "seconds", "steps"} <= summary.keys()
    assert summary["after"]["greedy"]["episodes"] == 8
    assert (run / "model" / "model.safetensors").is_file()
    assert len(steps_of(run)) == 4
    episodes = replay.open(run).episodes()
    assert sum(e.split == "train" for e in episodes) == 4 * 16
    trained = [e for e in episodes if e.split == "train"]
    assert all(e.advantages is not None for e in trained)
    assert [step["rollout/horizon"] for step in steps_of(run)] == [2, 2, 3, 4]
    cut = {e.step for e in trained if e.truncated_by is TruncatedBy.HORIZON}
    assert {1, 2} <= cut <= {1, 2, 3}
    assert [step["rollout/start_turns"] for step in steps_of(run)] == [1, 1, 1, 0]
    guided = set()
    for each in episodes:
        episode = replay.open(run).episode(each.id).episode
        if not episode.turns[0].reply_ids:
            guided.add((each.split, each.step))
            assert all(turn.reply_ids for turn in episode.turns[1:])
    assert guided
    assert guided <= {("train", 1), ("train", 2), ("train", 3)}
    assert all(e.truncated_by is not TruncatedBy.HORIZON for e in episodes if e.split != "train")


@pytest.fixture(scope="module")
def resumed_run(whole_run):
    """The same run under a size limit, stopped in each of three ways and resumed after each.

    It is killed while it writes a checkpoint. Before SIGTERM, no checkpoint is due.

    Returns:
        Its folder; for each signal the exit status, what was printed, the last step saved, and the
        number of recorded episodes; and what it printed in the end.
    """
    whole, settings = whole_run
    run, outputs = whole.with_name("resumed"), {}
    arguments = (EXAMPLE, *settings, "run.name=resumed", "run.keep_gb=1e-5")
    for step, number in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGKILL), 1):
        every = 100 if number == signal.SIGTERM else 1
        process = subprocess.Popen(
            command(*arguments, f"checkpoint.every={every}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            # A shell that runs the tests in the background has Ctrl-C ignored, and so would the
            # child.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        if number == signal.SIGKILL:
            incomplete = kill_while_writing(run, process)
        else:
            wait_for_step(run, step, process)
            process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        if number == signal.SIGTERM:
            outputs["logged"] = steps_of(run)[-1]["step"]
        kept = checkpoint_store.step_of(checkpoint_store.latest(run))
        outputs[number] = process.returncode, output, kept, len(replay.open(run).episodes())
        arguments = ("--resume", run)
    state = json.loads((run / "state.json").read_text())
    outputs["incomplete"] = checkpoint_store.step_of(incomplete)
    ((_, (first,)),) = state["files"].items()
    first[1] = "another digest"
    (run / "state.json").write_text(json.dumps(state))
    kept = checkpoint_store.latest(run) / "trainer.json"
    counted = json.loads(kept.read_text())
    assert counted.pop("tasks_taken") == {"": 4 * counted["step"]}
    kept.write_text(json.dumps(counted))  # as a version that kept no counts saved it
    _, outputs["end"] = run_to_the_end(*arguments)
    return run, outputs


@pytest.mark.slow
def test_a_file_that_was_edited_before_a_resume_is_reported_and_recorded(resumed_run):
    run, outputs = resumed_run
    edited = EXAMPLE.with_suffix(".py").resolve()
    kept = outputs[signal.SIGKILL][2]
    assert f"{edited} was edited since" in outputs["end"]
    versions = json.loads((run / "state.json").read_text())["files"][str(edited)]
    digest = hashlib.sha256(edited.read_bytes()).hexdigest()
    assert versions == [[0, "another digest"], [kept, digest]]


@pytest.mark.slow
def test_stopped_and_killed_run_resumes_bit_for_bit(whole_run, resumed_run):
    (whole, _), (run, outputs) = whole_run, resumed_run
    assert len(replay.open(run).episodes()) >= outputs[signal.SIGKILL][-1] > 0
    for one, other in zip(steps_of(whole), steps_of(run), strict=True):
        for key in ("step", "train/reward", "learner/loss", "learner/grad_norm"):
            assert one[key] == other[key], key
        assert one["learner/grad_norm"] > 0
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (whole, run)]
    assert weights[0] == weights[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "word", "status"),
    [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)],
)
def test_interrupted_run_says_how_to_resume(resumed_run, number, word, status):
    run, outputs = resumed_run
    returned, output, kept, _ = outputs[number]
    assert returned == status
    assert output.count(f"{word}: stopping") == 1
    assert f"saved up to step {kept}; resume with: agentrl train --resume {run}" in output
    assert "Traceback" not in output


@pytest.mark.slow
def test_sigterm_saves_the_last_finished_step_and_a_kill_only_what_is_complete(resumed_run):
    _, outputs = resumed_run
    assert outputs[signal.SIGTERM][2] == outputs["logged"] >= 2
    assert outputs[signal.SIGKILL][2] == outputs["incomplete"] - 1 >= outputs["logged"]


@pytest.mark.slow
def test_run_stays_within_its_size_limit_with_complete_curves(resumed_run):
    run, outputs = resumed_run
    opened = replay.open(run)
    episodes = opened.episodes()
    assert {e.split for e in episodes if e.removed} == {"train"}
    removed = [e for e in episodes if e.removed]
    assert sum(e.split == "train" for e in episodes) == len(removed) >= 4 * 16
    # A step that a signal stopped has episodes without advantages.
    assert sum(e.advantages is not None for e in removed) >= 4 * 16
    assert len(list(opened.opened(episodes))) == len(episodes) - len(removed) > 0
    assert len(steps_of(run)) == 4
    assert "evaluations and demonstrations are never removed" in outputs["end"]


def contents_of(run: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != ".lock"}


def test_resuming_a_finished_run_does_nothing(whole_run, caplog, monkeypatch):
    run, _ = whole_run
    before = contents_of(run)
    monkeypatch.setattr("agentrl.training.trainer.open_trainer.open_rollouts", None)
    begun = []
    assert train.train("", resume=run, begun=begun.append).path == run
    assert not begun
    assert f"{run} is already finished" in caplog.text
    assert contents_of(run) == before


def test_finished_run_continues_with_more_steps(tmp_path):
    folder = RunFolder(tmp_path)
    folder.model.mkdir()
    folder.write_summary({"random": {}, "before": {}, "after": {}, "steps": 4})
    config = configuration.load("number_game")
    for steps, players, finished in (
        (4, ["random"], True), (3, [], True), (5, [], False), (4, ["expert"], False),
    ):  # fmt: skip
        config.train.steps, config.eval.baselines = steps, players
        summary = folder.final_summary()
        assert train.Reinforcement(config).is_finished(summary) == finished
    for broken in ("{", "[]"):
        (tmp_path / "summary.json").write_text(broken)
        assert folder.final_summary() is None


def test_checkpoint_plays_as_it_did_in_the_run(whole_run, capsys):
    run, _ = whole_run
    there = json.loads((run / "summary.json").read_text())["after"]["greedy"]
    assert cli.run(["eval", str(run), "--checkpoint=last", "--greedy", "--json"]) == 0
    here = json.loads(capsys.readouterr().out)
    assert Path(here["run"]).name.startswith("eval-step-4-whole-")
    assert json.loads((Path(here["run"]) / "summary.json").read_text())["checkpoint"] == 4
    played = replay.open(here["run"])
    assert len(played.episodes()) == here["episodes"] == 8
    first = played.episode(played.episodes()[0].id).episode.turns[0]
    assert set(first.reply_versions) == {4}
    shown = turn_tokens(
        played.episode(played.episodes()[0].id).episode, 1, TokenVocabulary(played.path)
    )
    assert shown["note"] is None
    assert {key: here[key] for key in ("reward", "turns")} == {
        key: there[key] for key in ("reward", "turns")
    }


def test_last_step_can_be_the_best_checkpoint(whole_run, capsys):
    run, _ = whole_run
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    evaluations = {entry["name"]: entry for entry in map(json.loads, lines)}
    during = {entry["step"]: entry for name, entry in evaluations.items() if name[:5] == "step "}
    assert list(during) == [3, 4]  # every third step, and the last one
    assert during[3]["by_seed"].keys() == during[4]["by_seed"].keys()
    assert during[3]["episodes"] == during[4]["episodes"] == 6
    assert during[4]["by_seed"].items() <= evaluations["after sampled"]["by_seed"].items()
    best = max(during, key=lambda step: during[step]["metrics"]["reward"])
    assert checkpoint_store.step_of(checkpoint_store.best(run)) == best
    arguments = ["eval", str(run), "--checkpoint=best", "--episodes=2", "--json"]
    assert cli.run([*arguments, "logging=[file]"]) == 0
    folder = Path(json.loads(capsys.readouterr().out)["run"])
    assert json.loads((folder / "summary.json").read_text())["checkpoint"] == best


@pytest.mark.parametrize(("steps", "every", "games"), [(20, 5, 80), (21, 5, 100), (3, 5, 20)])
def test_plan_counts_the_evaluation_of_the_last_step(steps, every, games):
    settings = Config(train=TrainConfig(steps=steps), eval=EvalConfig(every=every))

    def stages():
        return estimate_work(plan_rollouts(settings), settings.warm_start, steps)

    assert stages()["evaluation during"].startswith(f"{games} episodes")
    settings.eval.every = 0
    assert "evaluation during" not in stages()


def test_missing_checkpoint_is_named_in_the_error(whole_run):
    run, _ = whole_run
    with pytest.raises(ConfigError, match=r"no checkpoint '99'.*steps: 3, 4"):
        checkpoint_store.by_name(run, "99")
    assert checkpoint_store.by_name(run, "last").name == "step-00004"


def test_best_checkpoint_needs_an_evaluation_during_training(tmp_path):
    for step in (3, 4):
        folder = tmp_path / "checkpoints" / f"step-{step:05d}"
        folder.mkdir(parents=True)
        (folder / "trainer.json").touch()
    with pytest.raises(ConfigError, match=r"\(eval\.every, .*step instead: 3, 4"):
        checkpoint_store.by_name(tmp_path, "best")


@pytest.fixture(scope="module")
def taught_run(whole_run):
    """A run that begins with the model of another, which is gone by the end; and what it said."""
    whole, settings = whole_run
    model = shutil.copytree(whole / "model", whole.with_name("model"))
    more = [f"model.path={model}", "run.name=warm", "train.steps=1"]
    out, err = run_to_the_end(EXAMPLE, *settings, *more)
    mark = (model / "agentrl.json").read_text()
    shutil.rmtree(model)
    return whole.with_name("warm"), mark, out, err


def test_second_warm_start_of_a_model_is_skipped(taught_run):
    run, mark, out, err = taught_run
    assert "LitButton-v0 (warm_start.repeat=true repeats it)" in err
    assert "demonstrations" not in out  # the budget
    assert not any(e.split == "demo" for e in replay.open(run).episodes())
    assert (
        not {"demonstrations", "warm start"}
        & json.loads((run / "summary.json").read_text())["seconds"].keys()
    )
    assert (run / "model" / "agentrl.json").read_text() == mark
    assert json.loads(mark)["warm_starts"]["LitButton-v0"]["player"] == "guesser"


@pytest.mark.parametrize("override", ["warm_start=null", "warm_start.steps=1"])
def test_job_without_a_warm_start_leaves_no_marker(override, tmp_path, tiny_vlm, make_learner):
    config, folder = configuration.load(EXAMPLE, [override]), RunFolder(tmp_path)
    with Reporter(tmp_path, [], PlannedWork()) as reporter:
        rollouts, learner = RolloutWorker(plan_rollouts(config), None, None), make_learner(config)
        plan = plan_training(config, begins=False)
        progress = RunStages(ResumeState(), reporter, rollouts)
        Trainer(
            plan, folder, tiny_vlm, progress, rollouts, learner, None, None, Stopping()
        ).finish()
    assert (folder.model / "model.safetensors").is_file()
    record = json.loads((folder.model / "agentrl.json").read_text())
    sizes = {"image_size": config.model.image_size, "max_pixels": config.model.max_pixels}
    assert record.pop("images") == sizes
    assert record.keys() == (set() if config.warm_start is None else {"warm_starts"})


def test_run_plays_with_its_own_model(taught_run):
    run, *_ = taught_run
    assert agentrl.evaluate(run, episodes=2).episodes == 2


def test_settings_that_a_checkpoint_rejects_are_not_saved(whole_run, caplog):
    run, _ = whole_run
    before = (run / "config.yaml").read_bytes()
    with pytest.raises(ConfigError, match=r"saved with algorithm\.name='state_grpo'"):
        train.train("", resume=run, overrides=["algorithm.name=ppo", "train.steps=5"])
    assert (run / "config.yaml").read_bytes() == before
    assert "resume with" not in caplog.text


def test_run_resumes_with_its_start_model(tmp_path, tiny_vlm, monkeypatch):
    went_on = []

    async def go_on(job, plan, *_, **__):
        went_on.append(plan.settings.model.tiny)

    monkeypatch.setattr(train.Reinforcement, "run", go_on)
    settings = ["warm_start=null", "model.tiny.layers=4", f"run.dir={tmp_path}"]
    config = configuration.load(EXAMPLE, settings)
    folder = RunFolder.create(config.run, "run")
    folder.save_config(config.to_dict())
    run = folder.path
    (run / "episodes").mkdir()
    train.train("", resume=run, overrides=["model.tiny.layers=3"])  # no model has been made yet
    folder.start.mkdir()
    before = (run / "config.yaml").read_bytes()
    for override, said in (
        ("model.tiny={layers: 3}", r"its model\.tiny is \{'layers': 4\}, not \{'layers': 3"),
        (f"model.path={tiny_vlm}", r"its model\.path is 'tiny'"),
    ):
        with pytest.raises(ConfigError, match=said):
            train.train("", resume=run, overrides=[override])
    assert (run / "config.yaml").read_bytes() == before
    train.train("", resume=run, overrides=["model.tiny={layers: 4, hidden: 128}"])  # the default
    assert went_on == [{"layers": 3}, {"layers": 4, "hidden": 128}]


def test_truncated_checkpoint_is_reported_before_anything_starts(whole_run, monkeypatch):
    whole, _ = whole_run
    run = shutil.copytree(whole, whole.with_name("truncated"), symlinks=True)
    monkeypatch.setattr("agentrl.training.trainer.open_trainer.open_rollouts", None)
    (file,) = (run / "checkpoints" / "step-00004" / "learner").glob("*.distcp")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=rf"step-00004.*{file.name} is truncated.*Remove this"):
        train.train("", resume=run, overrides=["train.steps=5"])
    (run / "checkpoints" / "step-00004" / "trainer.json").write_text("{")
    with pytest.raises(ConfigError, match=r"step-00004/trainer\.json: cannot be read.*Remove this"):
        train.train("", resume=run, overrides=["train.steps=5"])


def test_missing_state_keys_are_an_error_before_any_update(tmp_path):
    settings = ["env.state_key=info", "algorithm.name=gigpo", "eval.episodes=2", "logging=[file]"]
    with pytest.raises(
        ConfigError, match=r"FrozenLake-v1 provides no state keys.*env\.state_key=screen"
    ):
        train.train("frozen_lake", overrides=[*settings, f"run.dir={tmp_path}"])
    (run,) = tmp_path.iterdir()
    assert [e.split for e in replay.open(run).episodes()] == ["eval"] * 2


def test_run_in_use_by_another_process_is_not_touched(whole_run, capsys):
    run, _ = whole_run
    before = contents_of(run)
    with lock_folder(run):
        assert cli.run(["train", "--resume", str(run)]) == 2
    assert "another process" in capsys.readouterr().err
    assert contents_of(run) == before


@pytest.mark.slow
def test_engine_with_old_weights_is_a_warning(tmp_path, caplog, monkeypatch):
    load = EngineHost.load_weights

    async def load_the_first_alone(self, path, version):
        if version == 0:
            await load(self, path, version)

    monkeypatch.setattr(EngineHost, "load_weights", load_the_first_alone)
    settings = [*SMALL, f"run.dir={tmp_path}", "warm_start.cache=null", "eval.episodes=1"]
    settings += ["warm_start.steps=100", "train.steps=2", "optim.lr=0.01"]
    settings += ["env.start=null", "env.horizon=null"]  # whole episodes, to learn much
    train.train(EXAMPLE, overrides=settings)
    assert "step 1: log-probabilities of engine and learner differ" not in caplog.text
    assert "step 2: log-probabilities of engine and learner differ" in caplog.text


def test_name_of_an_existing_run_is_an_error(whole_run, capsys):
    _, settings = whole_run
    assert cli.run(["train", str(EXAMPLE), *settings, "run.name=whole"]) == 2
    assert "--resume" in capsys.readouterr().err
