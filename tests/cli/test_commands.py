import dataclasses
import json
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
import yaml

from agentrl import __version__, cli, replay
from agentrl import config as configuration
from agentrl.check import installation
from agentrl.config import RolloutConfig, algorithm_defaults
from agentrl.errors import ConfigError, DeviceError
from agentrl.extension_points import ALGORITHM
from agentrl.files import lock_folder
from agentrl.training.evaluation.held_out_evaluation import Evaluation

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_environment.yaml"


def test_algorithms_are_listed_with_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["algorithms"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    for extension in ALGORITHM.extensions():
        assert extension.name in listed
    assert cli.run(["algorithms", "dapo"]) == 0
    output = capsys.readouterr().out
    assert "  loss:\n    name: ppo\n" in output
    assert "    clip_high: 0.28   # default 0.2\n" in output
    assert yaml.safe_load(output.partition("\n\n")[2].partition("Next: ")[0])["algorithm"] == (
        dataclasses.asdict(algorithm_defaults("dapo"))
    )
    assert cli.run(["algorithms", "dapo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sampling"]["filter_groups"] is True
    assert cli.run(["algorithms", "dapp"]) == 2
    assert "did you mean 'dapo'?" in capsys.readouterr().err


def test_settings_of_algorithms_are_not_broken_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert cli.run(["algorithms"]) == 0
    words = [word.strip(",()") for word in capsys.readouterr().out.split()]
    assert "overlong.buffer=0.2" in words
    assert "implicit_reward.beta=0.05" in words
    assert "critic.warmup_steps=0" in words


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A training loop that only records its calls."""
    module = ModuleType("agentrl.training.trainer.train")
    module.calls = []  # type: ignore[attr-defined]

    def train(config: Any, **keywords: Any) -> replay.Run:
        module.calls.append((config, keywords))
        if keywords["resume"] is not None:
            keywords["begun"](None)
        if "seed=13" in keywords["overrides"]:
            raise DeviceError("emulator-5554 is offline")
        if "seed=14" in keywords["overrides"]:
            raise KeyboardInterrupt
        Path("runs/x").mkdir(parents=True, exist_ok=True)
        return replay.Run("runs/x")

    module.train = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agentrl.training.trainer.train", module)
    return module


def test_help_and_version_load_nothing_heavy(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    assert "doctor" in capsys.readouterr().out
    assert cli.run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["tran"], ["train"], ["episodes", "x", "--lst"]])
def test_a_mistyped_command_is_a_users_mistake(arguments: list[str]) -> None:
    assert cli.run(arguments) == 2


@pytest.mark.parametrize(
    ("command", "code", "printed"),
    [("--version 2>&-", 0, "agentrl "), ("init <&- 2>&1", 2, "ConfigError: the input is not a")],
)
def test_a_closed_stream_is_like_the_null_device(command: str, code: int, printed: str) -> None:
    script = f"{sys.executable} -m agentrl {command}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stdout.startswith(printed)


def test_train_passes_overrides_on(loop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "number_game", "train.steps=3", "seed=2"]) == 0
    ((config, keywords),) = loop.calls
    assert config == "number_game"
    assert keywords.pop("begun") is not None
    assert keywords == {"overrides": ["train.steps=3", "seed=2"], "resume": None}
    assert "Next: agentrl view runs/x   or: agentrl eval runs/x" in capsys.readouterr().out


def test_errors_become_one_line_and_an_exit_code(
    loop: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["train", "number_game", "steps"]) == 2
    assert capsys.readouterr().err.startswith("ConfigError: 'steps'")
    assert cli.run(["train", "number_game", "seed=13"]) == 1
    assert capsys.readouterr().err == "DeviceError: emulator-5554 is offline\n"
    assert cli.run(["train", "number_game", "seed=14"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_resume_takes_a_folder_or_the_newest_run(loop: Any, tmp_path: Path, capsys: Any) -> None:
    config = tmp_path / "job.yaml"
    config.write_text(f"run: {{dir: {tmp_path / 'runs'}}}\n")
    old, new = (tmp_path / "runs" / f"job-1124-09300{second}" for second in (1, 2))
    marked = tmp_path / "runs" / "a[1]*"
    for folder in (old, new, marked, tmp_path / "runs" / "job-two-1124-093005"):
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("seed: 1\n")
    for arguments in (
        ["--resume", str(old)], [str(old), "--resume"], [str(config), "--resume", str(old)],
    ):  # fmt: skip
        assert cli.run(["train", *arguments]) == 0
        assert loop.calls[-1][1]["resume"] == old
    capsys.readouterr()
    assert cli.run(["train", str(config), "--resume"]) == 0
    assert loop.calls[-1][1]["resume"] == new
    assert f"resuming {new} with its own configuration" in capsys.readouterr().out
    assert cli.run(["train", str(config), "--resume", "run.name=other"]) == 2
    assert cli.run(["train", str(config), "--resume", "run.name='a[1]*'"]) == 0
    assert loop.calls[-1][1]["resume"] == marked
    assert cli.run(["train", str(config), "--resume", "run.name='job-*'"]) == 2


def test_resume_prefers_unfinished_runs_and_names_one_of_another_name(
    loop: Any, tmp_path: Path, capsys: Any
) -> None:
    config = tmp_path / "job.yaml"
    config.write_text(f"run: {{dir: {tmp_path / 'my runs'}}}\nenv: {{id: CartPole-v1}}\n")
    named, other = (tmp_path / "my runs" / name for name in ("first", "other"))
    for run, env in ((named, "CartPole-v1"), (other, "Acrobot-v1")):
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(f"env: {{id: {env}}}\n")
        (run / "command").write_text("agentrl train\n")
        with lock_folder(run):  # as a job does
            pass
    assert cli.run(["train", str(config), "--resume"]) == 2
    assert (
        "contains no run 'job-MMDD-HHMMSS'; the newest unfinished run of CartPole-v1 has another "
        f"name: agentrl train --resume '{named}'\n"
    ) in capsys.readouterr().err
    unfinished = named.rename(named.with_name("job-1124-093001"))
    finished = other.rename(named.with_name("job-1124-093002"))
    (finished / "summary.json").write_text('{"steps": 3}')
    (finished / "state.json").write_text('{"step": 3}')
    assert cli.run(["train", str(config), "--resume"]) == 0
    assert loop.calls[-1][1]["resume"] == unfinished


def test_a_missing_run_is_reported_as_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere, out = str(tmp_path / "nope"), str(tmp_path / "out")
    for arguments in (
        ["merge", nowhere, out], ["train", nowhere, "--resume"],
        ["train", "--resume", nowhere, "--dry-run"], ["train", "number_game", "--resume", nowhere],
    ):  # fmt: skip
        assert cli.run(arguments) == 2
        output = capsys.readouterr().err
        assert f"{nowhere}: no such run; " in output
    assert cli.run(["train", f"{nowhere}.yaml", "--resume"]) == 2
    assert "no such configuration" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_files_and_folders_of_another_kind_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run/episodes").mkdir(parents=True)
    Path("run/config.yaml").touch()
    Path("folder").mkdir()
    Path("empty.yaml").touch()
    Path("list.json").write_text("[]")
    for arguments, message in (
        (["train", "run"], "use run/config.yaml, or continue the run with --resume"),
        (["train", "folder"], "folder: is a folder, not a configuration; use a file"),
        (["rehearse", "folder"], "folder is not a run"),
        (["audit", "run", "--judge", "no.yaml"], "no.yaml: no such file"),
        (["audit", "run", "--judge", "empty.yaml"], "empty.yaml: has no rewards; write {function:"),
        (["compare", "list.json"], "list.json: cannot be read as suite results\n"),
    ):
        assert cli.run(arguments) == 2
        assert message in capsys.readouterr().err


def test_dry_run_prints_what_resolves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text("seed: 5\n")
    assert cli.run(["train", str(tmp_path / "job.yaml"), "seed=6", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "seed: 6" in printed
    command = f"agentrl train {tmp_path / 'job.yaml'} seed=6"
    assert printed.splitlines()[-1] == f"# Next: {command}   or: {command} --print-config"
    assert cli.run([*shlex.split(command)[1:], "--print-config"]) == 0
    whole = configuration.from_dict(yaml.safe_load(capsys.readouterr().out))
    assert (whole.seed, whole.rollout) == (6, RolloutConfig())
    assert cli.run(["train", str(tmp_path / "job.yaml"), "sede=6", "--dry-run"]) == 2
    assert "did you mean 'seed'" in capsys.readouterr().err


def test_eval_accepts_an_environment_and_reports_a_missing_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--policy", "random", "--episodes", "3", f"run.dir={tmp_path}"]
    assert cli.run(["eval", "FrozenLake-v1", *arguments]) == 0
    assert "FrozenLake-v1" in capsys.readouterr().out
    (run,) = tmp_path.iterdir()
    assert cli.run(["eval", f"{run}7", *arguments]) == 2
    output = capsys.readouterr().err
    assert "no such file or folder" in output
    assert f"did you mean '{run.name}'" in output


def test_each_command_ends_with_the_next_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def following(*arguments: str) -> str:
        assert cli.run(list(arguments)) == 0
        return capsys.readouterr().out.splitlines()[-1]

    played = following(
        "eval", "FrozenLake-v1", "--policy=random", "--episodes=3", f"run.dir={tmp_path}"
    )
    (folder,) = tmp_path.iterdir()
    run, reward = str(folder), "agentrl.rewards.form:action"
    assert played == f"Next: agentrl view {run}   or: agentrl episodes {run}"
    assert following("episodes", run).startswith(f"Next: agentrl view {run} --episode ")
    data = str(tmp_path / "all.jsonl")
    exported = following("export", run, data, "--held-out")
    assert exported == f"Next: agentrl sft CONFIG sft.train.data={data}"
    page = tmp_path / "a report.html"
    assert following("export", run, str(page)).endswith(f"a browser: {page.as_uri()}")
    assert following("rescore", run, "--reward", reward) == (
        f"Next: agentrl train {run}/config.yaml "
        f"'rewards=[{{function: {shlex.quote(repr(reward))[1:-1]}, weight: 1}}]'"
    )
    assert following("rehearse", run).startswith("Next: agentrl rescore ")
    pruned = following("prune", run, "--keep-gb", "1", "--dry-run")
    assert pruned == f"Next: agentrl prune {run} --keep-gb 1"
    assert following("prune", run, "--keep-gb", "1") == f"Next: agentrl episodes {run}"
    assert following("envs", "list").startswith("Next: agentrl envs list --all ")
    assert following("algorithms", "dapo").startswith("Next: agentrl train number_game ")
    assert "Next" not in following("algorithms", "--json")
    assert "Next" not in following("rescore", run, "--reward", reward, "--json")


def test_eval_plays_prints_and_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", str(EXAMPLE), "--policy", "guesser", "--episodes", "7"]
    arguments.append(f"run.dir={tmp_path}")
    assert cli.run([*arguments, "--json"]) == 0
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert "evaluation" in output.err
    assert Path(found["run"]).name.startswith("eval-guesser-own_environment-")
    assert found["episodes"] == 7
    assert 1 <= found["turns"] <= 4
    assert cli.run(["episodes", found["run"]]) == 0
    assert "7 of 7 episodes" in capsys.readouterr().out
    assert cli.run(arguments) == 0
    output = capsys.readouterr().out
    assert "recorded:" in output
    assert re.search(
        r"^95% intervals over the seeds: .*\breward -?[\d.]+ to -?[\d.]+", output, re.M
    )
    folders = [str(path) for path in tmp_path.iterdir()]
    assert len(folders) == 2
    assert cli.run(["compare", *folders]) == 0
    output = capsys.readouterr().out
    assert [Path(folder).name in output for folder in folders] == [True, True]
    assert "Differences: paired by seed" in output
    for command in (["train"], ["train", "--dry-run"], ["sft"]):
        assert cli.run([*command, "--resume", found["run"]]) == 2
        output = capsys.readouterr().err
        assert "this is a recording of agentrl eval, not a training run" in output
    assert cli.run([*arguments, f"run.name={Path(found['run']).name}"]) == 2
    output = capsys.readouterr().err
    assert "exists and is a recording of agentrl eval; choose another run.name" in output


def test_eval_without_the_console_logger_prints_no_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"run.dir={tmp_path}", "logging=[file]", "--episodes=2", "--policy=guesser"]
    assert cli.run(["eval", str(EXAMPLE), *settings, "--json"]) == 0
    assert not capsys.readouterr().err


def test_eval_of_an_environment_records_its_name_as_the_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"run.dir={tmp_path}", "--episodes=2", "--policy=random", "--json"]
    assert cli.run(["eval", "FrozenLake-v1", *settings]) == 0
    run = Path(json.loads(capsys.readouterr().out)["run"])
    assert run.name.startswith("eval-random-frozen_lake-")
    assert json.loads((run / "summary.json").read_text())["target"] == "FrozenLake-v1"


def test_eval_of_a_configuration_warns_that_its_model_is_untrained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def played(*_: Any) -> Evaluation:
        return Evaluation(metrics={"reward": 0.5}, episodes=1, void=0, seconds=0.1, by_seed={})

    monkeypatch.setattr("agentrl.training.evaluation.evaluate._evaluate", played)
    assert cli.run(["eval", str(EXAMPLE), f"run.dir={tmp_path}"]) == 0
    assert "the model that it starts from" in caplog.text
    caplog.clear()
    assert cli.run(["eval", str(EXAMPLE), f"run.dir={tmp_path}", "--policy=guesser"]) == 0
    assert not caplog.text


def test_doctor_lists_everything_and_how_to_fix_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installation, "_version", lambda package: None)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(unused.getsockname()[1]))
        assert cli.run(["doctor"]) == 1
    output = capsys.readouterr().out
    for word in ("Python", "links", "torch", "vLLM", "ray", "adb", "GPU", "cores", "disk"):
        assert word in output
    assert "not running" in output
    assert "agentrl-screens[wandb]" in output


def test_doctor_detects_a_foreign_server_on_the_adb_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reply() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(100)
                sock.sendall(b"HTTP/1.1 400 Bad Request")

        replying = threading.Thread(target=reply)
        replying.start()
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(listener.getsockname()[1]))
        (found,) = (one for one in installation.examine() if one.what == "adb server")
        replying.join(10)
    assert found.state == "missing"
    assert "ANDROID_ADB_SERVER_PORT" in found.fix


def test_broken_links_fail_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ConfigError("links are text files")

    monkeypatch.setattr(cli, "check_links", broken)
    assert cli.run(["doctor"]) == 2
    assert capsys.readouterr().err == "ConfigError: links are text files\n"


def test_doctor_reports_a_torchvision_that_others_cannot_import():
    found = installation.vision_beside("2.13.0+cpu", "0.28.0")
    assert found is not None
    assert "torchvision==0.28.0+cpu --index-url https://" in found.fix
    for torch, torchvision in (
        ("2.13.0+cpu", "0.28.0+cpu"), ("2.13.0", "0.28.0"), (None, "0.28.0"), ("2.13.0+cpu", None),
    ):  # fmt: skip
        assert installation.vision_beside(torch, torchvision) is None


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["train", "number_game", "--steps", "3"], "train.steps=3"),
        (["train", "number_game", "--lr=3e-4"], "optim.lr=3e-4"),
        (["eval", "number_game", "--group-size", "4"], "rollout.group_size=4"),
    ],
)
def test_an_option_that_is_a_setting_is_answered_with_the_override(
    arguments: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    assert f"but a setting; write it as {answer}\n" in capsys.readouterr().err


def test_help_lists_every_command_and_ends_with_an_example() -> None:
    def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        if not getattr(command, "hidden", False):
            yield path, command
        for name, inner in getattr(command, "commands", {}).items():
            yield from commands(inner, f"{path} {name}")

    root = typer.main.get_command(cli.app)
    shown = [name for names in cli._GROUPS.values() for name in names]
    for path, command in commands(root, "agentrl"):
        if path.count(" ") == 1:
            assert path.split()[1] in shown, path
        if not hasattr(command, "commands"):
            assert command.help.strip().splitlines()[-1].startswith(f"Example: {path}"), path
