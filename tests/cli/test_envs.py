"""`agentrl envs`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.cli import run


def agentrl(*arguments: str, folder: Path, timeout: float = 170) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "agentrl", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def test_list_shows_registered_environments(capsys) -> None:
    assert run(["envs", "list"]) == 0
    listed = capsys.readouterr().out
    assert "NumberGame-v0" in listed
    assert "FrozenLake-v1" not in listed
    assert run(["envs", "list", "--all"]) == 0
    listed, _, lacking = capsys.readouterr().out.partition("Unavailable: ")
    assert "FrozenLake-v1" in listed
    assert "robotics" in lacking.partition("\n")[0]
    assert "Ant-v2" in lacking
    assert "Ant-v2" not in listed


def test_check_accepts_an_environment_of_gymnasium(capsys) -> None:
    assert run(["check", "env", "FrozenLake-v1", "env.kwargs.map_name=8x8"]) == 0
    output = capsys.readouterr().out
    assert "Discrete(64)" in output
    assert "FAILED" not in output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["FrozenLake-v1", "env.kwargs.map=1"], 1, "does not accept this argument"),
        (["FrozenLak-v1"], 1, "did you mean"),
        (["FrozenLake-v1", "env.kwarg.map=1"], 2, "kwarg"),
        ([f"{Path(__file__).parents[2]}/configs/sokobann.yaml"], 2, "did you mean 'sokoban.yaml'"),
        (
            ["no_such.yaml"],
            2,
            "no such configuration; create one with: agentrl init no_such.yaml\n",
        ),
        (["sokobann.yaml"], 2, "no such configuration (did you mean 'sokoban'?)\n"),
        (["nope.yaml"], 2, "no such configuration; create one with: agentrl init nope.yaml\n"),
        (["no_such/job.yaml"], 2, "create one with: agentrl init no_such/job.yaml\n"),
    ],
)
def test_check_reports_mistakes(capsys, arguments, code, message) -> None:
    assert run(["check", "env", *arguments]) == code
    out, err = capsys.readouterr()
    assert message in out + err


@pytest.mark.parametrize(
    "name", ["My_game", "class", "json", "2d", "numpy", "a b", "../x", "a" * 70]
)
def test_new_refuses_names_that_no_module_can_have(capsys, tmp_path, name) -> None:
    assert run(["envs", "new", name, "--where", str(tmp_path)]) == 2
    assert "ConfigError" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def new(folder: Path) -> Path:
    assert run(["envs", "new", "my_game", "--where", str(folder)]) == 0
    return folder / "my_game"


@pytest.mark.slow
def test_a_new_environment_passes_its_own_tests_and_a_dry_run(
    tmp_path, capsys, monkeypatch
) -> None:
    folder = new(tmp_path)
    assert run(["envs", "new", "my_game", "--where", str(tmp_path)]) == 2  # not written over
    assert "already exists" in capsys.readouterr().err
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder, capture_output=True, text=True, timeout=170,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout[-3000:]
    assert "2 passed" in tested.stdout
    monkeypatch.chdir(folder)
    monkeypatch.setattr("agentrl.training.plan.trial_episodes._BUDGET_S", 0.0)  # tested there
    monkeypatch.setattr(sys, "path", sys.path[:])
    modules = set(sys.modules)
    assert run(["train", "config.yaml", "--dry-run"]) == 0
    for name in set(sys.modules) - modules:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]  # such as rewards, a name that others look up


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_new_environment_can_be_learned(tmp_path) -> None:
    folder = new(tmp_path)
    done = agentrl("train", "config.yaml", "run.name=it", folder=folder, timeout=880)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((folder / "runs" / "it" / "summary.json").read_text())
    assert found["before"]["sampled"]["accuracy"] < 0.6
    assert found["after"]["sampled"]["accuracy"] > 0.8
