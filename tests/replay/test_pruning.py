"""Pruning: what is removed, what is kept, and that running recorders and readers lose nothing."""

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError, EpisodeRemoved
from agentrl.files import lock_folder
from agentrl.replay import pruning, tables_export
from agentrl.replay.frames import frame_store
from agentrl.replay.frames.banded_png import cut_into_bands
from agentrl.replay.frames.frame_store import FrameStore
from agentrl.replay.pruning import GB, Pruned, Pruner, grace_s
from agentrl.replay.recorder import Recorder
from agentrl.runs.run_paths import episode_file, pack_file, removals_file
from agentrl.types import ScoredEpisode
from tests.replay import packs
from tests.replay.aging import age
from tests.replay.episodes import episode, screen, turn

GRACE_S = 1200.0
EVERYTHING = 1e18


def record(
    recorder: Recorder, name: str, screens: Sequence[int], *, split: str = "train", step: int = 1
) -> None:
    """Record an episode that shows these screens, one per turn."""
    turns = tuple(turn(frames=(recorder.frame(screen(number)),)) for number in screens)
    scored = ScoredEpisode(
        episode=episode(name, turns=turns), components={}, rewards=(1.0,) * len(turns)
    )
    recorder.episode(scored, split=split, step=step)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four training episodes, a demonstration and an evaluation; neighbors share a screen."""
    folder = tmp_path / "run"
    with Recorder(folder) as recorder:
        record(recorder, "demo", (90, 1), split="demo", step=0)
        for number in range(4):
            record(recorder, f"train{number}", (number, number + 1), step=number)
        record(recorder, "eval", (91, 2), split="eval", step=4)
    age(folder)
    return folder


def pruned(run: Path, keep_bytes: float, grace: float = GRACE_S, dry_run: bool = False) -> Pruned:
    return Pruner(run).prune(keep_bytes, grace, dry_run=dry_run)


def room(run: Path) -> int:
    """Bytes of the run, measured on its files."""
    return packs.stored_bytes(run) + sum(file.stat().st_size for file in run.rglob("*.json.gz"))


def contents(run: Path) -> dict[str, int]:
    files = {
        str(file.relative_to(run)): file.stat().st_size
        for file in (run / "episodes").rglob("*")
        if file.is_file() and file.name != ".lock"
    }
    return files | dict.fromkeys(packs.frame_ids(run), 1)


def ids(pruned: Pruned) -> list[str]:
    return [held.id for held in pruned.episodes]


def check_whole(run: Path) -> set[str]:
    """Check that each episode is complete or marked as removed; return the removed ids."""
    opened, removed = replay.open(run), set()
    for summary in opened.episodes():
        try:
            shown = opened.episode(summary.id).episode
        except EpisodeRemoved:
            removed.add(summary.id)
            continue
        for id in (id for played in shown.turns for id in played.frames):
            assert opened.frame(id) is not None, (summary.id, id)
    return removed


def test_nothing_is_removed_below_the_limit(run):
    before = contents(run)
    found = pruned(run, room(run))
    assert (found.episodes, found.frames, found.bytes) == ((), 0, 0)
    assert found.kept == 6
    assert found.kept_bytes == room(run)
    assert contents(run) == before


def test_the_oldest_training_episodes_are_removed_with_their_own_frames(run):
    before = room(run)
    found = pruned(run, before - 1)
    assert ids(found) == ["train0"]
    assert found.frames == 1  # the demonstration shows screen 1, too
    assert room(run) == before - found.bytes == found.kept_bytes
    assert check_whole(run) == {"train0"}
    assert not episode_file(run, "train0").exists()


def test_episodes_of_a_run_that_has_just_ended_are_not_removed_yet_and_it_says_so(tmp_path, capsys):
    folder = tmp_path / "run"
    with Recorder(folder) as recorder:
        record(recorder, "train0", (0, 1))
        record(recorder, "eval", (91, 2), split="eval")
    assert pruned(folder, 1.0).recent == 1
    assert pruned(folder, EVERYTHING).recent == 0
    assert agentrl(["prune", str(folder), "--keep-gb", "0"]) == 0
    assert "over the limit: 1 training episode recorded or copied within" in capsys.readouterr().out
    assert agentrl(["prune", str(folder), "--keep-gb", "1"]) == 0
    assert "nothing to remove, since the run's episodes and frames" in capsys.readouterr().out


def test_evaluations_and_demonstrations_are_never_removed(run):
    found = pruned(run, 1.0)
    assert ids(found) == ["train0", "train1", "train2", "train3"]
    assert found.kept == 2
    assert found.is_short
    assert check_whole(run) == set(ids(found))
    assert found.kept_bytes == room(run)
    assert not pruned(run, EVERYTHING).is_short


def test_removed_episodes_stay_in_the_index_with_their_scores(run):
    before = replay.open(run).episodes()
    looking = replay.open(run)
    looking.episodes()
    version = looking.version()
    pruned(run, 1.0)
    for opened in (replay.open(run), looking):
        after = opened.episodes()
        assert [(s.id, s.reward, s.rewards) for s in after] == [
            (s.id, s.reward, s.rewards) for s in before
        ]
        assert [s.id for s in after if s.removed] == ["train0", "train1", "train2", "train3"]
    assert looking.version() > version
    with pytest.raises(EpisodeRemoved, match="train1: this episode was removed"):
        looking.episode("train1")


def test_recently_touched_frames_are_kept_for_now(run):
    shown_again = cut_into_bands(screen(0)).id
    packs.touch(run, shown_again, time.time())
    found = pruned(run, 1.0)
    assert found.waiting == 1
    assert shown_again in packs.frame_ids(run)
    packs.touch(run, shown_again, 0.0)
    pruner = Pruner(run)
    assert pruner.prune(EVERYTHING, GRACE_S).frames == 1
    assert shown_again not in packs.frame_ids(run)


def test_a_dry_run_reports_the_same_and_changes_nothing(run):
    before = contents(run)
    planned = pruned(run, 1.0, dry_run=True)
    assert contents(run) == before
    done = pruned(run, 1.0)
    assert (ids(planned), planned.frames, planned.bytes) == (ids(done), done.frames, done.bytes)


def test_bands_shared_with_kept_frames_stay_and_count(tmp_path):
    """Screens that share all bands but one with the previous screen."""
    run, image = tmp_path / "run", np.random.default_rng(0).integers(0, 256, (640, 8, 3), np.uint8)
    with Recorder(run) as recorder:
        for number in range(10):
            image[64 * number] += 1
            turns = (turn(frames=(recorder.frame(image),)),)
            scored = ScoredEpisode(
                episode=episode(f"e{number}", turns=turns), components={}, rewards=(1.0,)
            )
            recorder.episode(scored, split="train", step=number)
    age(run)
    before, pruner = room(run), Pruner(run)
    limit = before - packs.stored_bytes(run) // 4
    found = pruner.prune(limit, GRACE_S)
    assert 3 <= len(found.episodes) < 9
    assert found.frames == len(found.episodes)
    assert found.kept_bytes == room(run) == before - found.bytes <= limit
    assert check_whole(run) == set(ids(found))
    assert Pruner(run).prune(limit, GRACE_S).kept_bytes == room(run)


def test_frames_of_several_writers_are_removed_together(tmp_path):
    run = tmp_path / "run"
    for writer in ("one", "other"):
        with Recorder(run, writer=writer) as recorder:
            record(recorder, f"by-{writer}", (1, 2, int(writer == "one") + 3))
    age(run)
    assert pruned(run, EVERYTHING).kept_bytes == room(run)
    found = pruned(run, room(run) - 1)
    assert (ids(found), found.frames) == (["by-one"], 1)
    assert check_whole(run) == {"by-one"}
    assert pruned(run, 0.0).frames == 3
    assert packs.frame_ids(run) == []


def test_the_file_shrinks_after_pruning(tmp_path):
    run, pixels = tmp_path / "run", np.random.default_rng(0)
    with Recorder(run) as recorder:
        for number in range(20):
            shown = recorder.frame(pixels.integers(0, 256, (64, 400, 3), np.uint8))
            scored = ScoredEpisode(
                episode=episode(f"e{number}", turns=(turn(frames=(shown,)),)),
                components={}, rewards=(1.0,),
            )  # fmt: skip
            recorder.episode(scored, split="train", step=number)
    age(run)
    before = pack_file(run, "main").stat().st_size
    pruned(run, room(run) / 4)
    assert pack_file(run, "main").stat().st_size < 0.4 * before


def test_one_pruner_continues_with_newly_recorded_episodes(run):
    pruner = Pruner(run)
    limit = pruner.prune(EVERYTHING, GRACE_S).kept_bytes
    with Recorder(run, writer="later") as recorder:
        record(recorder, "later", (50, 51), step=9)
    found = pruner.prune(limit, GRACE_S)
    assert ids(found) == ["train0", "train1"]
    assert found.kept_bytes == room(run) <= limit
    assert check_whole(run) == {"train0", "train1"}


def test_two_pruners_see_each_others_removals(run):
    one, other = Pruner(run), Pruner(run)
    limit = one.prune(EVERYTHING, GRACE_S).kept_bytes - 1
    assert ids(other.prune(limit, GRACE_S)) == ["train0"]
    assert ids(one.prune(limit, GRACE_S)) == []
    with lock_folder(run / "episodes"), pytest.raises(ConfigError, match="another process"):
        one.prune(limit, GRACE_S)


def test_frames_of_unfinished_episodes_are_removed_too(run):
    with Recorder(run, writer="killed") as recorder:
        lost = recorder.frame(screen(70))
    assert pruned(run, EVERYTHING).waiting == 1
    packs.touch(run, lost, 0.0)
    assert pruned(run, EVERYTHING).frames == 1
    assert check_whole(run) == set()


def test_an_episode_played_again_after_its_removal_is_kept(run):
    pruned(run, 1.0)
    with Recorder(run, writer="resumed") as recorder:
        record(recorder, "train2", (2, 60))
    assert check_whole(run) == {"train0", "train1", "train3"}
    found = pruned(run, EVERYTHING)
    assert found.kept == 3
    assert found.kept_bytes == room(run)
    age(run)
    assert ids(pruned(run, 1.0)) == ["train2"]
    assert check_whole(run) == {"train0", "train1", "train2", "train3"}


def test_recently_recorded_episodes_stay(run):
    with Recorder(run, writer="now") as recorder:
        record(recorder, "now", (80,))
    found = pruned(run, 1.0)
    assert "now" not in ids(found)
    assert found.training_left
    assert not found.is_short


def test_episodes_of_a_copied_run_stay_until_their_files_are_no_longer_recent(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, copy_function=shutil.copyfile)  # as cp -r does: with new times
    before = contents(copy)
    found = pruned(copy, 1.0)
    assert (ids(found), found.recent) == ([], 4)
    assert contents(copy) == before
    assert len(replay.open(copy).episodes()) == 6
    age(copy)
    assert len(ids(pruned(copy, 1.0))) == 4
    assert not list(copy.rglob("train*.json.gz"))


def test_invalid_removal_lines_remove_nothing(run, tmp_path):
    outside = tmp_path / "outside.json.gz"
    outside.write_text("mine")
    removals_file(run).write_text(
        '{"id": "../../outside", "recorded": 1e12}\n{"id": "eval"}\n{"recorded": 5}\n[1]\n{"id"'
    )
    with (run / "episodes" / "frames-bad.jsonl").open("w") as file:
        bad = {"split": "train", "step": 0, "time": 0.0, "bytes": 1, "frames": ["../x", "zz"]}
        for name in ("../../outside", "fine"):
            file.write(json.dumps(bad | {"id": name}) + "\n")
        file.write('{"id": "half"}\n{"id": 3, "time": "x"')
    found = pruned(run, 1.0)
    assert "fine" in ids(found)
    assert outside.read_text() == "mine"
    assert check_whole(run) == {"train0", "train1", "train2", "train3"}


def test_invalid_times_do_not_hide_other_episodes(run):
    huge = "1" + "0" * 400
    removals_file(run).write_text(f'{{"id": "train0", "recorded": {huge}, "time": 1}}\n')
    with (run / "episodes" / "index-bad.jsonl").open("w") as file:
        file.write(f'{{"id": "odd", "time": {huge}}}\n')
    assert not any(summary.removed for summary in replay.open(run).episodes())
    assert "train0" in ids(pruned(run, 1.0, dry_run=True))


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from agentrl.replay.frames import pack_sweep
from agentrl.replay.pruning import Pruner

run, folder, changes = Path(sys.argv[1]), Path(sys.argv[2]), 0
CHANGES = ("BEGIN IMM", "DELETE", "PRAGMA user", "COMMIT", "PRAGMA incr")

def prune(run, dies_at):
    def change():
        global changes
        changes += 1
        if changes == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
    def look(event, arguments):
        notes = event == "open" and "removed" in str(arguments[0])
        if notes or event in ("os.rename", "os.remove"):
            change()
    def connect(path):
        connection = connected(path)
        connection.set_trace_callback(lambda asked: asked.startswith(CHANGES) and change())
        return connection
    connected, pack_sweep.connect = pack_sweep.connect, connect
    sys.addaudithook(look)
    Pruner(run).prune(1.0, 1200.0)

for dies_at in range(1, 1000):
    copy = folder / str(dies_at)
    shutil.copytree(run, copy)  # with modification times
    child = os.fork()
    if not child:
        prune(copy, dies_at)
        os._exit(0)
    if not os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        break
"""


