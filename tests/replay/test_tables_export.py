"""Export as tables and data sets."""

import json
import resource
import signal
import tracemalloc
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.replay import tables_export
from agentrl.replay.recorder import Recorder
from agentrl.replay.tables_export import to_arrow, to_dataset, write
from agentrl.runs.annotations import star, write_note
from agentrl.types import ExecutedAction, Outcome, ScoredEpisode
from tests.replay import packs
from tests.replay.episodes import episode, scored, screen, turn
from tests.viewer import runs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return runs.run(tmp_path / "run")


def test_episodes_are_rows_with_metrics_rewards_stars_and_notes(run):
    opened = replay.open(run)
    marked = "train-00001-g000-m00"
    star(opened.path, opened.find(marked), starred=True)
    write_note(opened.path, opened.find(marked), "too slow", seen="")
    frame = to_arrow(opened).to_pandas()
    assert list(frame[frame["starred"]]["id"]) == [marked]
    assert dict(frame[frame["note"] != ""][["id", "note"]].values) == {marked: "too slow"}
    assert len(frame) == 17
    assert set(frame["outcome"]) == {"terminated", "device_error"}
    trained = frame[frame["label"] == "train"]
    assert trained["reward/outcome"].dropna().isin([-1.0, 1.0]).all()
    valid = frame[frame["cause"].isna()]
    assert (valid["metrics/accuracy"] == valid["success"].astype(float)).all()


def test_turns_have_what_offline_learning_needs(run):
    table = to_arrow(replay.open(run), "turns", replay.Filter(label="train", step=1)).to_pylist()
    assert len(table) == 12
    first = table[:3]
    assert [row["reward"] for row in first] == [0.0, 0.0, 1.0]
    assert [row["terminated"] for row in first] == [False, False, True]
    assert {row["advantage"] for row in first} == {0.5}
    assert json.loads(first[0]["action"]) == [0.25, 0.5]
    assert first[0]["shown"] == "<image>Round 0 of 3."
    assert first[0]["action_rewards"] == []


def test_turns_with_several_actions_have_the_reward_of_each(tmp_path):
    chunk = tuple(ExecutedAction(action=n, reward=n / 2, info={}, shown="") for n in (1, 2))
    played = scored("e")
    turns = (replace(played.episode.turns[0], action=[1, 2], chunk=chunk),)
    with Recorder(tmp_path) as recorder:
        changed = replace(played, episode=replace(played.episode, turns=turns))
        recorder.episode(changed, split="train", step=1)
    (row,) = to_arrow(replay.open(tmp_path), "turns").to_pylist()
    assert (row["action"], row["action_rewards"]) == ("[1, 2]", [0.5, 1.0])


def test_conversations_have_their_images(run):
    opened = replay.open(run)
    made = to_dataset(opened, where=replay.Filter(success=True, split="eval"))
    assert len(made) == 4
    row = made[0]
    said = [message["content"] for message in row["messages"]]
    assert [message["role"] for message in row["messages"]] == [
        "system",
        *["user", "assistant"] * 3,
    ]
    assert sum(words.count("<image>") for words in said) == len(row["images"]) == 3
    first = opened.episode(row["id"]).episode.turns[0].frames[0]
    assert np.array_equal(np.asarray(row["images"][0]), opened.frame(first))


def test_rows_with_a_missing_frame_are_skipped(run):
    opened = replay.open(run)
    lost = opened.episode("after-sampled-00002-g001-m00").episode.turns[1].frames[0]
    before = len(to_dataset(opened, where=replay.Filter(label="after-sampled")))
    packs.lose(run, lost)
    assert len(to_dataset(opened, where=replay.Filter(label="after-sampled"))) == before - 1


def test_metrics_become_columns_even_if_the_first_episode_has_none(tmp_path):
    won = turn(info={"metrics": {"success": 1.0}})
    with Recorder(tmp_path) as recorder:
        recorder.episode(
            scored("a", turns=0, outcome=Outcome.ENV_ERROR, error="gone"), split="train", step=1
        )
        recorder.episode(
            ScoredEpisode(episode=episode("b", (won,)), components={}, rewards=(1.0,)),
            split="train", step=1,
        )  # fmt: skip
    frame = to_arrow(replay.open(tmp_path)).to_pandas().set_index("id")
    assert frame["metrics/success"]["b"] == 1.0
    assert np.isnan(frame["metrics/success"]["a"])


def test_lone_surrogates_are_escaped(tmp_path):
    with Recorder(tmp_path / "run") as recorder:
        half = turn(reply="half \ud800", frames=(recorder.frame(screen(1)),))
        made = ScoredEpisode(episode=episode("a", (half,)), components={}, rewards=(1.0,))
        recorder.episode(made, split="train", step=1)
    run = replay.open(tmp_path / "run")
    assert to_arrow(run, "turns").to_pylist()[0]["reply"] == "half \\ud800"
    assert to_dataset(run)[0]["messages"][-1]["content"] == "half \\ud800"


