"""Who may ask the viewer, and for what."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

import cv2
import numpy as np
import pytest

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.files import lock_folder
from agentrl.replay.frames.bands import cut
from agentrl.replay.reader import Run
from agentrl.replay.recorder import Recorder
from agentrl.replay.run_layout import episode_file, pack_file
from agentrl.types import Outcome, ScoredEpisode
from agentrl.viewer.access import Guard
from agentrl.viewer.frame_images import webp
from agentrl.viewer.token_text import Vocabulary, of_turn
from agentrl.viewer.viewer_server import Serving
from tests.replay.episodes import episode, scored, screen, turn
from tests.viewer import runs
from tests.viewer.conftest import wait_for


def ask(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """As it stands: no client of ours tidies the path up."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.request("GET", path, headers={"Host": url.removeprefix("http://"), **headers})
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("path", ["/", "/episodes", "/api/run", "/static/style.css", "/nothing"])
def test_no_answer_lets_a_page_reach_anything_else(small, path):
    _, headers, _ = ask(small.url, path)
    policy = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"


OTHERS = [
    "evil.example", "evil.example:1", "127.0.0.1.evil.example", "", "[::1].evil.example",
    "[::1]evil:1", "evil:[::1]", "::1", "[::2]", "[::1]:1:2",
]  # fmt: skip


@pytest.mark.parametrize("host", OTHERS)
def test_names_of_others_that_lead_here_are_refused(small, host):
    assert ask(small.url, "/api/run", Host=host)[0] == 403


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
def test_own_names_are_answered_with_and_without_a_port(small, name):
    for host in (name, f"{name}:8200"):
        assert ask(small.url, "/api/run", Host=host)[0] == 200


def test_pages_of_others_in_the_same_browser_are_refused(small):
    assert ask(small.url, "/api/run", Origin="http://evil.example")[0] == 403
    assert ask(small.url, "/api/run", Origin=small.url)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/..%2fapp.py",
        "/frames/../config.yaml", "/frames/%2e%2e%2fconfig.yaml", "/frames/" + "0" * 31 + "g",
        "/frames/" + "0" * 32, "/api/episodes/..%2f..%2fconfig", "/api/episodes/%2e%2e",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_run(small, path):
    status, _, body = ask(small.url, path)
    assert status in (404, 422)
    assert b"seed: 0" not in body
    assert b"import" not in body


def test_a_job_runs_stops_and_ends(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    served = serve(run)

    def told() -> str | None:
        return json.loads(ask(served.url, "/api/run/name")[2])["job"]

    assert told() is None
    with lock_folder(run):
        assert told() == "runs"
    assert told() == "stopped"
    (run / "state.json").write_text('{"step": 2}')
    (run / "summary.json").write_text('{"steps": 2}')
    assert told() == "ended"
    (run / "state.json").write_text('{"step": 3}')  # it went on, and was killed
    assert told() == "stopped"


def test_training_is_one_play_and_each_evaluation_its_own(small):
    plays = json.loads(ask(small.url, "/api/run")[2])["plays"]
    assert [(p["label"], p["steps"], p["count"], p["void"], p["won"]) for p in plays] == [
        ("before-sampled", "0", 4, 0, 0.25),
        ("after-sampled", "2", 4, 0, 0.75),
        ("train", "1 to 2", 9, 1, 0.5),
    ]
    assert [p["total"] for p in plays] == [-0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sort=password", "sort='password': must be one of time"), ("outcome=viod", "'void'"),
        ("split=test", "train, eval, demo"), ("count=100000", "less than or equal to 500"),
        ("first=-1", "greater than or equal to 0"), ("step=many", "valid integer"),
        ("least=nan", "finite number"), ("most=inf", "finite number"),
    ],
)  # fmt: skip
def test_senseless_filters_are_told(small, query, words):
    status, _, body = ask(small.url, f"/api/episodes?{query}")
    assert status in (404, 422)
    assert words in body.decode()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/episodes?q=tap", "There are: text, sort"),
        ("/api/episodes?texts=tap", "did you mean 'text'?"),
        ("/api/run?step=1", "There are: none"),
        ("/api/episodes/train-00001-g000-m00?turn=1", "There are: none"),
    ],
)
def test_unknown_parameters_are_refused(small, path, words):
    status, _, body = ask(small.url, path)
    assert (status, words in json.loads(body)["error"]) == (422, True)