@pytest.mark.slow
def test_after_kill_9_at_any_point_episodes_are_complete_and_the_next_pruning_finishes(
    run, tmp_path
):
    folder = tmp_path / "killed"
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(run), str(folder)],
        check=True,
        timeout=120,
    )
    copies = sorted(folder.iterdir(), key=lambda copy: int(copy.name))
    # One line, four episodes (each renamed and removed), and two frames that only they show.
    assert len(copies) >= 1 + 2 * 4 + 3 + 2 * 2
    pruned(run, 1.0)
    for copy in copies:
        assert check_whole(copy) <= {"train0", "train1", "train2", "train3"}
        pruned(copy, 1.0)
        assert check_whole(copy) == {"train0", "train1", "train2", "train3"}
        assert contents(copy).keys() == contents(run).keys()
        assert packs.count_bands(copy) == packs.count_bands(run)


def test_a_known_frame_seen_again_later_is_touched_or_written(tmp_path, monkeypatch):
    store = FrameStore(tmp_path)
    name = store.add(screen(1))
    store.flush()
    packs.touch(tmp_path, name, 0.0)
    store.add(screen(1))
    store.flush()
    assert packs.touched(tmp_path, name) == 0  # too soon to refresh
    monkeypatch.setattr(frame_store, "REFRESH_S", 0.0)
    store.add(screen(1))
    store.flush()
    assert time.time() - packs.touched(tmp_path, name) < 60
    packs.lose(tmp_path, name)
    store.add(screen(1))
    store.close()
    assert packs.frame_ids(tmp_path) == [name]


