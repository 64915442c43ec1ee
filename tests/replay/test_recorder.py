import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrl import replay
from agentrl.errors import ConfigError
from agentrl.files import is_locked
from agentrl.replay import tables_export
from agentrl.replay.episode_json import from_json, to_json
from agentrl.replay.recorder import Recorder, frames_of, masked
from agentrl.replay.run_reader import Run
from agentrl.runs.episode_summary import is_success
from agentrl.runs.jsonl import JsonlTail, JsonlWriter
from agentrl.runs.run_paths import episode_file, is_name, pack_file
from agentrl.types import ExecutedAction, Outcome, ScoredEpisode, TruncatedBy
from tests.replay.episodes import episode, scored, screen, turn

SECRET = (255, 0, 255)
spans = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted).filter(lambda s: s[0] < s[1])


def test_an_episode_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = scored("train-00001-g000-m00", turns=3)
    first = replace(written.episode.turns[0], reply_top_logprobs=(((3, -0.1), (9, -2.5)),))
    results = [
        ExecutedAction(action=[0.5, 0.5], reward=r, info={"round": r}, shown="", frames=("f",))
        for r in (0.0, 1.0)
    ]
    second = replace(
        written.episode.turns[1],
        action=[[0.5, 0.5]] * 2,
        chunk=tuple(results),
        reply_truncated=True,
    )
    turns = (first, second, *written.episode.turns[2:])
    written = replace(written, episode=replace(written.episode, turns=turns))
    with Recorder(tmp_path) as recorder:
        recorder.episode(written, split="train", step=1)
        recorder.record_advantages(written, evenly(written, [0.5, -0.5, 0.0]))
    found = replay.open(tmp_path).episode("train-00001-g000-m00")
    assert found.episode == written.episode
    assert found.summary.reward == written.reward
    assert found.summary.rewards == written.rewards
    assert found.summary.components == written.components
    assert found.summary.advantages == (0.5, -0.5, 0.0)
    assert (found.summary.split, found.summary.step) == ("train", 1)
    assert found.summary.failure_modes == {"truncated_replies": pytest.approx(1 / 3), "stuck": 0}
    assert frames_of(found.episode) == ["f"]


def test_a_turn_without_several_actions_is_recorded_as_before(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("e"), split="train", step=1)
    (recorded,) = json.loads(gzip.decompress(episode_file(tmp_path, "e").read_bytes()))["turns"]
    assert not {"chunk", "reply_truncated"} & recorded.keys()


def test_an_episode_recorded_without_failure_modes_is_read(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("e"), split="train", step=1)
    (index,) = (tmp_path / "episodes").glob("index-*.jsonl")
    line = json.loads(index.read_text())
    del line["failure_modes"]
    index.write_text(f"{json.dumps(line)}\n")
    assert replay.open(tmp_path).episodes()[0].failure_modes == {}


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_episode_is_recorded_whatever_its_outcome(tmp_path: Path, outcome: Outcome) -> None:
    limit = TruncatedBy.CONTEXT if outcome is Outcome.TRUNCATED else None
    with Recorder(tmp_path) as recorder:
        ended = scored("e", outcome=outcome, truncated_by=limit, turns=0)
        recorder.episode(ended, split="eval", step=0)
    (summary,) = replay.open(tmp_path).episodes()
    assert (summary.outcome, summary.truncated_by) == (outcome, limit)
    assert replay.open(tmp_path).episode("e").episode.truncated_by is limit
    assert summary.turns == 0


def test_without_frames_nothing_is_stored(tmp_path: Path) -> None:
    with Recorder(tmp_path, frames="none") as recorder:
        assert recorder.frame(screen(1)) == ""
    assert not (tmp_path / "frames").exists()


