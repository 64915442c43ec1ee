"""The JSON API of a run's page."""

import gzip
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import quote

import cv2
import numpy as np
import pytest

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.files import lock_folder
from agentrl.replay.frames.banded_png import cut_into_bands
from agentrl.replay.recorder import Recorder
from agentrl.replay.run_reader import Run
from agentrl.runs.run_paths import episode_file, pack_file
from agentrl.types import Outcome, ScoredEpisode
from agentrl.viewer.episodes.frame_images import webp
from agentrl.viewer.viewer_server import ViewerServer
from tests.replay.episodes import episode, scored, screen, turn
from tests.viewer import runs
from tests.viewer.conftest import ask, wait_for


def post(served: ViewerServer, path: str, **headers: str) -> tuple[int, str]:
    """The status and the message of a request that brings the token, unless `headers` do."""
    brought = {"x-agentrl-token": served.guard.token, **headers}
    status, _, body = ask(served.url, path, "POST", **brought)
    return status, body.decode()


def test_the_job_state_is_running_stopped_or_finished(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    served = serve(run)

    def state() -> str | None:
        return json.loads(ask(served.url, "/api/run/name")[2])["job"]

    assert state() is None
    with lock_folder(run):
        assert state() == "running"
    assert state() == "stopped"
    (run / "state.json").write_text('{"step": 2}')
    (run / "summary.json").write_text('{"steps": 2}')
    assert state() == "finished"
    (run / "state.json").write_text('{"step": 3}')  # it was resumed, and killed
    assert state() == "stopped"


def test_training_is_one_row_and_each_evaluation_has_its_own(small):
    plays = json.loads(ask(small.url, "/api/run")[2])["plays"]
    assert [(p["label"], p["steps"], p["count"], p["void"], p["success"]) for p in plays] == [
        ("before-sampled", "0", 4, 0, 0.25),
        ("after-sampled", "2", 4, 0, 0.75),
        ("train", "1 to 2", 9, 1, 0.5),
    ]
    assert [p["reward"] for p in plays] == [-0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sort=password", "sort='password': must be one of time"), ("outcome=viod", "'void'"),
        ("split=test", "train, eval, demo"), ("min_reward=nan", "finite number"),
        ("count=100000", "count='100000': must be less than or equal to 500"),
        ("max_reward=inf&first=-1", "; first='-1': must be greater than or equal to 0"),
        ("step=many", "step='many': must be a valid integer"),
    ],
)  # fmt: skip
def test_invalid_filters_are_reported(small, query, words):
    status, _, body = ask(small.url, f"/api/episodes?{query}")
    assert status in (404, 422)
    assert words in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/episodes?q=tap", "Known parameters: text, query, sort"),
        ("/api/episodes?texts=tap", "did you mean 'text'?"),
        ("/api/run?step=1", "Known parameters: none"),
        ("/api/compare?a=x&b=y&b_step=1", "a_step= is missing"),
        ("/api/episodes/train-00001-g000-m00/turns/last", "number='last': must be a valid integer"),
        ("/api/episodes/train-00001-g000-m00?turn=1", "Known parameters: none"),
    ],
)
def test_unknown_missing_and_invalid_parameters_are_refused(small, path, words):
    status, _, body = ask(small.url, path)
    assert (status, words in json.loads(body)["error"]) == (422, True)


