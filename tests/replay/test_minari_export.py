"""Export to Minari, read back with Minari itself."""

import json
from pathlib import Path
from typing import Any

import cv2
import minari
import numpy as np
import pytest
from gymnasium import spaces

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.errors import ConfigError
from agentrl.replay import minari_export
from agentrl.replay.recorder import Recorder
from agentrl.types import ExecutedAction, Outcome, ScoredEpisode
from tests.replay import packs
from tests.replay.episodes import episode, screen, turn
from tests.viewer import runs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return runs.run(tmp_path / "run")


def record(folder: Path, name: str, *turns: dict[str, Any], **changes: Any) -> None:
    """An episode whose reward in each turn is the turn's number."""
    made = tuple(turn(**{"frames": (), "shown": "words", **one}) for one in turns)
    rewards = tuple(float(number) for number in range(len(made)))
    with Recorder(folder, writer=name) as recorder:
        scored = ScoredEpisode(
            episode=episode(name, turns=made, **changes), components={}, rewards=rewards
        )
        recorder.episode(scored, split="train", step=1)


def opened(path: Path) -> minari.MinariDataset:
    return minari.MinariDataset(path / "data")


def test_minari_loads_an_exported_run(run, tmp_path, monkeypatch, capsys):
    out = tmp_path / "sets" / "cards-v0"
    assert agentrl(["export", str(run), str(out), "--as", "minari", "--split", "train"]) == 0
    assert "8 episodes" in capsys.readouterr().out
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(out.parent))
    found = minari.load_dataset("cards-v0")
    assert (found.total_episodes, found.total_steps) == (8, 24)
    assert found.observation_space["image"] == spaces.Box(0, 255, (320, 180, 3), np.uint8)
    assert found.action_space == spaces.Box(-np.inf, np.inf, (2,), np.float64)
    recorded = replay.open(run)
    summaries = recorded.episodes(replay.Filter(split="train"))
    valid = [summary for summary in summaries if not summary.outcome.void]
    for one, summary in zip(found.iterate_episodes(), valid, strict=True):
        played = recorded.episode(summary.id).episode
        frames = [*(t.frames[0] for t in played.turns), *played.final_frames]
        for number, id in enumerate(frames):
            seen = {k: one.observations[k][number] for k in ("image", "text")}
            assert np.array_equal(seen["image"], recorded.frame(id))
            assert found.observation_space.contains(seen)
        assert list(one.observations["text"]) == [*(f"Round {n} of 3." for n in range(3)), "Over."]
        assert one.actions.tolist() == [[0.25, 0.5]] * 3
        assert one.rewards.tolist() == list(summary.rewards)
        assert one.terminations.tolist() == [False, False, True]
        assert not one.truncations.any()
        assert one.infos["reply"].tolist() == ["", *(t.reply for t in played.turns)]
        assert one.infos["env_reward"].tolist() == [0.0, *(t.env_reward for t in played.turns)]
    (about,) = found.storage.get_episode_metadata([0])
    assert (about["episode"], about["seed"]) == (valid[0].id, valid[0].seed)