def test_a_partial_line_is_ignored_and_does_not_corrupt_the_next(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Recorder(tmp_path) as recorder:
            recorder.episode(scored(name), split="train", step=1)
        index = tmp_path / "episodes" / "index-main.jsonl"
        with index.open("a") as file:
            file.write('{"id": "torn", "outc')
    assert [s.id for s in replay.open(tmp_path).episodes()] == ["a", "b"]


def test_several_writers_share_a_run(tmp_path: Path) -> None:
    with Recorder(tmp_path, writer="rollout0") as a, Recorder(tmp_path, writer="rollout1") as b:
        first, second = scored("a"), scored("b")
        a.episode(first, split="train", step=1)
        b.episode(second, split="train", step=1)
        with Recorder(tmp_path, frames="none", writer="trainer") as trainer:
            trainer.record_advantages(first, evenly(first, [1.0]))
    by_id = {s.id: s for s in replay.open(tmp_path).episodes()}
    assert by_id["a"].advantages == (1.0,)
    assert by_id["b"].advantages is None


def test_an_episode_played_again_after_a_resume_counts_once(tmp_path: Path) -> None:
    for total in (1, 2):
        with Recorder(tmp_path) as recorder:
            recorder.episode(scored("a", turns=total), split="train", step=1)
    (summary,) = replay.open(tmp_path).episodes()
    assert summary.turns == 2
    assert len(summary.rewards) == 2


def test_the_latest_recording_counts_whichever_writer_made_it(tmp_path: Path) -> None:
    lost, played = scored("a", turns=1), scored("a", turns=3)
    for writer, it in (("rollout1", lost), ("rollout0", played)):
        with Recorder(tmp_path, writer=writer) as recorder:
            recorder.episode(it, split="train", step=1)
    (summary,) = replay.open(tmp_path).episodes()
    assert summary.turns == len(summary.rewards) == 3
    assert summary.reward == played.reward


def test_advantages_of_an_earlier_recording_do_not_count(tmp_path: Path) -> None:
    lost, played = scored("a", turns=1), scored("a", turns=2)
    with Recorder(tmp_path) as recorder:
        recorder.episode(lost, split="train", step=1)
        recorder.record_advantages(lost, evenly(lost, [1.0]), step=1)
        recorder.episode(played, split="train", step=1)
        (summary,) = replay.open(tmp_path).episodes()
        assert (summary.advantages, summary.used_by) == (None, None)
        assert [row["advantage"] for row in tables_export.rows(Run(tmp_path), "turns")] == [
            None,
            None,
        ]
        recorder.record_advantages(played, evenly(played, [0.5, -0.5]), step=1)
    (summary,) = replay.open(tmp_path).episodes()
    assert (summary.advantages, summary.used_by) == ((0.5, -0.5), 1)


def test_a_partial_line_on_a_full_disk_does_not_corrupt_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    lines = JsonlWriter(tmp_path / "lines")
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, line: write(file, line[:5]))
        with pytest.raises(OSError, match="the disk is full"):
            lines.append({"id": "torn"})
    lines.append({"id": "next"})
    lines.close()
    assert list(JsonlTail(tmp_path / "lines").new()) == [{"id": "next"}]


_WRITER = """
import sys
import time
from pathlib import Path
from agentrl.replay.run_reader import Run
from agentrl.replay.recorder import Recorder
from agentrl.replay.frames.pack_sweep import PackSweeper
from tests.replay import packs
from tests.replay.episodes import scored, screen
with Recorder(Path(sys.argv[1])) as recorder:
    for number in range(10_000):
        recorder.frame(screen(number))
        recorder.episode(scored(f"e{number}"), split="train", step=number)
        print(number, flush=True)
"""


def test_kill_9_loses_no_finished_episode(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)],
        stdout=subprocess.PIPE, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, text=True,
    )  # fmt: skip
    assert writer.stdout is not None
    last = -1
    for line in writer.stdout:
        last = int(line)
        if last >= 20:
            break
    writer.send_signal(signal.SIGKILL)
    last = max([last, *map(int, writer.stdout.read().split("\n")[:-1])])
    writer.stdout.close()
    writer.wait(10)
    run = replay.open(tmp_path)
    found = {s.id for s in run.episodes()}
    assert {f"e{number}" for number in range(last + 1)} <= found
    assert run.episode(f"e{last}").episode.turns


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a..b", "x" * 200, "a\n", "a\0"])
def test_ids_cannot_leave_the_run(tmp_path: Path, name: str) -> None:
    assert not is_name(name)
    with pytest.raises(ValueError, match="is not a valid"):
        episode_file(tmp_path, name)
    with pytest.raises(ValueError, match="is not a valid writer name"):
        pack_file(tmp_path, name)
    (tmp_path / "episodes").mkdir()
    run = replay.open(tmp_path)
    assert run.frame(name) is None
    with pytest.raises(ConfigError, match="no episode"):
        run.episode(name)