def test_the_next_writer_touches_a_frame_when_it_first_sees_it(tmp_path):
    for _ in range(2):
        store = FrameStore(tmp_path)
        name = store.add(screen(1))
        store.close()
        assert time.time() - packs.touched(tmp_path, name) < 60
        packs.touch(tmp_path, name, 0.0)


def test_the_grace_period_is_longer_than_the_refresh_interval():
    settings = RolloutConfig(deadline_s=50.0, reward_deadline_s=7.0)
    assert grace_s(settings) > frame_store.REFRESH_S + 57.0


def test_episodes_keep_their_frames_while_others_are_pruned(tmp_path, monkeypatch):
    """Recorders keep showing the same few screens while a pruner removes everything it may."""
    monkeypatch.setattr(frame_store, "REFRESH_S", 0.1)
    monkeypatch.setattr(pruning, "SETTLED_S", 0.2)
    run, ends = tmp_path / "run", time.monotonic() + 6.0
    failures: list[BaseException] = []

    def play(writer: str, first: int) -> None:
        try:
            with Recorder(run, writer=writer) as recorder:
                number = 0
                while time.monotonic() < ends:
                    names = []
                    for shown in range(4):
                        image = screen((first + 2 * number + shown) % 90)
                        names.append(recorder.frame(image))
                        time.sleep(0.02)  # an episode takes a while
                    scored = ScoredEpisode(
                        episode=episode(
                            f"{writer}-{number}", turns=tuple(turn(frames=(n,)) for n in names)
                        ),
                        components={},
                        rewards=(0.0,) * 4,
                    )
                    recorder.episode(scored, split="train", step=number)
                    number += 1
        except BaseException as error:
            failures.append(error)

    players = [threading.Thread(target=play, args=(f"w{k}", 11 * k)) for k in range(3)]
    for player in players:
        player.start()
    while not (run / "episodes").is_dir():
        time.sleep(0.01)
    pruner, removed, gone = Pruner(run), 0, 0
    while any(player.is_alive() for player in players):
        found = pruner.prune(3000.0, 0.1 + 0.4)
        removed, gone = removed + len(found.episodes), gone + found.frames
        time.sleep(0.01)
    assert not failures
    assert removed > 20
    assert gone > 20
    assert len(check_whole(run)) == removed
    assert len(replay.open(run).episodes()) > removed


