"""Replaying recorded episodes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.rollout.rehearsal import first_difference
from agentrl.runs.run_paths import episode_file
from agentrl.types import ExecutedAction
from tests.replay.episodes import episode, turn


def evaluated(folder: Path, *arguments: str) -> Path:
    assert agentrl(["eval", *arguments, "--policy=random", f"run.dir={folder}"]) == 0
    (run,) = folder.iterdir()
    return run


def test_deterministic_environment_replays_identically(tmp_path, capsys):
    run = evaluated(tmp_path, "sokoban", "--episodes=4")
    assert agentrl(["rehearse", str(run)]) == 0
    # Half of them are on unseen levels.
    assert "8 of 8 episodes were reproduced" in capsys.readouterr().out


def test_an_episode_with_several_actions_per_reply_replays_identically(tmp_path, capsys):
    # The board as an image, so that the screens between the actions are recorded too.
    board = ("env.kwargs.observation=image", "env.max_actions_per_reply=4")
    run = evaluated(tmp_path, "sokoban", "--episodes=3", "eval.rings=null", *board)
    played = replay.open(run)
    turns = [turn for s in played.episodes() for turn in played.episode(s.id).episode.turns]
    assert any(len(turn.chunk) > 1 for turn in turns)
    assert all(played.frame(id) is not None for t in turns for one in t.chunk for id in one.frames)
    assert agentrl(["rehearse", str(run)]) == 0
    assert "3 of 3 episodes were reproduced" in capsys.readouterr().out


def test_changed_environment_is_reported_with_turn_and_value(tmp_path, capsys):
    run = evaluated(tmp_path, "sokoban", "--episodes=3", "eval.rings=null")
    capsys.readouterr()
    assert agentrl(["rehearse", str(run), "env.kwargs.size=6", "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert all(line["turn"] is not None and line["was"] != line["now"] for line in lines)
    assert agentrl(["rehearse", str(run), "env.kwargs.size=6"]) == 1
    assert "0 of 3 episodes were reproduced" in capsys.readouterr().out


@pytest.mark.adb
def test_screens_of_a_phone_replay_identically(adb_server, tmp_path, capsys):
    arguments = ("env.kwargs.rounds=2", "devices.source=virtual:2", "rollout.launcher=local")
    run = evaluated(tmp_path, "number_game", "--episodes=2", *arguments)
    played = replay.open(run)
    frames = [played.episode(s.id).episode.turns[0].frames for s in played.episodes()]
    assert all(frames)
    assert agentrl(["rehearse", str(run)]) == 0
    assert agentrl(["rehearse", str(run), "env.kwargs.distractor=true"]) == 1
    assert "differs" in capsys.readouterr().out


def executed(reward, *, round=1, shown="Go on.", frame="a"):
    return ExecutedAction(
        action=1, reward=reward, info={"round": round}, shown=shown, frames=(frame,)
    )


@pytest.mark.parametrize(
    ("change", "turn_number", "what"),
    [
        ({"state_key": "t"}, 2, "state"), ({"shown": "<image>Stop."}, 2, "words"),
        ({"frames": ("b",)}, 2, "frames"), ({"action": [0.1, 0.5]}, 2, "action"),
        ({"env_reward": 0.0}, 2, "reward"), ({"info": {"round": 2}}, 2, "info['round']"),
        ({"chunk": (executed(1.0), executed(0.0))}, 2, "reward of action 2"),
        ({"chunk": (executed(1.0, round=2), executed(2.0))}, 2, "info['round'] after action 1"),
        ({"chunk": (executed(1.0), executed(2.0, shown="Stop."))}, 2, "words after action 2"),
        ({"chunk": (executed(1.0), executed(2.0, frame="b"))}, 2, "frames after action 2"),
        ({}, None, ""),
    ],
)  # fmt: skip
def test_the_first_difference_is_named(change, turn_number, what):
    chunk = (executed(1.0), executed(2.0))
    turns = (turn(frames=("a",)), turn(frames=("a",), chunk=chunk))
    before = episode("e", turns=turns)
    found = first_difference(before, episode("e", turns=(turns[0], replace(turns[1], **change))))
    assert (found.turn, found.what) == (turn_number, what)
    assert found.same == (turn_number is None)


def test_unrecorded_values_are_not_compared():
    before = episode("e", turns=(turn(shown="", frames=()),))
    assert first_difference(before, episode("e", turns=(turn(shown="new", frames=("a",)),))).same


def test_unreadable_episodes_are_not_reported_as_removed(tmp_path, capsys):
    run = evaluated(tmp_path, "sokoban", "--episodes=1", "eval.rings=null")
    (summary,) = replay.open(run).episodes()
    file = episode_file(run, summary.id)
    file.write_bytes(file.read_bytes()[:100])
    assert agentrl(["rehearse", str(run), "--episode", summary.id]) == 2
    error = capsys.readouterr().err
    assert "all matching episodes are damaged" in error
    assert "pruned" not in error


def test_nothing_to_rehearse_is_an_error(tmp_path, capsys):
    run = evaluated(tmp_path, "sokoban", "--episodes=1", "eval.rings=null")
    assert agentrl(["rehearse", str(run), "--split", "demo"]) == 2
    assert "no valid episodes match" in capsys.readouterr().err