def test_errors_distinguish_missing_runs_episodes_and_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such run"):
        replay.open(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no recorded episodes"):
        replay.open(tmp_path)
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("a"), split="train", step=1)
    episode_file(tmp_path, "a").write_bytes(b"broken")
    with pytest.raises(ConfigError, match="cannot be read"):
        replay.open(tmp_path).episode("a")


@pytest.mark.parametrize("metric", ["success", "won", "accuracy"])
def test_the_environments_metric_says_whether_it_was_a_success(metric: str) -> None:
    assert is_success({"score": 0.5, metric: 1.0})
    assert is_success({"score": 1.0, metric: 0.5}) is False


def test_a_corrupt_archive_is_reported(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("a"), split="train", step=1)
    file = episode_file(tmp_path, "a")
    content = bytearray(file.read_bytes())
    content[12:40] = b"\xff" * 28
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        replay.open(tmp_path).episode("a")


@pytest.mark.parametrize("wrong", [{"rewards": 5}, {"components": [1]}, {"reward": "much"}])
def test_a_score_of_wrong_types_does_not_hide_the_episode(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("a"), split="train", step=1)
    with (tmp_path / "episodes" / "scores-main.jsonl").open("a") as file:
        file.write(json.dumps({"id": "a", **wrong}) + "\n")
    assert [s.id for s in replay.open(tmp_path).episodes()] == ["a"]


def nested(lists: int) -> list[Any]:
    found = list[Any]()
    for _ in range(lists - 1):
        found = [found]
    return found


@pytest.mark.parametrize("lists", [1, 150])
def test_the_deepest_allowed_nesting_is_read(tmp_path: Path, lists: int) -> None:
    with Recorder(tmp_path) as recorder:
        played = episode("a", (turn(info={"deep": nested(lists)}),))
        recorder.episode(
            ScoredEpisode(episode=played, components={}, rewards=(0.0,)), split="train", step=1
        )
    assert replay.open(tmp_path).episode("a").episode.turns[0].info == {"deep": nested(lists)}


def test_a_bomb_is_refused_once_until_its_file_changes(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("a"), split="train", step=1)
    file = episode_file(tmp_path, "a")
    recorded = file.read_bytes()
    file.write_bytes(gzip.compress(b"[" + b"0," * (20 << 20) + b"0]", 1))
    run, used = replay.open(tmp_path), list[float]()
    for _ in range(2):
        started = time.process_time()
        with pytest.raises(ConfigError, match=r"more than 3\d,\d+,\d+ bytes"):
            run.episode("a")
        used.append(time.process_time() - started)
    assert used[1] < min(0.01, used[0] / 5)
    file.write_bytes(recorded)
    assert run.episode("a").episode.id == "a"


def test_a_pipe_in_place_of_a_file_is_refused_without_blocking(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("a"), split="train", step=1)
    episode_file(tmp_path, "a").unlink()
    os.mkfifo(episode_file(tmp_path, "a"))
    os.mkfifo(tmp_path / ".lock")
    assert is_locked(tmp_path) is None
    run = replay.open(tmp_path)
    with pytest.raises(ConfigError, match="is not a regular file"):
        run.episode("a")
    os.mkfifo(tmp_path / "episodes" / "index-other.jsonl")
    with pytest.raises(ConfigError, match="is not a regular file"):
        run.episodes()


@pytest.mark.parametrize(
    "changes",
    [
        {"reply": 5}, {"shown": None}, {"frames": [{"a": 1}]}, {"timings": {"act": "long"}},
        {"reply_ids": ["a"]}, {"reply_logprobs": []}, {"info": [1]}, {"state_key": {}},
        {"timings": {"act": 10**400}}, {"reply_logprobs": [10**400]}, {"env_reward": 10**400},
        {"info": {"deep": nested(300)}}, {"action": nested(300)},
        {"reply_top_ids": [[1]]}, {"reply_top_ids": [1], "reply_top_logprobs": [-1.0]},
        {"reply_top_ids": [[1]], "reply_top_logprobs": [[]]},
        {"reply_top_ids": [["a"]], "reply_top_logprobs": [[-1.0]]},
        {"reply_top_ids": [[1]] * 9, "reply_top_logprobs": [[-1.0]] * 9},
        {"reply_truncated": 1}, {"chunk": 1}, {"chunk": [1]}, {"chunk": [{"action": 1}]},
        {"chunk": [{"action": nested(300), "reward": 1, "info": {}, "shown": "", "frames": []}]},
        {"chunk": [{"action": 1, "reward": "1", "info": {}, "shown": "", "frames": []}]},
        {"chunk": [{"action": 1, "reward": 1, "info": {}, "shown": "", "frames": [1]}]},
    ],
)  # fmt: skip
def test_an_episode_with_wrong_types_is_reported(tmp_path: Path, changes: dict[str, Any]) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("a"), split="train", step=1)
    file = episode_file(tmp_path, "a")
    tree = json.loads(gzip.decompress(file.read_bytes()))
    tree["turns"][0] |= changes
    file.write_bytes(gzip.compress(json.dumps(tree).encode()))
    with pytest.raises(ConfigError, match="cannot be read"):
        replay.open(tmp_path).episode("a")