def test_tables_skip_removed_episodes_with_a_warning(run, caplog):
    pruned(run, 1.0)
    opened = replay.open(run)
    assert {row["id"] for row in tables_export.rows(opened, "turns")} == {"demo", "eval"}
    assert "skipped 4 episodes that pruning removed" in caplog.text
    rows = list(tables_export.rows(opened, "episodes"))
    assert [row["id"] for row in rows if row["removed"]] == [f"train{n}" for n in range(4)]


def test_episodes_removed_while_reading_are_skipped(run, caplog):
    rows = tables_export.rows(replay.open(run), "turns")
    assert next(rows)["id"] == "demo"
    pruned(run, 1.0)
    assert {row["id"] for row in rows} == {"demo", "eval"}
    assert "skipped 4 episodes" in caplog.text


def test_a_late_frame_is_counted_once_it_is_stored(run):
    pruner = Pruner(run)
    before = pruner.prune(EVERYTHING, GRACE_S).kept_bytes
    with Recorder(run, frames="none", writer="late") as recorder:
        turns = (turn(frames=(cut_into_bands(screen(77)).id,)),)
        recorder.episode(
            ScoredEpisode(episode=episode("late", turns=turns), components={}, rewards=(1.0,)),
            split="train", step=9,
        )  # fmt: skip
    without = pruner.prune(EVERYTHING, GRACE_S).kept_bytes
    assert without == before + episode_file(run, "late").stat().st_size
    store = FrameStore(run, "late")
    store.add(screen(77))
    store.close()
    found = pruner.prune(EVERYTHING, GRACE_S)
    assert found.kept_bytes == room(run) > without
    assert found.waiting == 0


