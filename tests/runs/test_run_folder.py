import json
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from agentrl import config as configuration
from agentrl import replay
from agentrl.config import Config, EnvConfig, RewardConfig, RunConfig, SFTConfig
from agentrl.errors import ConfigError
from agentrl.files import lock_folder
from agentrl.replay.pruning import BackgroundPruner
from agentrl.replay.recorder import Recorder
from agentrl.rollout.nodes.job_files import user_files
from agentrl.runs.resume_state import ResumeState
from agentrl.runs.run_folder import RunFolder
from agentrl.training.command_target import job_name
from agentrl.training.job import _resume_hint
from tests.replay.aging import age
from tests.viewer import runs


def evaluations(folder: Path) -> list[tuple[str, int, float]]:
    lines = (folder / "evaluations.jsonl").read_text().splitlines()
    return [(e["name"], e["step"], e["reward"]) for e in map(json.loads, lines)]


def test_a_resumed_run_leaves_every_evaluation_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for name, step in (("expert", 0), ("step 5", 5), ("step 10", 10)):
        folder.add_evaluation({"name": name, "step": step, "reward": 1.0})
    with (tmp_path / "evaluations.jsonl").open("a") as file:
        file.write('{"name": "unknown"}\n{"step": 5}\n[5]\n"\\udcff"\n')
        file.write('{"name": "step 1')  # A writer was killed here.
    folder.rewind(5)
    assert evaluations(tmp_path) == [("expert", 0, 1.0), ("step 5", 5, 1.0)]
    folder.add_evaluation({"name": "step 5", "step": 5, "reward": 2.0})
    assert evaluations(tmp_path) == [("expert", 0, 1.0), ("step 5", 5, 2.0)]


def test_edited_files_of_the_user_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = Config(rewards=[RewardConfig(function="edited.py:one")])
    state, file = ResumeState(), tmp_path / "edited.py"
    for step, content in enumerate(("1", "1", "2")):
        file.write_text(content)
        state.step = step
        assert state.record_files(user_files(config.to_dict())) == (
            [str(file)] if step == 2 else []
        )
    folder = RunFolder(tmp_path)
    folder.save_state(state)
    assert folder.load_state() == state
    assert [step for step, _ in state.files[str(file)]] == [0, 2]


def test_a_run_that_was_moved_uses_its_own_prompt(tmp_path: Path) -> None:
    template, run = tmp_path / "mine.jinja", tmp_path / "run"
    template.write_text("{{ instructions }}")
    (run / "episodes").mkdir(parents=True)
    config = Config()
    config.env.prompt = str(template)
    RunFolder(run).save_config(config.to_dict())
    template.unlink()
    moved = run.rename(tmp_path / "moved")
    assert configuration.load(moved / "config.yaml").env.prompt == str(moved / "prompt.jinja")


@pytest.mark.parametrize("name", [".", "checkpoints"])
def test_a_run_that_is_not_writable_is_an_error_before_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "checkpoints").mkdir()
    # Root may write into folders of any mode.
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / name)
    with pytest.raises(ConfigError, match=rf"{tmp_path / name} is not a writable folder"):
        RunFolder(tmp_path).check_writable()


def test_a_run_without_evaluations_can_be_rewound(tmp_path: Path) -> None:
    RunFolder(tmp_path).rewind(0)
    assert evaluations(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"step": 3', "[]", '{"stpe": 3}', '{"step": "three"}', '{"results": 5}', "\0",
        '{"seconds": {"start": "long"}}', '{"void": 3}', '{"void": {"DeviceError": "two"}}',
    ],
)  # fmt: skip
def test_a_damaged_state_is_a_config_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(ConfigError, match=r"state\.json: cannot be read"):
        RunFolder(tmp_path).load_state()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_a_truncated_configuration_is_not_filled_with_defaults(
    tmp_path: Path, share: float
) -> None:
    RunFolder(tmp_path).save_config(Config().to_dict())
    assert RunFolder.existing(tmp_path).path == tmp_path
    file = tmp_path / "config.yaml"
    file.write_text(file.read_text()[: int(share * file.stat().st_size)])
    with pytest.raises(
        ConfigError, match=r"config\.yaml(, line \d+: cannot be read| is incomplete)"
    ):
        RunFolder.existing(tmp_path)


def test_a_damaged_configuration_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("train:\n  steps: 3\nrun: {dir: [\n")
    said = rf"^{tmp_path}/config\.yaml, line 4: cannot be read: [^\n]*\. Restore the file, or start"
    with pytest.raises(ConfigError, match=said) as raised:
        RunFolder.existing(tmp_path)
    assert "\n" not in str(raised.value)
    (tmp_path / "episodes").mkdir()
    with pytest.raises(ConfigError, match=said):
        configuration.load(tmp_path / "config.yaml")


