"""Scoring recorded episodes again."""

import json
from pathlib import Path

import pytest

from agentrl import config as configuration
from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.config import RewardConfig
from agentrl.data.reward_inputs import CHATML
from agentrl.replay.recorder import Recorder
from agentrl.rollout.rescoring import (
    RescoredEpisode,
    chat_format_of,
    compare_scores,
    rescore,
)
from agentrl.types import Outcome
from tests.replay.episodes import scored


def one(was: float, now: float, group: str = "g") -> RescoredEpisode:
    return RescoredEpisode(id="e", group=group, was=was, now=now, components={})


def test_scores_with_the_same_order_swap_no_pair():
    found = compare_scores([one(0, 1), one(1, 2), one(3, 30)])
    assert (found.episodes, found.was, found.now) == (3, pytest.approx(4 / 3), 11)
    assert (found.correlation, found.swapped) == (pytest.approx(1), 0)
    assert found.low <= found.now - found.was <= found.high


def test_swapped_siblings_are_counted_within_their_group():
    found = compare_scores(
        [one(0, 2, "a"), one(1, 1, "a"), one(2, 0, "b"), one(2, 5, "b"), one(3, 6, "b")]
    )
    assert found.swapped == pytest.approx(1 / 3)  # of (a, a) and two of three pairs of b
    assert compare_scores([one(1, 0), one(1, 2)]).swapped is None
    assert compare_scores([one(1, 0), one(1, 2)]).correlation is None
    with pytest.raises(ValueError, match="no episode"):
        compare_scores([])


@pytest.fixture
def run(tmp_path):
    with Recorder(tmp_path / "run") as recorder:
        for number in range(3):
            recorder.episode(scored(f"e{number}", turns=number + 1), split="train", step=1)
        recorder.episode(scored("void", outcome=Outcome.TIMEOUT), split="train", step=1)
    return tmp_path / "run"


def test_the_chat_format_is_that_of_the_runs_model(tmp_path, tiny_vlm):
    names = f"{Path(__file__).parents[2]}/examples/extend/chat_format.py:Names"
    settings = [f"model.path={tiny_vlm}", "rollout.launcher=local"]
    messages = [
        {"role": "system", "content": "Be quick."},
        {"role": "user", "content": "<image>Up?"},
    ]
    for chat, prompt in (
        ("auto", CHATML.prompt(messages)),
        (names, "Be quick.\n\nUSER: <image>Up?\nASSISTANT:"),
    ):
        job = configuration.load("frozen_lake", [*settings, f"model.chat={chat}"])
        (tmp_path / "config.yaml").write_text(configuration.to_yaml(job.to_dict()))
        assert chat_format_of(tmp_path).prompt(messages) == prompt
    (tmp_path / "config.yaml").unlink()
    assert chat_format_of(tmp_path) is CHATML


def test_another_function_scores_all_but_void_episodes(run, tmp_path):
    (tmp_path / "short.py").write_text("def score(episode):\n    return -len(episode.turns)\n")
    opened = replay.open(run)
    recorded = [opened.episode(summary.id) for summary in opened.episodes()]
    found = rescore(recorded, [RewardConfig(function=f"{tmp_path}/short.py:score", weight=2.0)])
    assert [(r.id, r.was, r.now) for r in found] == [("e0", 0, -2), ("e1", 1, -4), ("e2", 3, -6)]
    assert [r.components for r in found] == [{"score": -1}, {"score": -2}, {"score": -3}]


def test_the_command_takes_a_file_with_compute_score(run, tmp_path, capsys):
    (tmp_path / "flat.py").write_text(
        "def compute_score(reward_inputs):\n"
        "    return [{'overall': 7.0, 'found': 1} for _ in reward_inputs]\n"
    )
    arguments = ["rescore", str(run), "--reward", str(tmp_path / "flat.py")]
    assert agentrl(arguments) == 0
    assert "3 episodes: mean 1.333 -> 7" in capsys.readouterr().out
    assert agentrl([*arguments, "--weight", "2", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["now"] for line in lines] == [14, 14, 14]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--reward", "nowhere.py"], "nowhere.py"),
        (["--reward", "agentrl.rewards.form:efect"], "did you mean"),
        (["--reward", "agentrl.rewards.form:effect", "--weight", "1", "--weight", "2"], "2 times"),
        (
            ["--reward", "agentrl.rewards.sokoban:success"],
            "3 of 3 episodes (the first is e0) were recorded without 'success' in their "
            "environment's info; select others (--split, --label, --step), or use a reward that "
            "does not need it",
        ),
        (
            ["--reward", "agentrl.rewards.matching:exact"],
            "were recorded without 'ground_truth'",
        ),
    ],
)
def test_reward_that_cannot_score_is_an_error(run, capsys, arguments, words):
    assert agentrl(["rescore", str(run), *arguments]) != 0
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said", "words"),
    [
        ("right", "one['ground_truth'] in one['response']", "without 'ground_truth'"),
        ("broken", "1 / 0", "e0: reward compute_score: ZeroDivisionError"),
    ],
)
def test_missing_ground_truth_is_distinguished_from_a_failing_function(
    run, tmp_path, capsys, name, said, words
):
    lines = ["def compute_score(reward_inputs):", f"    return [{said} for one in reward_inputs]"]
    (tmp_path / f"{name}.py").write_text("\n".join(lines))
    assert agentrl(["rescore", str(run), "--reward", str(tmp_path / f"{name}.py")]) != 0
    err = capsys.readouterr().err
    assert words in err
    assert ("without 'ground_truth'" in err) == ("ground_truth" in said)