def test_numbers_too_large_for_a_column_are_reported(tmp_path, capsys):
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("a", seed=1 << 80), split="train", step=1)
    assert agentrl(["export", str(tmp_path), str(tmp_path / "out.csv"), "--as", "turns"]) == 2
    assert ".jsonl, which has no such limits" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.jsonl", "demos"])
def test_a_full_disk_is_reported_and_leaves_no_partial_file(run, tmp_path, capsys, name):
    folder = tmp_path / "out"
    folder.mkdir()
    whole = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, whole[1]))
    try:
        status = agentrl(["export", str(run), str(folder / name)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, whole)
        signal.signal(signal.SIGXFSZ, before)
    assert status == 2
    assert "cannot be written" in capsys.readouterr().err
    assert not list(folder.iterdir())


@pytest.mark.parametrize("kind", ["episodes", "turns", "conversations"])
@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_files_have_all_rows(run, tmp_path, capsys, kind, suffix):
    out = tmp_path / f"out{suffix}"
    assert agentrl(["export", str(run), str(out), "--as", kind, "--held-out"]) == 0
    count = {"episodes": 17, "turns": 48, "conversations": 16}[kind]
    assert f"{count} rows" in capsys.readouterr().out
    if suffix == ".parquet":
        assert pyarrow.parquet.read_table(out).num_rows == count
    elif suffix == ".csv":
        assert pyarrow.csv.read_csv(out, parse_options=_LINES).num_rows == count
    else:
        assert len([json.loads(line) for line in out.read_text().splitlines()]) == count


_LINES = pyarrow.csv.ParseOptions(newlines_in_values=True)


def test_a_folder_is_a_data_set_that_loads(run, tmp_path):
    demos = str(tmp_path / "demos")
    assert agentrl(["export", str(run), demos, "--held-out", "--success", "--min-reward", "1"]) == 0
    made = datasets.load_from_disk(demos)
    assert len(made) == 8
    assert {"eval", "train"} == set(made["split"])
    assert made.features["images"].feature == datasets.Image()


@pytest.mark.parametrize("kind", ["conversations", "turns"])
def test_held_out_episodes_are_exported_only_on_request(run, tmp_path, capsys, kind):
    def exported(name: str, *more: str) -> set[str]:
        assert agentrl(["export", str(run), str(tmp_path / name), "--as", kind, *more]) == 0
        return set(datasets.load_from_disk(str(tmp_path / name))["split"])

    assert exported("plain") == {"train"}
    output = capsys.readouterr().out
    assert "skipped: 8 evaluation episodes (--held-out includes them)" in output
    assert " train)" in output  # the labels of the written rows
    assert exported("all", "--held-out") == {"train", "eval"}
    assert exported("held", "--split", "eval") == {"eval"}


def test_a_data_set_is_written_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(tables_export, "_SHARD_BYTES", 4 << 20)
    with Recorder(tmp_path / "run") as recorder:
        for number in range(40):
            noise = np.random.default_rng(number).integers(0, 256, (512, 512, 3), dtype=np.uint8)
            shown = turn(frames=(recorder.frame(noise),))
            made = ScoredEpisode(
                episode=episode(f"e{number}", (shown,)), components={}, rewards=(1.0,)
            )
            recorder.episode(made, split="train", step=1)
    tracemalloc.start()
    write(replay.open(tmp_path / "run"), "conversations", tmp_path / "demos")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = sum(file.stat().st_size for file in (tmp_path / "demos").rglob("*"))
    assert whole > 40 * 512 * 512 * 3
    assert len(datasets.load_from_disk(str(tmp_path / "demos"))) == 40
    assert peak < 0.7 * whole


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "demos"])
def test_the_folder_of_a_table_is_created(run, tmp_path, name):
    out = tmp_path / "new" / "folder" / name
    assert agentrl(["export", str(run), str(out)]) == 0
    images = ["out-images"] if name == "out.jsonl" else []
    assert sorted(entry.name for entry in out.parent.iterdir()) == sorted([name, *images])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["out.xlsx"], ".parquet, .csv or .jsonl"),
        (["out.csv", "--as", "talks"], "--as talks: must be one of episodes, turns, conversations, "
         "minari"),
        (["config.yaml/out.csv"], "cannot be written"),
        (["config.yaml/demos"], "cannot be written"),
        (["episodes"], "exists"), (["new", "--as", "episodes"], "use to_arrow"),
        (["new", "--min-reward", "99"], "no conversations to write match (void and pruned"),
        (["out.csv", "--split", "test"], "train, eval, demo"),
        (["out.csv", "--min-reward", "99"], "no conversations to write match (void and pruned"),
        (["out.parquet", "--as", "turns", "--step", "99"], "no turns to write match"),
        (["out.jsonl", "--as", "episodes", "--step", "99"], "no episodes to write match"),
        (["out.jsonl", "--as", "episodes", "--label", "odd"], "no episode has this label. Labels"),
    ],
)  # fmt: skip
def test_exports_that_cannot_be_written_are_reported(run, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(run)
    before = sorted(run.iterdir())
    assert agentrl(["export", str(run), *arguments]) == 2
    assert words in capsys.readouterr().err
    assert sorted(run.iterdir()) == before