@pytest.mark.parametrize(
    "metric", [10**400, np.complex128(1j), math.nan], ids=["huge", "complex", "nan"]
)
def test_metrics_that_are_not_finite_numbers_are_dropped(tmp_path: Path, metric: Any) -> None:
    made = turn(info={"metrics": {"success": 1, "odd": metric}})
    with Recorder(tmp_path) as recorder:
        recorder.episode(
            ScoredEpisode(episode=episode("a", (made,)), components={}, rewards=(1.0,)),
            split="train", step=1,
        )  # fmt: skip
    assert replay.open(tmp_path).episodes()[0].metrics == {"success": 1.0}


def test_a_folder_in_place_of_an_index_is_reported(tmp_path: Path) -> None:
    (tmp_path / "episodes" / "index-main.jsonl").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"index-main\.jsonl: cannot be read"):
        replay.open(tmp_path).episodes()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (99, "recorded in format 99, but this agentrl reads format 4; upgrade agentrl"),
        (3, "recorded in format 3, but this agentrl reads format 4; record it again"),
    ],
)
def test_another_format_is_refused_with_advice(tmp_path: Path, written: int, said: str) -> None:
    (tmp_path / "episodes").mkdir()
    (tmp_path / "episodes" / "index-main.jsonl").write_text(json.dumps({"format": written}) + "\n")
    with pytest.raises(ConfigError, match=said):
        replay.open(tmp_path).episodes()


def test_a_newer_format_that_appears_later_is_refused_each_time(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("a"), split="train", step=1)
    run = replay.open(tmp_path)
    assert len(run.episodes()) == 1
    (tmp_path / "episodes" / "index-newer.jsonl").write_text(json.dumps({"format": 99}) + "\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="upgrade"):
            run.episodes()


def test_one_damaged_file_does_not_hide_the_others(tmp_path: Path, caplog) -> None:
    with Recorder(tmp_path) as recorder:
        for name in ("a", "b", "c"):
            recorder.episode(scored(name), split="train", step=1)
    episode_file(tmp_path, "b").write_bytes(b"broken")
    run = replay.open(tmp_path)
    assert [recorded.summary.id for recorded in run.opened(run.episodes())] == ["a", "c"]
    assert "skipped 1 unreadable episodes; first error: " in caplog.text
    assert "b.json.gz cannot be read" in caplog.text


@pytest.mark.parametrize("time", [1e300, math.nan, -1.0])
def test_a_line_with_an_invalid_time_is_skipped(tmp_path: Path, time: float) -> None:
    with Recorder(tmp_path) as recorder:
        for name in ("a", "b"):
            recorder.episode(scored(name), split="train", step=1)
    index = tmp_path / "episodes" / "index-main.jsonl"
    first, second = map(json.loads, index.read_text().splitlines())
    index.write_text(f"{json.dumps(first | {'time': time})}\n{json.dumps(second)}\n")
    assert [summary.id for summary in replay.open(tmp_path).episodes()] == ["b"]


@given(st.lists(st.tuples(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))))
def test_token_ids_survive_whatever_the_history_layout(
    pairs: list[tuple[list[int], list[int]]],
) -> None:
    turns = tuple(turn(prompt_ids=tuple(p), reply_ids=tuple(r)) for p, r in pairs)
    written = episode("a", turns=turns)
    assert from_json(json.loads(json.dumps(to_json(written)))) == written


def evenly(scored: ScoredEpisode, per_turn: Sequence[float]) -> list[list[float]]:
    turns = zip(per_turn, scored.episode.turns, strict=True)
    return [[value] * len(turn.reply_ids) for value, turn in turns]


