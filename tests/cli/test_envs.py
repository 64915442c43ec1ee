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


def test_what_is_registered_is_listed(capsys) -> None:
    assert run(["envs", "list"]) == 0
    listed = capsys.readouterr().out
    assert "NumberGame-v0" in listed
    assert "FrozenLake-v1" not in listed
    assert run(["envs", "list", "--all"]) == 0
    listed, _, lacking = capsys.readouterr().out.partition("Not here: ")
    assert "FrozenLake-v1" in listed
    assert "robotics" in lacking.partition("\n")[0]
    assert "Ant-v2" in lacking
    assert "Ant-v2" not in listed


def test_an_environment_of_gymnasium_is_checked(capsys) -> None:
    assert run(["envs", "check", "FrozenLake-v1", "env.kwargs.map_name=8x8", "--steps=5"]) == 0
    told = capsys.readouterr().out
    assert "Discrete(64)" in told
    assert "wrong" not in told


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["FrozenLake-v1", "env.kwargs.map=1"], 1, "rejects them"),
        (["FrozenLak-v1"], 1, "did you mean"),
        (["FrozenLake-v1", "env.kwarg.map=1"], 2, "kwarg"),
        (["no_such.yaml"], 2, "no such configuration"),
    ],
)
def test_what_cannot_be_checked_is_told(capsys, arguments, code, complaint) -> None:
    assert run(["envs", "check", *arguments]) == code
    out, err = capsys.readouterr()
    assert complaint in out + err


@pytest.mark.parametrize(
    "name", ["My_game", "class", "json", "2d", "numpy", "a b", "../x", "a" * 70]
)
def test_names_that_no_new_module_can_have_are_refused(capsys, tmp_path, name) -> None:
    assert run(["envs", "new", name, "--where", str(tmp_path)]) == 2
    assert "ConfigError" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def new(folder: Path) -> Path:
    assert run(["envs", "new", "my_game", "--where", str(folder)]) == 0
    return folder / "my_game"


def test_a_new_environment_passes_its_own_tests_and_resolves(tmp_path, capsys) -> None:
    folder = new(tmp_path)
    assert run(["envs", "new", "my_game", "--where", str(tmp_path)]) == 2  # not written over
    assert "there already" in capsys.readouterr().err
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder, capture_output=True, text=True, timeout=170,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout[-3000:]
    assert "2 passed" in tested.stdout
    planned = agentrl("train", "config.yaml", "--dry-run", folder=folder)
    assert planned.returncode == 0, planned.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_new_environment_is_learned(tmp_path) -> None:
    folder = new(tmp_path)
    done = agentrl("train", "config.yaml", "run.name=it", folder=folder, timeout=880)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((folder / "runs" / "it" / "summary.json").read_text())
    assert found["before"]["sampled"]["accuracy"] < 0.6
    assert found["after"]["sampled"]["accuracy"] > 0.8
