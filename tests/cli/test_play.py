"""`agentrl play`."""

import faulthandler
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from agentrl import replay
from agentrl.cli import run
from agentrl.cli.terminal_output import draw_image
from agentrl.runs.run_discovery import find_runs
from agentrl.runs.run_summary import summarize
from agentrl.types import Outcome
from tests.pseudo_terminal import PseudoTerminal

LAKE = ["play", "FrozenLake-v1", "env.kwargs.is_slippery=false"]
NAMES = "env.translator_kwargs.names=[left, down, right, up]"


def play(monkeypatch: pytest.MonkeyPatch, typed: str, *arguments: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    return run([*LAKE, NAMES, *arguments])


def recorded(folder: Path) -> list[replay.Summary]:
    (game,) = folder.iterdir()
    return replay.open(game).episodes()


def test_a_person_plays_by_typing_actions(monkeypatch, capsys, tmp_path) -> None:
    way = ["down", "fly", "<action>down</action>", "right", "right", "down", "right"]
    assert play(monkeypatch, "\n".join(way) + "\n", f"run.dir={tmp_path}") == 0
    output = capsys.readouterr().out
    assert "'fly' is not an action" in output
    assert "terminated after 6 turns, reward 1" in output
    (episode,) = recorded(tmp_path)
    assert episode.reward == 1.0
    (game,) = tmp_path.iterdir()
    played = replay.open(game).episode(episode.id).episode
    assert "down" in played.instructions
    assert [turn.shown for turn in played.turns] == ["0", "4", "8", "9", "10", "14"]
    assert played.final_shown == "15"


def test_a_person_names_actions_in_any_style_and_is_shown_the_valid_ones(
    monkeypatch, capsys, tmp_path
) -> None:
    arguments = "env.translator_kwargs.style=tool", f"run.dir={tmp_path}"
    assert play(monkeypatch, "fly\ndown\n\n", *arguments) == 0
    output = capsys.readouterr().out
    assert "unknown action 'fly'; the actions are left, down, right, up" in output
    assert '{"name": "down", "arguments": {}}' in output


@pytest.mark.parametrize("style", ["tag", "tool"])
def test_a_person_is_shown_the_actions_even_if_the_model_gets_no_instructions(
    monkeypatch, capsys, tmp_path, style
) -> None:
    silent = "env.translator_kwargs.instructions=''", f"env.translator_kwargs.style={style}"
    assert play(monkeypatch, "down\n\n", *silent, f"run.dir={tmp_path}") == 0
    assert capsys.readouterr().out.startswith("Answer with one of left, down, right, up.")
    (episode,) = recorded(tmp_path)
    (game,) = tmp_path.iterdir()
    assert replay.open(game).episode(episode.id).episode.instructions == ""


def test_a_person_is_shown_the_rules_that_the_model_is_not(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("left\n\n"))
    assert run(["play", "sokoban", f"run.dir={tmp_path}"]) == 0
    assert "Push" in capsys.readouterr().out
    (episode,) = recorded(tmp_path)
    (game,) = tmp_path.iterdir()
    assert replay.open(game).episode(episode.id).episode.instructions == ""


def test_the_run_folder_has_the_given_name(monkeypatch, capsys, tmp_path) -> None:
    arguments = f"run.dir={tmp_path}", "run.name=mine"
    assert play(monkeypatch, "down\n\n", *arguments) == 0
    assert recorded(tmp_path)
    assert [folder.name for folder in tmp_path.iterdir()] == ["mine"]
    assert play(monkeypatch, "down\n\n", *arguments) == 2
    assert "mine already exists" in capsys.readouterr().err


def test_an_episode_that_is_stopped_early_is_recorded(monkeypatch, capsys, tmp_path) -> None:
    assert play(monkeypatch, "down\n\n", f"run.dir={tmp_path}") == 0
    assert "truncated after 1 turn, " in capsys.readouterr().out
    (played,) = find_runs(tmp_path)
    found = summarize(played)
    assert (found.command, found.algorithm, found.steps) == ("agentrl play", "", None)
    assert run(["train", "--resume", str(played)]) == 2
    assert "this is a recording of agentrl play, not a training run" in capsys.readouterr().err
    assert play(monkeypatch, "", f"run.dir={tmp_path}") == 0
    ended = "the game ended before its first turn; nothing was recorded\n"
    assert capsys.readouterr().out.endswith(ended)
    assert find_runs(tmp_path) == [played]


def test_a_mistyped_policy_is_answered_with_all_that_there_are(monkeypatch, capsys) -> None:
    assert play(monkeypatch, "", "--policy", "humann") == 2
    assert capsys.readouterr().err == (
        "ConfigError: policy=humann: there is no such policy (did you mean 'human'?); choose one "
        "of human, model, noop, random, or give the folder of a run or a model\n"
    )


def test_ctrl_c_ends_a_game_with_one_line(tmp_path) -> None:
    terminal = PseudoTerminal(sys.executable, "-m", "agentrl", *LAKE, cwd=tmp_path)
    try:
        terminal.wait_for("> $")
        terminal.type("\x03")
        assert terminal.wait() == 130
        assert terminal.shown.split() == ["^C", "interrupted"]
    finally:
        terminal.close()


def test_a_game_is_played_where_stderr_is_no_file(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(faulthandler, "is_enabled", lambda: False)  # it is, by pytest
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert play(monkeypatch, "down\n\n", f"run.dir={tmp_path}") == 0
    assert recorded(tmp_path)[0].outcome is not Outcome.ENV_ERROR


def test_a_scripted_player_can_be_watched(capsys, tmp_path) -> None:
    assert run([*LAKE, "--policy=random", "--seed=3", f"run.dir={tmp_path}"]) == 0
    output = capsys.readouterr().out
    assert output.count("<action>") >= len(recorded(tmp_path)[0].rewards)


def test_a_model_plays_regardless_of_settings_that_concern_only_the_learner(tmp_path) -> None:
    hf = "rollout.engine=hf", "rollout.max_new_tokens=4", "env.max_turns=1"
    command = [*LAKE, NAMES, "--policy=model", *hf, f"run.dir={tmp_path}"]
    assert run([*command, "train.weight_transfer=nccl", "rollout.sleep=true"]) == 0
    assert len(recorded(tmp_path)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["FrozenLake-v1", "--policy=exprt"], "policy=exprt: there is no such policy"),
        (["FrozenLake-v0"], "use `FrozenLake-v1`"),
        (["number_gam.yaml"], "did you mean 'number_game'"),
        (["FrozenLake-v1", "env.max_turns=0"], "env.max_turns"),
        (
            ["FrozenLake-v1", "--seed=1000000000001"],
            "seed=1000000000001: must be between 0 and 1,000,000",
        ),
    ],
)
def test_play_reports_mistakes(capsys, tmp_path, arguments, message) -> None:
    assert run(["play", *arguments, f"run.dir={tmp_path}"]) == 2
    assert message in capsys.readouterr().err


def test_an_image_shows_two_pixels_per_character() -> None:
    image = np.zeros((4, 2, 3), np.uint8)
    image[0], image[3] = (255, 0, 0), (0, 0, 255)
    shown = draw_image(image, 2)
    rows = shown.plain.splitlines()
    assert (len(rows), len(rows[0])) == (2, 2)
    first, last = shown.spans[0].style, shown.spans[-1].style
    assert (first.color.name, last.bgcolor.name) == ("#ff0000", "#0000ff")
