"""Every example runs as a user would run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_one_game_is_played_on_a_virtual_phone(adb_server, tmp_path):
    said = run(tmp_path, EXAMPLES / "play_one_game.py")
    assert "10 right, 0 wrong" in said


@pytest.mark.slow
def test_a_mini_game_of_wechat_is_played_by_sight(adb_server, tmp_path):
    pytest.importorskip("rapidocr")
    first, *steps = run(tmp_path, EXAMPLES / "wechat_mini_game.py").splitlines()
    assert first == "score 3392"
    assert "reward +138, {'score': 3530}" in steps
    assert "'by': 'agent'" in steps[-1], "the circle closes the game"


@pytest.mark.slow
def test_minimal_grpo_learns_in_150_lines(tmp_path):
    script = EXAMPLES / "minimal_grpo.py"
    assert len(script.read_text().splitlines()) <= 150
    lines = run(tmp_path, script, 20).splitlines()
    first, last = (float(line.split("success")[1].split("%")[0]) for line in (lines[0], lines[-1]))
    assert first < 20
    assert last > 80


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_reward_rises_on_a_custom_environment(tmp_path):
    run(tmp_path, EXAMPLES / "own_environment.py")
    (folder,) = (tmp_path / "runs").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    before, after = (summary[when]["sampled"]["right"] for when in ("before", "after"))
    assert before < 0.65  # the demonstrations are random
    assert after > before + 0.25


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_model_learns_to_use_a_tool_before_it_answers(tmp_path):
    run(tmp_path, EXAMPLES / "ask_with_tools.py")
    (folder,) = (tmp_path / "runs").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    before, after = (summary[when]["sampled"]["looked"] for when in ("before", "after"))
    assert before < 0.6  # the demonstrations mostly look elsewhere
    assert after > before + 0.2
    assert summary["expert"]["right"] == 1.0