def test_a_run_name_that_cannot_be_a_folder_is_an_error(tmp_path: Path) -> None:
    config = Config()
    config.run.name = ""
    with pytest.raises(ConfigError, match="must be a plain folder name"):
        config.validate()
    config.run.dir, config.run.name = str(tmp_path), "a\0b"
    with pytest.raises(ConfigError, match="cannot create a run"):
        RunFolder.create(config.run, "job")


def test_jobs_that_start_at_the_same_time_have_different_folders(tmp_path: Path) -> None:
    config = RunConfig(dir=str(tmp_path / "runs"))
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: RunFolder.create(config, "job").path, range(8)))
    assert len(set(made)) == 8


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = runs.run(tmp_path / "run")
    age(folder)
    return folder


def background_pruner(run: Path, keep_gb: float | None) -> BackgroundPruner:
    config = Config()
    config.run.keep_gb = keep_gb
    return BackgroundPruner(run, config.run.keep_gb, config.rollout)


def prunings() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prune"]


def wait() -> None:
    for thread in prunings():
        thread.join(30)
        assert not thread.is_alive()


def removed(run: Path) -> int:
    return sum(summary.removed for summary in replay.open(run).episodes())


def test_a_run_that_cannot_be_pruned_is_a_warning(run, caplog):
    (run / "episodes" / "frames-other.jsonl").mkdir()
    pruner = background_pruner(run, 1e-6)
    pruner.begin()
    wait()
    pruner.close()
    assert caplog.text.count("frames-other.jsonl: cannot be read") == 2
    assert removed(run) == 0


def test_a_job_prunes_in_the_background(run):
    pruner = background_pruner(run, 1e-6)
    pruner.begin()
    wait()
    assert removed(run) == 9
    with Recorder(run, writer="later") as recorder:
        runs.played(recorder, "train", 0, step=3)
    pruner.begin()
    wait()
    assert removed(run) == 9  # it was recorded just now
    pruner.close()
    assert removed(run) == 10


def test_a_job_without_a_limit_removes_nothing(run):
    pruner = background_pruner(run, None)
    pruner.begin()
    pruner.close()
    assert removed(run) == 0


def test_prunings_never_overlap_and_never_block(run):
    pruner = background_pruner(run, 1e-6)
    (pack,) = (run / "frames").glob("*.sqlite")
    with closing(sqlite3.connect(pack, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")  # pruning it waits
        pruner.begin()
        under_way = prunings()
        pruner.begin()
        pruner.begin()
        assert prunings() == under_way
        assert len(under_way) == 1
        assert removed(run) == 0
        writer.execute("ROLLBACK")
    wait()
    pruner.begin()
    wait()
    assert removed(run) == 9


def test_a_failed_pruning_is_a_warning_and_is_retried(run, caplog):
    pruner = background_pruner(run, 1e-6)
    with lock_folder(run / "episodes"):
        pruner.begin()
        wait()
    assert "pruning failed and will be retried after the next step" in caplog.text
    assert removed(run) == 0
    pruner.begin()
    wait()
    assert removed(run) == 9


def test_an_unreachable_limit_is_a_single_warning(run, caplog):
    pruner = background_pruner(run, 1e-6)
    for _ in range(3):
        pruner.begin()
        wait()
    pruner.close()
    assert caplog.text.count("evaluations and demonstrations are never removed") == 1


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_run_folder_that_cannot_be_created_is_an_error_before_any_work(
    folder: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is not a writable folder"):
        RunFolder.check_new(RunConfig(dir=str(tmp_path / folder)))
    RunFolder.check_new(RunConfig(dir=str(tmp_path / "new" / "runs"), name="a"))
    assert not (tmp_path / "new").exists()


def test_the_name_of_an_existing_run_is_an_error_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ConfigError, match="agentrl train --resume"):
        RunFolder.check_new(RunConfig(dir=str(tmp_path), name="a"))
    (tmp_path / "a/suite.json").touch()
    with pytest.raises(ConfigError, match="agentrl eval --resume"):
        RunFolder.check_new(RunConfig(dir=str(tmp_path), name="a"))


def test_a_job_whose_folder_was_removed_says_so(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "gone")
    with (
        pytest.raises(ConfigError, match="gone: the run's folder was removed or its disk"),
        _resume_hint(folder, "agentrl train", resumed=False),
    ):
        (folder.path / "metrics.jsonl").write_text("{}")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("number_game", "number_game"),
        ("my_job/config.yaml", "my_job"),
        ("runs/sokoban-1126-101500/config.yaml", "sokoban"),
        ("configs/train.yaml", "frozen_lake"),
        (Config(env=EnvConfig(id="my_game.py:MyGame")), "my_game"),
        (Config(env=EnvConfig(id="ALE/Pong-v5")), "pong"),
        (Config(sft=SFTConfig()), "sft"),
    ],
)
def test_a_job_has_a_name_that_says_something(
    source: Config | str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = source if isinstance(source, Config) else Config(env=EnvConfig(id="FrozenLake-v1"))
    assert job_name(source, config) == name