def test_a_relative_folder_works(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["--as", "minari", "--split", "eval", "--width", "36"]
    assert agentrl(["export", "run", "sets/cards-v0", *arguments]) == 0
    assert "wrote sets/cards-v0: 8 episodes" in capsys.readouterr().out
    assert opened(tmp_path / "sets" / "cards-v0").total_episodes == 8
    assert [path.name for path in (tmp_path / "sets").iterdir()] == ["cards-v0"]


def test_text_observations_and_integer_actions_are_exported(tmp_path):
    turns = [{"action": number, "shown": f"Frost über Tür {number}"} for number in (3, 1, 2)]
    record(tmp_path / "run", "a", *turns, outcome=Outcome.TRUNCATED)
    out = tmp_path / "words-v1"
    minari_export.write(replay.open(tmp_path / "run"), out)
    (one,) = opened(out).iterate_episodes()
    assert opened(out).action_space == spaces.Discrete(3, start=1)
    assert one.actions.tolist() == [3, 1, 2]
    assert list(one.observations) == [f"Frost über Tür {n}" for n in (3, 1, 2)] + ["Over."]
    assert all(map(opened(out).observation_space.contains, one.observations))
    assert one.truncations.tolist() == [False, False, True]
    assert one.rewards.tolist() == [0.0, 1.0, 2.0]


def test_replies_can_be_the_actions(tmp_path):
    turns = [{"reply": "hm", "action": None, "parse_error": "no"}, {"reply": "tap <b>\udcff"}]
    record(tmp_path / "run", "a", *turns)
    out = tmp_path / "replies-v0"
    minari_export.write(replay.open(tmp_path / "run"), out, replies=True)
    (one,) = opened(out).iterate_episodes()
    assert list(one.actions) == ["hm", "tap <b>\\udcff"]
    assert all(map(opened(out).action_space.contains, one.actions))


def test_images_can_be_scaled(run, tmp_path):
    out = tmp_path / "small-v0"
    arguments = ["--as", "minari", "--width", "45", "--label", "after-sampled"]
    assert agentrl(["export", str(run), str(out), *arguments, "--held-out"]) == 0
    found = opened(out)
    assert found.observation_space["image"].shape == (80, 45, 3)
    recorded = replay.open(run)
    (first, *_) = recorded.episodes(replay.Filter(label="after-sampled"))
    whole = recorded.frame(recorded.episode(first.id).episode.turns[0].frames[0])
    small = cv2.resize(whole, (45, 80), interpolation=cv2.INTER_AREA)
    assert np.array_equal(next(found.iterate_episodes()).observations["image"][0], small)


def test_progress_is_reported_after_each_episode(run, tmp_path):
    reported: list[tuple[int, int]] = []
    where = replay.Filter(label="train", step=1)
    minari_export.write(
        replay.open(run),
        tmp_path / "a-v0",
        where,
        width=9,
        progress=lambda *far: reported.append(far),
    )
    assert reported == [(number, 4) for number in (1, 2, 3, 4)]


def test_progress_is_shown_only_on_a_terminal(run, tmp_path, monkeypatch, capsys):
    arguments = ["--as", "minari", "--width", "9"]
    assert agentrl(["export", str(run), str(tmp_path / "a-v0"), *arguments, "--held-out"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert agentrl(["export", str(run), str(tmp_path / "b-v0"), *arguments, "--held-out"]) == 0
    assert "16/16" in capsys.readouterr().err


def test_episodes_that_do_not_fit_are_skipped_and_counted(tmp_path, capsys):
    run = tmp_path / "run"
    record(run, "good", {"action": 1})
    record(run, "mute", {"action": 1}, {"action": None, "parse_error": "no"})
    record(run, "empty")
    record(run, "void", {"action": 1}, outcome=Outcome.TIMEOUT, error="late")
    one = ExecutedAction(action=1, reward=0.0, info={}, shown="")
    record(run, "several", {"action": [1, 1], "chunk": (one, one)})
    out = tmp_path / "some-v0"
    assert agentrl(["export", str(run), str(out), "--as", "minari", "--held-out"]) == 0
    said = capsys.readouterr().out
    assert "skipped: 1 episode with a reply that could not be parsed (--replies" in said
    assert "skipped: 1 episode without a turn" in said
    assert "skipped: 1 episode with several actions per reply (--replies" in said
    assert "1 episode" in said
    assert opened(out).total_episodes == 1


def test_episodes_with_a_missing_frame_are_skipped(run, tmp_path):
    recorded = replay.open(run)
    lost = recorded.episode("train-00001-g000-m01").episode.turns[1].frames[0]
    packs.lose(run, lost)
    count, left_out = minari_export.write(
        recorded, tmp_path / "lost-v0", replay.Filter(label="train", step=1)
    )
    assert count == 3
    assert [number for why, number in left_out.items() if "missing frames" in why] == [1]


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([{"action": 1}, {"action": [0.5]}], "do not fit into a Minari data set"),
        ([{"action": True}], "do not fit into a Minari data set"),
        ([{"action": 1 << 64}], "do not fit into a Minari data set"),
        ([{"action": [0.5]}, {"action": [0.5, 0.5]}], "pass --replies to use the replies"),
        ([{"action": {"type": "tap"}}], "'type': 'tap'"),
        (
            [{"action": None}],
            "no episode to write; skipped: 1 with a reply that could not be parsed",
        ),
        ([{"shown": "<image>", "frames": ()}], "1 with missing frames"),
        ([{"frames": ("0" * 32, "1" * 32)}], "several images in one turn"),
        ([], "1 without a turn"),
    ],
)
def test_runs_that_do_not_fit_are_refused_and_nothing_is_written(turns, message, tmp_path):
    record(tmp_path / "run", "a", *turns)
    with pytest.raises(ConfigError, match=message):
        minari_export.write(replay.open(tmp_path / "run"), tmp_path / "out-v0")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_frames_of_different_sizes_are_refused(tmp_path):
    for name, width in (("a", 36), ("b", 40)):
        with Recorder(tmp_path / "run", writer="frames") as recorder:
            shown = (recorder.frame(screen(1, width)),)
        record(tmp_path / "run", name, {"frames": shown}, final_frames=shown)
    with pytest.raises(ConfigError, match=r"must have the same size.* (36x64|40x64) \(1\)"):
        minari_export.write(replay.open(tmp_path / "run"), tmp_path / "out-v0")
    record(tmp_path / "run", "words", {})
    with pytest.raises(ConfigError, match="some episodes have images and others do not"):
        minari_export.write(replay.open(tmp_path / "run"), tmp_path / "out-v0")


def test_an_unusable_folder_is_refused(run, tmp_path, capsys):
    (tmp_path / "there-v0").mkdir()
    for name, said in (("there-v0", "exists"), ("unnamed", "for example unnamed-v0")):
        assert agentrl(["export", str(run), str(tmp_path / name), "--as", "minari"]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert agentrl(["export", str(run), str(tmp_path / "file" / "x-v0"), "--as", "minari"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_minari_options_need_as_minari(run, tmp_path, capsys):
    assert agentrl(["export", str(run), str(tmp_path / "x.csv"), "--replies"]) == 2
    assert "require --as minari" in capsys.readouterr().err


def test_episodes_without_a_score_per_turn_are_skipped_and_counted(run, tmp_path, capsys):
    scores = run / "episodes" / "scores-main.jsonl"
    lines = [json.loads(line) for line in scores.read_text().splitlines()]
    lines[0]["rewards"] = lines[0]["rewards"] * 2
    scores.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = str(tmp_path / "cards-v0")
    assert agentrl(["export", str(run), out, "--as", "minari", "--held-out"]) == 0

    assert "1 episode without a score for each turn" in " ".join(capsys.readouterr().out.split())