def test_logs_are_regular_files_in_the_runs_folder(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    logs = run / "logs"
    (logs / "folder.log").mkdir(parents=True)
    os.mkfifo(logs / "pipe.log")
    for name in (b"engine.log", b"a\x1b[31m.log", b"\xff.log"):
        Path(os.fsdecode(bytes(logs) + b"/" + name)).write_text("loading")
    (tmp_path / "secret").write_text("password")
    for name, target in {"away": "../../secret", "gone": "absent", "own": "engine.log"}.items():
        (logs / f"{name}.log").symlink_to(target)
    served = serve(run)
    listed = json.loads(ask(served.url, "/api/logs")[2])
    assert listed == [{"name": f"{name}.log", "bytes": 7} for name in ("engine", "own")]
    assert json.loads(ask(served.url, "/api/logs/own.log")[2])["text"] == "loading"
    for name in ("away.log", "folder.log", "pipe.log", "a%1B%5B31m.log"):
        status, _, body = ask(served.url, f"/api/logs/{name}")
        assert (status, "run has no log" in json.loads(body)["error"]) == (404, True)


NOTED = "train-00001-g000-m00"


def test_stars_and_notes_are_recorded_beside_the_run(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    one, other = serve(run), serve(run)

    def found(query: str) -> list[str]:
        rows = json.loads(ask(other.url, f"/api/episodes?{query}")[2])["rows"]
        return [row["id"] for row in rows]

    assert found("starred=true") == []
    star, note = f"/api/episodes/{NOTED}/star", f"/api/episodes/{NOTED}/note"
    assert post(one, f"{star}?starred=true")[0] == 200
    assert post(one, f"{note}?note=two+%3Cb%3E&seen=")[0] == 200
    for query in ("starred=true", "query=starred", "query=note+~+TWO"):
        assert found(query) == [NOTED], query
    assert NOTED not in found("query=not+starred")
    status, why = post(other, f"{note}?note=mine&seen=")  # a page that was opened before
    assert (status, "another page has changed this note to 'two <b>'" in why) == (404, True)
    assert post(other, f"{note}?note=mine&seen=two+%3Cb%3E")[0] == 200
    assert post(other, f"{star}?starred=false")[0] == 200
    (kept,) = Run(run).episodes(replay.Filter(id=NOTED))
    assert (kept.starred, kept.note) == (False, "mine")
    with (run / "episodes" / "notes.jsonl").open("a") as file:
        file.write('{"id": "absent", "starred": true}\n{"id": 3}\n{"id": "train-0000')
    assert found("query=note+%3D+mine") == [NOTED]  # a killed writer's partial line is skipped


def test_stars_and_notes_are_refused_without_the_right_to_write(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    served = serve(run)
    star = f"/api/episodes/{NOTED}/star?starred=true"
    assert post(served, star, **{"x-agentrl-token": ""})[0] == 403
    assert post(served, star, Origin="http://evil.example")[0] == 403
    assert post(served, star, Host="evil.example")[0] == 403
    assert post(served, "/api/episodes/absent/star?starred=true")[0] == 404
    too_long = f"/api/episodes/{NOTED}/note?seen=&note={'x' * 2001}"
    assert "2,000 characters, got 2,001" in post(served, too_long)[1]
    assert not (run / "episodes" / "notes.jsonl").exists()
    (run / "episodes" / "notes.jsonl").symlink_to(tmp_path / "absent" / "notes")
    status, why = post(served, star)
    assert (status, "write access to the run's folder" in why, str(tmp_path) in why) == (
        404,
        True,
        False,
    )
    assert ask(served.url, "/api/episodes?starred=true")[0] == 200


def test_the_last_screens_are_asked_for_by_id(small):
    body = ask(small.url, f"/api/screens?id={NOTED}&id=absent")[2]
    (screen,) = json.loads(body).values()
    episode = json.loads(ask(small.url, f"/api/episodes/{NOTED}")[2])
    assert screen["frame"] == episode["final"]["frames"][-1]
    status, _, body = ask(small.url, "/api/screens?" + "id=a&" * 501)
    assert (status, "List must have at most 500 items" in json.loads(body)["error"]) == (422, True)


@pytest.mark.slow
def test_a_gallery_of_ten_thousand_episodes_is_quick(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    (index,) = (run / "episodes").glob("index-*.jsonl")
    line = json.loads(index.read_text().splitlines()[0])
    with index.open("a") as file:
        for n in range(10_000):
            copied = f"copy-{n:05d}-g000-m00"
            file.write(json.dumps(line | {"id": copied, "time": line["time"] + n}) + "\n")
            os.link(episode_file(run, line["id"]), episode_file(run, copied))
    served = serve(run)
    for path in ("/api/episodes?count=60&query=not+starred&sort=reward", "/api/screens?id=copy-0"):
        ask(served.url, path)  # reads the index
    used = time.process_time()  # of the server's thread, too
    rows = json.loads(ask(served.url, "/api/episodes?count=60&sort=reward&query=not+starred")[2])
    ids = "&".join(f"id={row['id']}" for row in rows["rows"][:28])  # as many as a window shows
    screens = json.loads(ask(served.url, f"/api/screens?{ids}")[2])
    used = time.process_time() - used
    assert (rows["all"], len(screens)) == (10_017, 28)
    assert used < 0.3


def test_an_unknown_address_is_a_page_or_json_depending_on_its_path(small):
    status, headers, body = ask(small.url, "/nope/nothing")
    assert (status, headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"/static/main.js" in body
    for path in ("/api/nope", "/api/play", "/api"):
        status, headers, _ = ask(small.url, path)
        assert (status, headers["content-type"]) == (404, "application/json")


def test_words_are_found_in_any_order_with_excerpts(serve, tmp_path):
    with Recorder(tmp_path) as recorder:
        for name, reply in (
            ("both", "Press NEXT, then tap(0.25, 0.50)."),
            ("one", "next"),
            ("long", f"{'x' * 100_000} next tap {'y' * 100_000}"),
        ):
            made = ScoredEpisode(
                episode=episode(name, (turn(reply=reply),)), components={}, rewards=(0.0,)
            )
            recorder.episode(made, split="train", step=1)
    served = serve(tmp_path)

    def found(text: str) -> dict[str, list[list[object]]]:
        asked = f"/api/episodes?text={quote(text)}"
        wait_for(lambda: json.loads(ask(served.url, asked)[2])["searched"] == [3, 3])
        return {r["id"]: r["excerpt"] for r in json.loads(ask(served.url, asked)[2])["rows"]}

    assert found("nex tap").keys() == found("tap NEX").keys() == {"both", "long"}
    assert found("next nothing") == {}
    assert found("((( ---") == {}
    assert found("( next").keys() == {"both", "one", "long"}
    assert found('"next tap').keys() == {"long"}
    assert found("tap(0.25, 0.50)").keys() == {"both"}
    assert found("next " * 5000).keys() == found("next NEXT").keys() == {"both", "one", "long"}
    for words in (" ".join(map(str, range(51))), f'"{"next " * 51}'):
        status, _, body = ask(served.url, f"/api/episodes?text={quote(words)}")
        assert (status, json.loads(body)) == (
            404,
            {"error": "a search can have at most 50 words, got 51"},
        )
    marked = [words for words, is_found in found("nex 0.25")["both"] if is_found]
    assert marked == ["NEXT", "0.25"]
    for text in ("nex", "x", "xx"):
        answer = found(text)["long"]
        assert sum(len(words) for words, _ in answer) < 300
        assert any(is_found for _, is_found in answer)


def test_words_are_found_within_text_without_spaces(serve, tmp_path):
    said = {
        "pay": "请打开微信小程序\uff0c然后点击付款按钮 tap(0.25, 0.50)",
        "pay2": "付了款\uff0c不用微博",
        "kana": "次にタップしてOKボタンを押す",
        "thai": "กดปุ่มชำระเงิน",
        "hangul": "간편결제를 누르세요",
        "marks": "微\x04信 next",
    }
    with Recorder(tmp_path) as recorder:
        for name, reply in said.items():
            made = ScoredEpisode(
                episode=episode(name, (turn(reply=reply),)), components={}, rewards=(0.0,)
            )
            recorder.episode(made, split="train", step=1)
    served = serve(tmp_path)

    def found(text: str) -> dict[str, list[tuple[str, bool]]]:
        asked = f"/api/episodes?text={quote(text)}"
        wait_for(lambda: json.loads(ask(served.url, asked)[2])["searched"] == [6, 6])
        return {r["id"]: r["excerpt"] for r in json.loads(ask(served.url, asked)[2])["rows"]}

    assert found("付款").keys() == found("程序 付款").keys() == found("付款 微信").keys() == {"pay"}
    assert found("微").keys() == {"pay", "pay2", "marks"}
    assert found("信微") == found("付 博士") == {}
    assert found('"点击付款" ta').keys() == found("付款 tap(0.2").keys() == {"pay"}
    assert found("ボタン").keys() == found("てO").keys() == found("ok").keys() == {"kana"}
    assert found("ชำระ").keys() == {"thai"}
    assert found("결제").keys() == {"hangul"}
    answer = found("付款")["pay"]
    assert [words for words, is_found in answer if is_found] == ["付款"]
    assert said["pay"] in "".join(words for words, _ in answer)


def test_a_frame_is_sent_at_full_or_small_size_and_cached(small):
    episode = json.loads(ask(small.url, "/api/episodes/train-00001-g000-m00")[2])
    (frame,) = episode["played"][0]["frames"]
    status, headers, body = ask(small.url, f"/frames/{frame}")
    assert (status, headers["content-type"], body[:4]) == (200, "image/png", b"\x89PNG")
    assert "immutable" in headers["cache-control"]
    status, headers, less = ask(small.url, f"/frames/{frame}?width=96")
    assert (status, headers["content-type"], less[8:12]) == (200, "image/webp", b"WEBP")
    assert ask(small.url, f"/frames/{frame}?width=97")[0] == 404


def test_a_late_frame_is_sent_once_it_is_stored(serve, tmp_path):
    (tmp_path / "episodes").mkdir()
    served = serve(tmp_path)
    asked = f"/frames/{cut_into_bands(screen(1)).id}?width=96"
    assert ask(served.url, asked)[0] == 404
    with Recorder(tmp_path) as recorder:
        recorder.frame(screen(1))
    assert ask(served.url, asked)[0] == 200


def test_a_late_frame_is_scaled_once_it_is_stored(serve, tmp_path):
    run = tmp_path / "run"
    runs.run(run)
    with Recorder(tmp_path / "other") as recorder:
        frame = recorder.frame(screen(77))
    served = serve(run)
    assert ask(served.url, f"/frames/{frame}?width=96")[0] == 404
    shutil.copy(pack_file(tmp_path / "other", "main"), pack_file(run, "late"))
    assert ask(served.url, f"/frames/{frame}?width=96")[0] == 200


def test_a_frame_of_a_running_job_is_waited_for(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    served = serve(run)
    with lock_folder(run), Recorder(run, writer="late") as recorder, ThreadPoolExecutor(2) as pool:
        frames = [recorder.frame(screen(number)) for number in (77, 78)]  # written in 0.25 s
        asked = [f"/frames/{frames[0]}", f"/frames/{frames[1]}?width=96"]
        assert [answer[0] for answer in pool.map(partial(ask, served.url), asked)] == [200, 200]
        assert ask(served.url, f"/frames/{'0' * 32}")[0] == 404


def test_events_continue_if_the_run_cannot_be_read(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    served = serve(run)
    with urllib.request.urlopen(f"{served.url}/api/news", timeout=30) as news:
        assert b"[" in news.readline()
        news.readline()
        index = run / "episodes" / "index-newer.jsonl"
        index.write_text('{"format": 99}\n')
        assert b"upgrade agentrl" in news.readline()
        news.readline()
        shutil.rmtree(run)
        assert b"upgrade" not in news.readline()


def test_lone_surrogates_and_broken_files_do_not_break_the_search(serve, tmp_path):
    with Recorder(tmp_path) as recorder:
        half = episode("half", (turn(reply="left \ud800 right"),))
        recorder.episode(
            ScoredEpisode(episode=half, components={}, rewards=(0.0,)), split="train", step=1
        )
        for name in ("broken", "whole"):
            recorder.episode(scored(name), split="train", step=1)
    file = episode_file(tmp_path, "broken")
    tree = json.loads(gzip.decompress(file.read_bytes()))
    tree["turns"][0]["reply"] = 5
    file.write_bytes(gzip.compress(json.dumps(tree).encode()))
    served = serve(tmp_path)
    end = time.monotonic() + 20
    while (answer := json.loads(ask(served.url, "/api/episodes?text=go")[2]))["searched"] != [3, 3]:
        assert time.monotonic() < end, answer["searched"]
        time.sleep(0.05)
    assert {row["id"] for row in answer["rows"]} == {"half", "whole"}


def test_text_of_a_replaced_run_is_no_longer_found(serve, tmp_path):
    def found(words: str) -> list[str]:
        end = time.monotonic() + 20
        while True:
            answer = json.loads(ask(served.url, f"/api/episodes?text={words}")[2])
            if answer["searched"][0] == answer["searched"][1] == answer["all"] > 0:
                return sorted(row["id"] for row in answer["rows"])
            assert time.monotonic() < end, answer["searched"]
            time.sleep(0.05)

    def record(said: dict[str, str]) -> None:
        with Recorder(run) as recorder:
            for name, reply in said.items():
                made = episode(name, (turn(reply=reply),))
                recorder.episode(
                    ScoredEpisode(episode=made, components={}, rewards=(0.0,)),
                    split="train",
                    step=1,
                )

    run = tmp_path / "run"
    record({"a": "herring", "b": "herring"})
    served = serve(run)
    assert found("herring") == ["a", "b"]
    shutil.rmtree(run)
    record({"a": "salmon", "c": "herring"})
    assert found("herring") == ["c"]
    assert found("salmon") == ["a"]


def test_one_unreadable_member_does_not_hide_the_others(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    served = serve(run)
    name = "train-00001-g000"
    torn, gone = (episode_file(run, f"{name}-m{member:02d}") for member in (1, 2))
    torn.write_bytes(torn.read_bytes()[:100])
    gone.unlink()
    status, _, body = ask(served.url, f"/api/groups/{name}")
    assert status == 200
    members = json.loads(body)["members"]
    assert [len(member["played"]) for member in members] == [3, 0, 0, 3]
    assert [member["removed"] for member in members] == [False, True, True, False]
    assert "cannot be read: EOFError" in members[1]["lost"]
    assert "cannot be read: FileNotFoundError" in members[2]["lost"]
    assert members[0]["lost"] is members[3]["lost"] is None
    assert str(tmp_path) not in body.decode()


def test_numbers_of_an_action_are_rounded_only_for_display(serve, tmp_path):
    action = {
        "at": [np.float32(0.3), 719.98765432],
        "force": 1.23456e-5,
        "times": 12345,
        "by": "3.00001",
    }
    with Recorder(tmp_path) as recorder:
        made = episode("a", (turn(action=action),))
        recorder.episode(
            ScoredEpisode(episode=made, components={}, rewards=(0.0,)), split="train", step=1
        )
    shown = {"at": [0.3, 719.9877], "force": 1.235e-5, "times": 12345, "by": "3.00001"}
    served = serve(tmp_path)
    assert json.loads(ask(served.url, "/api/episodes/a")[2])["played"][0]["action"] == shown
    recorded = replay.open(tmp_path).episode("a").episode.turns[0].action
    assert recorded["at"] == [0.30000001192092896, 719.98765432]


def test_the_list_escapes_control_characters(tmp_path, capsys):
    with Recorder(tmp_path) as recorder:
        recorder.episode(
            scored("a", outcome=Outcome.ENV_ERROR, error="\x1b[31mred \ud800"),
            split="train", step=1,
        )  # fmt: skip
    assert agentrl(["episodes", str(tmp_path)]) == 0
    answer = capsys.readouterr().out
    assert "\\x1b[31mred \\ud800" in answer
    assert "\x1b" not in answer


def test_images_too_tall_for_webp_are_scaled():
    tall = np.zeros((20_000, 2, 3), np.uint8)
    shown = cv2.imdecode(np.frombuffer(webp(tall, 96), np.uint8), cv2.IMREAD_COLOR)
    assert shown.shape[0] <= 16_383


def test_a_run_that_replaces_another_is_shown(serve, tmp_path):
    def found() -> list[str]:
        return [row["id"] for row in json.loads(ask(served.url, "/api/episodes")[2])["rows"]]

    run = tmp_path / "run"
    with Recorder(run) as recorder:
        recorder.episode(scored("old"), split="train", step=1)
    (run / "metrics.jsonl").write_text('{"stage": "reinforcement", "step": 1, "train/reward": 1}\n')
    served = serve(run)
    assert found() == ["old"]
    assert json.loads(ask(served.url, "/api/curves")[2])
    shutil.rmtree(run)
    for path in ("episodes", "curves", "run/name"):
        status, _, body = ask(served.url, f"/api/{path}")
        assert (status, json.loads(body)["error"].startswith("run was deleted")) == (410, True)
    with Recorder(run) as recorder:
        for name in ("new1", "new2"):
            recorder.episode(scored(name), split="train", step=1)
    assert sorted(found()) == ["new1", "new2"]
