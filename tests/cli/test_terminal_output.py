"""Tables on a terminal, and in a pipe for other programs."""

import logging
import re
from pathlib import Path

import pytest

from agentrl import cli
from agentrl.cli import terminal_output
from tests.viewer import runs

REWARD = "agentrl.rewards.form:action"
COMMANDS = [
    ["algorithms"], ["envs", "list"], ["list"], ["list", "logger"], ["runs", "."],
    ["episodes", "run"], ["rescore", "run", "--reward", REWARD],
    ["eval", "FrozenLake-v1", "--policy=random", "--episodes=2", "logging=[]"],
    ["play", "FrozenLake-v1", "--policy=random"],
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs.run(Path("run"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_piped_output_has_no_frames_and_its_full_width(
    command: list[str],
    folder: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "38")
    assert cli.run(command) == 0
    piped = capsys.readouterr().out
    assert not re.search(r"[\u2500-\u257f…]|\x1b| $", piped, re.MULTILINE)
    assert max(map(len, piped.splitlines())) > 38


def test_a_record_or_error_of_any_length_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        logging.getLogger("agentrl.training").warning("it says %s", "x" * 300_000)
        raise OSError("y" * 300_000)

    monkeypatch.setattr(cli, "root_command", lambda: fails)
    terminal_output.set_up_logging(verbose=False)
    assert cli.run(["runs"]) == 1
    warned, failed = capsys.readouterr().err.splitlines()
    assert len(warned) < 21_000
    assert warned.endswith("characters)")
    assert failed.startswith("OSError: yyy")
    assert failed.endswith("... (300,000 characters)")
