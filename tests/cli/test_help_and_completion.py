"""Help pages, and completion as bash itself asks for it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import typer

from agentrl import cli
from agentrl.cli.command_completion import (
    complete_algorithm,
    complete_config,
    complete_environment,
    complete_kind,
    complete_run,
    complete_setting,
    complete_suite,
)
from tests.pseudo_terminal import PseudoTerminal

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


ASKED = [
    ("pl", ["plan", "play"]),
    ("train soko", ["sokoban", "sokoban_3b", "sokoban_chunks"]),
    ("train min", ["minigrid", "mine.yaml"]),
    ("view runs/s", ["runs/sokoban-1126-101500/"]),
    ("view mod", ["models/", "models/mine/"]),
    ("play Sok", ["Sokoban-v0"]),
    ("algorithms da", ["dapo"]),
    ("check aud", []),
    ("runs --env", ["--environment"]),
    ("infer tiny ques", ["questions.jsonl"]),
    ("train sokoban optim.lr_w", ["optim.lr_warmup_steps=", "optim.lr_warmup_steps=0"]),
    ("train sokoban seed=1 rollout.gr", ["rollout.group_size=", "rollout.groups="]),
    ("devices sh", ["shell"]),
]
"""What follows `agentrl`, and what a shell is to offer."""


class Shell:
    """Runs scripts of a shell whose home and current folder is `folder`."""

    def __init__(self, name: str, folder: Path) -> None:
        if which(name) is None:
            pytest.skip(f"{name} is not installed")
        self.name, self.folder = name, folder
        for file in (
            "runs/sokoban-1126-101500/config.yaml", "models/mine/config.json", "mine.yaml",
            "questions.jsonl",
        ):  # fmt: skip
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = os.environ | {"HOME": str(folder), "PATH": path, "TERM": "dumb"}
        self.env.pop("XDG_CONFIG_HOME", None)
        # The shell is the parent process; without `true` it would replace itself by the command.
        assert f"{name} completion installed" in self.run("agentrl --install-completion; true")[0]

    def run(self, script: str) -> list[str]:
        no_settings = {"bash": "--norc", "zsh": "-f", "fish": "--private"}[self.name]
        done = subprocess.run(
            [self.name, no_settings, "-c", script], cwd=self.folder, env=self.env,
            capture_output=True, text=True, check=True, timeout=180,
        )  # fmt: skip
        return done.stdout.splitlines()


@pytest.mark.slow
def test_bash_completes_commands_configurations_settings_and_runs(tmp_path: Path) -> None:
    shell = Shell("bash", tmp_path)
    asked = [*ASKED, ("train sokoban optim.lr =", [])]
    script = "\n".join(f"complete_words agentrl {words}" for words, _ in asked)
    answers = [line.split() for line in shell.run(COMPLETE + script)]
    # bash itself offers files where the function offers nothing.
    assert answers == [[] if "ques" in words else answer for words, answer in asked]


@pytest.mark.slow
def test_fish_completes_the_same(tmp_path: Path) -> None:
    shell = Shell("fish", tmp_path)
    script = "\n".join(f"complete -C 'agentrl {words}'; echo ---" for words, _ in ASKED)
    said = "\n".join(line.partition("\t")[0] for line in shell.run(script))
    answers = [sorted(answer.split()) for answer in said.split("---")[:-1]]
    assert answers == [sorted(answer) for _, answer in ASKED]


@pytest.mark.slow
def test_zsh_completes_the_same_from_the_first_time(tmp_path: Path) -> None:
    shell = Shell("zsh", tmp_path)
    terminal = PseudoTerminal("zsh", "-i", env=shell.env, cwd=tmp_path)
    try:
        terminal.wait_for(r"[#%] ")
        for words, names in ASKED:
            if len(names) == 1:  # zsh shows several names in its own way
                terminal.type(f"agentrl {words}\t")
                terminal.wait_for(f"{names[0]} ")
                terminal.type("\x15")  # Ctrl-U deletes the line
        terminal.type("agentrl pla\t")
        terminal.wait_for("plan +-- Compute(.|\n)*play +-- Play")
    finally:
        terminal.close()


def test_a_single_folder_is_completed_with_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("jobs/lake.yaml", "runs/a/config.yaml", "models/mine/config.json"):
        path = tmp_path / file
        path.parent.mkdir(parents=True)
        path.touch()
    assert complete_config("jo") == ["jobs/", "jobs/lake.yaml"]
    assert complete_run("runs/") == ["runs/a/"]
    assert complete_run("mod") == ["models/", "models/mine/"]


def test_names_that_a_shell_would_interpret_are_not_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("$(id)", "`id`", "a b", "a\nb", "a'b", 'a"b', "a;b", "*", "~", "a\\", "é_1"):
        path = tmp_path / "runs" / name / "config.yaml"
        path.parent.mkdir(parents=True)
        path.touch()
        (tmp_path / f"{name}.yaml").touch()
    assert complete_run("runs/") == ["runs/é_1/"]
    assert complete_run("runs/$") == complete_run("runs/a b") == []
    assert complete_run("r") == ["runs/é_1/", "runs/"]
    assert {name for name in complete_config("") if name.endswith(".yaml")} == {"é_1.yaml"}


def test_environments_kinds_algorithms_and_suites_are_completed() -> None:
    assert complete_environment("FrozenLake-") == ["FrozenLake-v1"]
    assert "Sokoban-v0" in complete_environment("")
    assert complete_kind("log") == ["logger"]
    assert complete_algorithm("turn_") == ["turn_grpo", "turn_ppo"]
    assert "minigames" in complete_suite("min")


def test_the_installed_completion_of_zsh_also_answers_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("zsh", "/bin/zsh"))
    for _ in range(2):
        assert cli.run(["--install-completion"]) == 0
    script = (tmp_path / ".zfunc/_agentrl").read_text()
    assert script.count('== _agentrl ]] && _agentrl_completion "$@"') == 1


def test_sections_are_completed_one_level_at_a_time() -> None:
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