def test_the_prune_command_reports_what_it_removes(run, capsys):
    limit = str(room(run) / GB - 1e-9)
    assert agentrl(["prune", str(run), "--keep-gb", limit, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "training step 0: 1 episodes" in said
    assert "would remove 1 episodes and 1 frames" in said
    assert episode_file(run, "train0").exists()
    assert agentrl(["prune", str(run), "--keep-gb", limit]) == 0
    assert "removed 1 episodes and 1 frames" in capsys.readouterr().out
    assert not episode_file(run, "train0").exists()
    assert agentrl(["prune", str(run), "--keep-gb", "0"]) == 0
    assert "evaluations and demonstrations are never removed and now use" in capsys.readouterr().out
    assert agentrl(["episodes", str(run)]) == 0
    assert capsys.readouterr().out.count("(pruned)") == 4


@pytest.mark.parametrize("keep", ["-1", "nan", "inf", "much"])
def test_prune_refuses_invalid_sizes(run, keep):
    assert agentrl(["prune", str(run), f"--keep-gb={keep}"]) == 2
    assert episode_file(run, "train0").exists()


@pytest.mark.parametrize("damage", ["bands = 5", "bands = 'text'", "bytes = 'x'", "id = 'x'"])
def test_a_damaged_pack_is_reported(run, damage, capsys):
    with closing(sqlite3.connect(next((run / "frames").glob("*.sqlite")))) as pack, pack:
        pack.execute(f"UPDATE frames SET {damage} WHERE number = 1")
    assert agentrl(["prune", str(run), "--keep-gb", "0"]) == 1
    assert "invalid frame" in capsys.readouterr().err


def test_prune_refuses_a_folder_without_a_run(tmp_path, capsys):
    assert agentrl(["prune", str(tmp_path), "--keep-gb", "1"]) == 2
    assert "has no recorded episodes" in capsys.readouterr().err


def test_rescoring_skips_removed_episodes(run, tmp_path, capsys):
    pruned(run, 1.0)
    (tmp_path / "r.py").write_text("def reward(episode):\n    return 1.0\n")
    reward = f"{tmp_path / 'r.py'}:reward"
    assert agentrl(["rescore", str(run), "--reward", reward]) == 0
    assert "2 episodes" in capsys.readouterr().out
    assert agentrl(["rescore", str(run), "--reward", reward, "--split", "train"]) == 2
    assert "all matching episodes were pruned" in capsys.readouterr().err


def test_a_pack_without_tables_yet_is_read_later(tmp_path):
    run = tmp_path / "run"
    with Recorder(run, writer="a") as recorder:
        recorder.frame(screen(1))
    pack = pack_file(run, "a").with_name("b.sqlite")
    with closing(sqlite3.connect(pack)) as connection:
        connection.execute("PRAGMA user_version = 1")  # a file that its writer has not prepared
    assert pack.stat().st_size
    assert Pruner(run).prune(0.0, 0.0).episodes == ()