def test_token_advantages_are_kept_if_they_differ_within_a_turn(tmp_path: Path) -> None:
    long, size = turn(reply_ids=(3, 4, 5)), 3
    one, other = (
        ScoredEpisode(episode=episode(id, turns), components={}, rewards=(0.0,) * len(turns))
        for id, turns in (("a", (long, long)), ("b", (long,)))
    )
    differing = [[0.123456, *[1.0] * (size - 1)], [0.5] * size]
    with Recorder(tmp_path) as recorder:
        for played in (one, other):
            recorder.episode(played, split="train", step=1)
        recorder.record_advantages(other, evenly(other, [2.0]))
        assert not list((tmp_path / "episodes").glob("token-advantages-*"))
        recorder.record_advantages(one, [[9.0, 8.0, 7.0], [6.0, 5.0, 4.0]])
        recorder.record_advantages(one, differing)
    run = replay.open(tmp_path)
    assert run.token_advantages(one.episode) == [[0.1235, *[1.0] * (size - 1)], [0.5] * size]
    assert run.token_advantages(other.episode) is None
    by_turn = run.episode("a").summary.advantages
    assert by_turn == (pytest.approx((0.123456 + size - 1) / size), 0.5)
    with (tmp_path / "episodes" / "token-advantages-main.jsonl").open("a") as file:
        file.write('{"id": "b", "advantages": [["x"]]}\n{"id": "b", "adv')
    assert run.token_advantages(other.episode) is None


def test_endless_nesting_is_recorded_to_the_readable_depth(tmp_path: Path) -> None:
    endless: dict[str, Any] = {"score": 3}
    endless["self"] = endless
    with Recorder(tmp_path, frames="none") as recorder:
        played = episode("a", (turn(info=endless, action=nested(5000)),))
        scored = ScoredEpisode(episode=played, components={}, rewards=(0.0,))
        recorder.episode(scored, split="train", step=1)
    found = replay.open(tmp_path).episode("a").episode.turns[0]
    assert found.info["self"]["score"] == 3
    assert "too deep" in str(found.info)
    assert "too deep" in str(found.action)


def test_text_that_files_cannot_encode_is_still_recorded(tmp_path: Path) -> None:
    info = {"half a character": "\ud800", "huge": 10**5000}
    with Recorder(tmp_path) as recorder:
        turns = (turn(info=info, reply="\ud800"),)
        odd = replace(scored("odd").episode, turns=turns, error="\ud800")
        recorder.episode(
            ScoredEpisode(episode=odd, components={}, rewards=(0.0,)), split="train", step=1
        )
    read = replay.open(tmp_path).episode("odd").episode
    assert read.turns[0].reply == "\ud800"
    assert read.turns[0].info["huge"] == hex(10**5000)


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(spans, spans), min_size=1, max_size=3), st.integers(8, 90))
def test_a_masked_region_reaches_no_file(
    tmp_path: Path, regions: list[tuple[list[float], list[float]]], width: int
) -> None:
    image = np.full((64, width, 3), 200, np.uint8)
    boxes = [(left, top, right, bottom) for (left, right), (top, bottom) in regions]
    for left, top, right, bottom in boxes:
        rows = slice(int(top * 64), int(np.ceil(bottom * 64)))
        image[rows, int(left * width) : int(np.ceil(right * width))] = SECRET
    before = image.copy()
    with Recorder(tmp_path, mask=boxes) as recorder:
        name = recorder.frame(image)
    assert np.array_equal(image, before), "the policy sees the true screen"
    stored = Run(tmp_path).frame(name)
    assert stored is not None
    assert stored.shape == image.shape
    assert not (stored == SECRET).all(axis=2).any()


@pytest.mark.parametrize("side", [36, 720])
def test_scaling_does_not_blend_masked_pixels_into_the_rest(side: int) -> None:
    screen = np.zeros((720, 720, 3), np.uint8)
    screen[200:400, 300:500] = 255
    scaled = cv2.resize(screen, (side, side), interpolation=cv2.INTER_AREA)
    hidden = masked(scaled, [(300 / 720, 200 / 720, 500 / 720, 400 / 720)])
    assert not hidden.any()
    assert scaled.any()


def test_pixels_beside_the_mask_stay() -> None:
    image = np.full((100, 100, 3), 9, np.uint8)
    hidden = masked(image, [(0.2, 0.2, 0.4, 0.4)])
    assert (hidden[50:] == 9).all()
    assert masked(image, []) is image