def test_what_is_nowhere_is_a_page_for_people_and_plain_for_programs(small):
    status, headers, body = ask(small.url, "/nope/nothing")
    assert (status, headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"/static/main.js" in body
    for path in ("/api/nope", "/api/play", "/api"):
        status, headers, _ = ask(small.url, path)
        assert (status, headers["content-type"]) == (404, "application/json")


def test_no_refusal_tells_where_the_run_lies(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    episode_file(run, "train-00001-g000-m00").write_bytes(b"broken")
    served = serve(run)
    for path, words in (
        ("episodes/nope", "run has no episode 'nope'"),
        ("groups/nope", "run has no group 'nope'"),
        ("episodes/train-00001-g000-m00", "run/episodes"),
    ):
        status, _, body = ask(served.url, f"/api/{path}")
        assert (status, json.loads(body)["error"].startswith(words)) == (404, True)
        assert str(tmp_path) not in body.decode()


def test_words_are_found_in_any_order_and_told_where(serve, tmp_path):
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
    assert found("a " * 5000) == {}
    marked = [words for words, is_found in found("nex 0.25")["both"] if is_found]
    assert marked == ["NEXT", "0.25"]
    for text in ("nex", "x", "xx"):
        told = found(text)["long"]
        assert sum(len(words) for words, _ in told) < 300
        assert any(is_found for _, is_found in told)


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
    told = found("付款")["pay"]
    assert [words for words, is_found in told if is_found] == ["付款"]
    assert said["pay"] in "".join(words for words, _ in told)


def test_a_frame_is_sent_whole_or_small_and_kept(small):
    episode = json.loads(ask(small.url, "/api/episodes/train-00001-g000-m00")[2])
    (frame,) = episode["played"][0]["frames"]
    status, headers, body = ask(small.url, f"/frames/{frame}")
    assert (status, headers["content-type"], body[:4]) == (200, "image/png", b"\x89PNG")
    assert "immutable" in headers["cache-control"]
    status, headers, less = ask(small.url, f"/frames/{frame}?width=96")
    assert (status, headers["content-type"], less[8:12]) == (200, "image/webp", b"WEBP")
    assert ask(small.url, f"/frames/{frame}?width=97")[0] == 404


def test_a_frame_that_comes_late_is_sent_once_it_is_there(serve, tmp_path):
    (tmp_path / "episodes").mkdir()
    served = serve(tmp_path)
    asked = f"/frames/{cut(screen(1)).id}?width=96"
    assert ask(served.url, asked)[0] == 404
    with Recorder(tmp_path) as recorder:
        recorder.frame(screen(1))
    assert ask(served.url, asked)[0] == 200


def test_an_interrupt_while_the_pages_come_up_ends_their_thread(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    (tmp_path / "episodes").mkdir()
    before = set(threading.enumerate())
    monkeypatch.setattr(Serving, "_wait_for_start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Serving(Run(tmp_path))
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_beyond_loopback_everybody_needs_the_token():
    guard = Guard("0.0.0.0", 8200)
    host = {"host": "192.0.2.7:8200"}
    assert "token" in str(guard.refusal(host, {}))
    assert "token" in str(guard.refusal(host, {"agentrl-8200": "guessed"}))
    assert guard.refusal(host, {"agentrl-8200": guard.token}) is None
    assert guard.refusal(host | {"origin": "http://evil.example"}, {"agentrl-8200": guard.token})


@pytest.mark.parametrize("host", ["127.0.0.2", "127.1", "::1", "localhost"])
def test_the_address_that_is_told_is_answered(tmp_path, host):
    served = Serving(replay.open(runs.run(tmp_path / "run")), host=host)
    try:
        assert ask(served.url, "/api/run/name")[0] == 200
    finally:
        served.close()


def test_a_frame_that_comes_late_is_shown_small_when_it_is_there(serve, tmp_path):
    run = tmp_path / "run"
    runs.run(run)
    with Recorder(tmp_path / "other") as recorder:
        frame = recorder.frame(screen(77))
    served = serve(run)
    assert ask(served.url, f"/frames/{frame}?width=96")[0] == 404
    shutil.copy(pack_file(tmp_path / "other", "main"), pack_file(run, "late"))
    assert ask(served.url, f"/frames/{frame}?width=96")[0] == 200


def test_news_of_a_run_that_cannot_be_read_go_on(serve, tmp_path):
    run = runs.run(tmp_path / "run")
    served = serve(run)
    with urllib.request.urlopen(f"{served.url}/api/news", timeout=30) as news:
        assert b"[" in news.readline()
        news.readline()
        index = run / "episodes" / "index-newer.jsonl"
        index.write_text('{"format": 99}\n')
        assert b"upgrade it" in news.readline()
        news.readline()
        shutil.rmtree(run)
        assert b"upgrade" not in news.readline()


@pytest.mark.parametrize("id", [-1, 10**30])
def test_tokens_that_no_tokenizer_knows_are_shown_by_their_ids(tmp_path, id):
    from tokenizers import Tokenizer, models

    (tmp_path / "start").mkdir()
    Tokenizer(models.WordLevel({"go": 0}, unk_token="go")).save(
        str(tmp_path / "start" / "tokenizer.json")
    )
    words = Vocabulary(tmp_path)
    assert words.look() is None
    assert (words.word(0), words.word(id)) == ("go", f"[{id}]")


def one_turn(folder: Path) -> tuple[str, str | None]:
    """The first sampled token of a run's first turn, and why it is no word."""
    words = Vocabulary(folder)
    told = of_turn(episode("e", turns=(turn(reply_ids=(0,)),)), 1, words)
    return told["reply"][0]["text"], told["note"]


def a_run(folder: Path, word: str, model: str = "start") -> Path:
    """A run's folder with a tokenizer of one word."""
    from tokenizers import Tokenizer, models

    (folder / model).mkdir(parents=True)
    made = Tokenizer(models.WordLevel({word: 0}, unk_token=word))
    made.save(str(folder / model / "tokenizer.json"))
    (folder / "config.yaml").write_text("seed: 0\n")
    return folder


def test_an_evaluation_has_the_words_of_the_run_that_it_is_of(tmp_path, monkeypatch):
    trained = a_run(tmp_path / "runs" / "trained", "own", "model")
    played = tmp_path / "runs" / "eval-model-trained"
    played.mkdir()
    (played / "config.yaml").write_text(f"model: {{path: {trained / 'model'}}}\n")
    assert one_turn(played) == ("own", None)
    (tmp_path / "runs").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / "eval-model-trained"
    assert one_turn(moved) == ("own", None)
    (moved / "config.yaml").write_text("model: {path: some/hub}\n")
    (moved / "summary.json").write_text('{"target": "moved/trained"}')
    assert one_turn(moved) == ("own", None)
    moved.rename(tmp_path / "alone")
    monkeypatch.chdir(tmp_path)
    assert one_turn(tmp_path / "alone") == ("own", None)


@pytest.mark.parametrize(
    ("config", "summary"),
    [
        ("model: {path: PLACE/secret}", {}),
        ("model: {path: PLACE/no_run/model}", {}),
        ("model: {path: 5}", {"target": 5}),
        ("model: {path: PLACE/pipe/model}", {"target": "PLACE/no_run"}),
        ("model: [", {"target": "a" * 5000}),
        ("- 1", {"target": "PLACE/\0"}),
        ("model: {path: /}", {"target": ".."}),
        ("model: {path: /start}", {"target": ""}),
    ],
)  # fmt: skip
def test_a_strangers_run_opens_no_file_but_a_runs_tokenizer(tmp_path, config, summary):
    (a_run(tmp_path / "no_run", "leaked", "model") / "config.yaml").unlink()
    secret = a_run(tmp_path, "leaked", "secret")
    (secret / "config.yaml").rename(secret / "other.yaml")
    pipe = a_run(tmp_path / "pipe", "leaked", "other")
    (pipe / "model").mkdir()
    os.mkfifo(pipe / "model" / "tokenizer.json")
    strange = tmp_path / "far" / "strange"
    strange.mkdir(parents=True)
    (strange / "config.yaml").write_text(config.replace("PLACE", str(tmp_path)))
    told = json.dumps(summary).replace("PLACE", str(tmp_path))
    (strange / "summary.json").write_text(told)
    word, why = one_turn(strange)
    assert word == "[0]"
    assert "no tokenizer.json in start/ or model/" in why


def test_a_tokenizer_that_is_broken_or_comes_late_is_told(tmp_path):
    (tmp_path / "start").mkdir()
    words = Vocabulary(tmp_path)
    assert "there is no tokenizer.json" in words.look()
    (tmp_path / "start" / "tokenizer.json").write_text("{")
    assert "start/tokenizer.json cannot be read" in words.look()
    assert words.word(0) == "[0]"
    shutil.rmtree(tmp_path / "start")
    a_run(tmp_path, "late")
    assert words.look() is None
    assert words.word(0) == "late"


def test_two_servers_of_one_host_do_not_take_each_others_cookie():
    one, other = Guard("0.0.0.0", 8200), Guard("0.0.0.0", 8201)
    cookies = {one.cookie: one.token} | {other.cookie: other.token}
    assert one.refusal({"host": "192.0.2.7:8200"}, cookies) is None
    assert other.refusal({"host": "192.0.2.7:8201"}, cookies) is None


def test_half_characters_and_broken_files_do_not_end_a_search(serve, tmp_path):
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
    while (told := json.loads(ask(served.url, "/api/episodes?text=go")[2]))["searched"] != [3, 3]:
        assert time.monotonic() < end, told["searched"]
        time.sleep(0.05)
    assert {row["id"] for row in told["rows"]} == {"half", "whole"}


def test_words_of_a_run_that_was_replaced_are_found_no_more(serve, tmp_path):
    def found(words: str) -> list[str]:
        end = time.monotonic() + 20
        while True:
            told = json.loads(ask(served.url, f"/api/episodes?text={words}")[2])
            if told["searched"][0] == told["searched"][1] == told["all"] > 0:
                return sorted(row["id"] for row in told["rows"])
            assert time.monotonic() < end, told["searched"]
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


def test_one_lost_sibling_leaves_the_others(serve, tmp_path):
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


def test_numbers_of_an_action_are_rounded_where_they_are_shown_alone(serve, tmp_path):
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


def test_the_list_spells_out_what_would_steer_a_terminal(tmp_path, capsys):
    with Recorder(tmp_path) as recorder:
        recorder.episode(
            scored("a", outcome=Outcome.ENV_ERROR, error="\x1b[31mred \ud800"),
            split="train", step=1,
        )  # fmt: skip
    assert agentrl(["replay", str(tmp_path), "--list"]) == 0
    told = capsys.readouterr().out
    assert "\\x1b[31mred \\ud800" in told
    assert "\x1b" not in told


def test_pictures_that_no_webp_takes_are_scaled():
    tall = np.zeros((20_000, 2, 3), np.uint8)
    shown = cv2.imdecode(np.frombuffer(webp(tall, 96), np.uint8), cv2.IMREAD_COLOR)
    assert shown.shape[0] <= 16_383


def test_a_run_that_takes_the_place_of_another_is_shown(serve, tmp_path):
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
    assert found() == []
    assert json.loads(ask(served.url, "/api/curves")[2]) == []
    with Recorder(run) as recorder:
        for name in ("new1", "new2"):
            recorder.episode(scored(name), split="train", step=1)
    assert sorted(found()) == ["new1", "new2"]


def test_the_address_of_a_page_brings_its_token_once(serve, tmp_path, monkeypatch):
    served = serve(runs.run(tmp_path / "run"))
    monkeypatch.setattr(served.guard, "is_loopback", False)  # as if it listened to the network
    token = served.guard.token
    assert ask(served.url, "/api/run")[0] == 403
    assert ask(served.url, "/?token=guessed")[0] == 403
    status, headers, _ = ask(served.url, f"/phones?token={token}")
    assert (status, headers["location"]) == (303, f"/phones#token={token}")
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=strict" in headers["set-cookie"]
    cookie = headers["set-cookie"].partition(";")[0]
    assert ask(served.url, "/api/run", Cookie=cookie)[0] == 200
    _, headers, _ = ask(served.url, f"//evil.example/?token={token}")
    assert headers["location"].startswith("/evil.example/")


def test_the_command_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    run = runs.run(tmp_path / "run")
    command = [sys.executable, "-m", "agentrl", "replay", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url, _, token = server.stdout.readline().split()[0].partition("#token=")
        assert len(token) > 20
        with urllib.request.urlopen(f"{url}api/run", timeout=30) as answer:
            assert json.loads(answer.read())["count"] == 17
        server.terminate()
        assert server.wait(20) == 143


def test_an_end_while_pictures_are_made_is_an_end_as_any_other(tmp_path):
    run = tmp_path / "run"
    with Recorder(run) as recorder:
        frames = [recorder.frame(screen(n, 1080, 2400)) for n in range(24)]
        runs.played(recorder, "train", 0)
    command = [sys.executable, "-m", "agentrl", "replay", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        url = server.stdout.readline().decode().partition("/#")[0]
        asking = [HTTPConnection(url.removeprefix("http://"), timeout=30) for _ in frames]
        for connection, frame in zip(asking, frames, strict=True):
            connection.request("GET", f"/frames/{frame}?width=384")
        asking[0].getresponse()
        server.terminate()
        said = server.communicate(timeout=20)[1]
        assert (server.returncode, b"terminate" in said) == (143, False), said
        for connection in asking:
            connection.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_an_end_in_the_middle_of_everything_leaves_nothing_behind(tmp_path, number, code):
    run, temporary = runs.run(tmp_path / "run"), tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "agentrl", "replay", str(run), "--port", "0"]
    places = {name: str(temporary) for name in ("TMPDIR", "SQLITE_TMPDIR")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **places}
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().partition("#")[0]
        with urllib.request.urlopen(f"{url}api/news", timeout=30) as news:
            assert news.readline().startswith(b"data: ")  # a page that stays open
            with urllib.request.urlopen(f"{url}api/episodes?text=card", timeout=30) as answer:
                assert json.loads(answer.read())["searched"][1] == 17
            server.send_signal(number)
            assert server.wait(10) == code
    assert list(temporary.iterdir()) == []
    assert {path.name for path in run.iterdir()} == {
        "config.yaml", "episodes", "frames", "metrics.jsonl",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (["--episode", "train-00001-g000-m00"], "/episodes/train-00001-g000-m00#token="),
        (["--group", "train-00001-g000"], "/groups/train-00001-g000#token="),
    ],
)
def test_the_command_tells_the_address_of_what_was_asked_for(tmp_path, arguments, page) -> None:
    run = runs.run(tmp_path / "run")
    command = [sys.executable, "-m", "agentrl", "replay", str(run), "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert page in server.stdout.readline()
        server.terminate()
        server.wait(20)


def test_what_cannot_be_served_is_told(tmp_path: Path, small) -> None:
    run = runs.run(tmp_path / "run")
    taken = small.url.rpartition(":")[2]
    for arguments, words in (
        ([str(run), "--port", taken], "--port 0 takes a free one"),
        ([str(tmp_path / "gone")], "no such run"),
        ([str(run), "--host", "\u00e4..b"], "cannot listen there"),
    ):
        command = [sys.executable, "-m", "agentrl", "replay", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert words in done.stderr
