"""Help pages, and completion as bash itself asks for it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from agentrl import cli

COMPLETE = """
. "$HOME/.bash_completions/agentrl.sh"
complete_words() {
  COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=()
  _agentrl_completion agentrl
  printf '%s ' "${COMPREPLY[@]}"; echo
}
"""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not getattr(command, "hidden", False):
        yield path, command
        for name, inner in getattr(command, "commands", {}).items():
            yield from commands(inner, (*path, name))


@pytest.mark.parametrize("columns", ["60", "80", "160"])
def test_help_of_every_command_is_complete_and_breaks_no_word(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for path, command in commands(typer.main.get_command(cli.app)):
        assert cli.run([*path, "-h"]) == 0
        short = capsys.readouterr().out
        assert cli.run([*path, "--help"]) == 0
        assert capsys.readouterr().out == short, path
        assert cli.run(["help", *path]) == 0
        assert capsys.readouterr().out == short, path
        flat = " ".join(short.split())
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        named = [part for one in arguments for part in (one.metavar or one.name.upper()).split()]
        assert all(part in flat.partition("[OPTIONS]")[2][:90] for part in named), path
        summary = " ".join(command.help.split("\n\n")[0].split())
        assert summary in flat
        for name, inner in getattr(command, "commands", {}).items():
            if not inner.hidden:
                assert f"{name} {' '.join(inner.help.split(chr(10) * 2)[0].split())}" in flat


@pytest.mark.slow
def test_bash_completes_commands_configurations_settings_and_runs(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "sokoban-1126-101500"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    (tmp_path / "mine.yaml").touch()
    folder = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"HOME": str(tmp_path), "PATH": folder}

    def bash(script: str) -> list[str]:
        command = ["bash", "--norc", "-c", script]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.splitlines()

    # The shell is the parent process; without `true` bash would replace itself by the command.
    assert "bash completion installed" in bash("agentrl --install-completion; true")[0]
    asked = [
        ("pl", ["plan", "play"]),
        ("train soko", ["sokoban", "sokoban_3b"]),
        ("train min", ["minigrid", "mine.yaml"]),
        ("view runs/s", ["runs/sokoban-1126-101500/"]),
        ("train sokoban optim.lr_w", ["optim.lr_warmup_steps=", "optim.lr_warmup_steps=0"]),
        ("train sokoban seed=1 rollout.gr", ["rollout.group_size=", "rollout.groups="]),
        ("train sokoban optim.lr =", []),
        ("devices sh", ["shell"]),
    ]
    script = "\n".join(f"complete_words agentrl {words}" for words, _ in asked)
    answers = [line.split() for line in bash(COMPLETE + script)]
    assert answers == [answer for _, answer in asked]


def test_sections_are_completed_one_level_at_a_time() -> None:
    from agentrl.cli.command_help import complete_setting

    context: Any = type("Context", (), {"params": {"overrides": ["seed=1"]}})
    sections = complete_setting(context, "")
    assert {"seed=", "train.", "warm_start."} <= {*sections}
    assert "train.steps=" in complete_setting(context, "tr")  # the only section
    assert "train.steps=" in complete_setting(context, "train.")
    assert complete_setting(context, "train.steps=1") == []


def test_bars_of_other_libraries_do_not_fill_a_log() -> None:
    code = (
        "from agentrl import cli; cli.run(['--version']);"
        "from tqdm.auto import tqdm; list(tqdm(range(9)))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not done.stderr


@pytest.mark.parametrize("command", ["list driver", "list capture", "doctor", "algorithms"])
def test_a_narrow_terminal_breaks_no_word(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {}
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    for columns in ("60", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        cli.run(command.split())
        words[columns] = set(re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).split())
    assert words["60"] == words["400"]
