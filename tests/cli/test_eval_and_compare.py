"""`agentrl eval CONFIG --policy PLAYER` on phones."""

import json
from pathlib import Path

import pytest

from agentrl import replay
from agentrl.cli import run

pytestmark = pytest.mark.adb


@pytest.mark.parametrize(
    ("player", "launcher"), [("random", "local"), ("expert", "ray")], ids=["random", "expert"]
)
def test_scripted_player_is_evaluated_on_phones(
    adb_server, tmp_path, capsys, player, launcher
):  # fmt: skip
    arguments = ["eval", "number_game", "--policy", player, "--episodes=3", "--json"]
    settings = ["devices.source=virtual:3", "env.kwargs.rounds=2", f"run.dir={tmp_path}"]
    assert run([*arguments, *settings, f"rollout.launcher={launcher}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["episodes"], found["void"]) == (3, 0)
    assert Path(found["run"]).name.startswith(f"eval-{player}-number_game-")
    games = replay.open(found["run"]).episodes()
    assert len({game.seed for game in games}) == 3
    if player == "expert":
        assert (found["accuracy"], found["score"], found["turns"]) == (1.0, 120.0, 3.0)
    else:
        assert 0 <= found["accuracy"] < 1
