"""The viewer's server: who may ask it, at which address, and how it starts and ends."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.client import HTTPConnection
from pathlib import Path

import pytest

from agentrl import replay
from agentrl.replay.recorder import Recorder
from agentrl.replay.run_reader import Run
from agentrl.runs.run_paths import episode_file
from agentrl.viewer.access_control import AccessGuard
from agentrl.viewer.viewer_server import DEFAULT_PORT, ViewerServer
from tests.replay.episodes import screen
from tests.viewer import runs
from tests.viewer.conftest import ask


@pytest.mark.parametrize("path", ["/", "/episodes", "/api/run", "/static/style.css", "/nothing"])
def test_the_security_headers_forbid_other_origins(small, path):
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
def test_foreign_host_names_are_refused(small, host):
    assert ask(small.url, "/api/run", Host=host)[0] == 403


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
def test_own_host_names_are_accepted_with_and_without_a_port(small, name):
    for host in (name, f"{name}:8200"):
        assert ask(small.url, "/api/run", Host=host)[0] == 200


def test_requests_from_foreign_pages_are_refused(small):
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
def test_paths_cannot_leave_the_run(small, path):
    status, _, body = ask(small.url, path)
    assert status in (404, 422)
    assert b"seed: 0" not in body
    assert b"import" not in body


def test_refusals_do_not_reveal_the_runs_location(serve, tmp_path):
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


def test_an_interrupt_during_startup_ends_the_server_thread(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    (tmp_path / "episodes").mkdir()
    before = set(threading.enumerate())
    monkeypatch.setattr(ViewerServer, "_wait_for_start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ViewerServer(Run(tmp_path))
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_beyond_loopback_every_request_needs_the_token():
    guard = AccessGuard("0.0.0.0", 8200)
    host = {"host": "192.0.2.7:8200"}
    assert "token" in str(guard.refusal(host, {}))
    assert "token" in str(guard.refusal(host, {"agentrl-8200": "guessed"}))
    assert guard.refusal(host, {"agentrl-8200": guard.token}) is None
    assert guard.refusal(host | {"origin": "http://evil.example"}, {"agentrl-8200": guard.token})


@pytest.mark.parametrize("host", ["127.0.0.2", "127.1", "::1", "localhost"])
def test_the_announced_address_works(tmp_path, host):
    served = ViewerServer(replay.open(runs.run(tmp_path / "run")), host=host)
    try:
        assert ask(served.url, "/api/run/name")[0] == 200
    finally:
        served.close()


def test_two_servers_on_one_host_have_separate_cookies():
    one, other = AccessGuard("0.0.0.0", 8200), AccessGuard("0.0.0.0", 8201)
    cookies = {one.cookie: one.token} | {other.cookie: other.token}
    assert one.refusal({"host": "192.0.2.7:8200"}, cookies) is None
    assert other.refusal({"host": "192.0.2.7:8201"}, cookies) is None


def test_the_token_in_the_address_is_used_once(serve, tmp_path, monkeypatch):
    served = serve(runs.run(tmp_path / "run"))
    monkeypatch.setattr(served.guard, "is_loopback", False)  # as if it listened on the network
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


def test_view_serves_until_it_is_stopped(tmp_path: Path) -> None:
    run = runs.run(tmp_path / "run")
    command = [sys.executable, "-m", "agentrl", "view", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url, _, token = server.stdout.readline().split()[0].partition("#token=")
        assert len(token) > 20
        with urllib.request.urlopen(f"{url}api/run", timeout=30) as answer:
            assert json.loads(answer.read())["count"] == 17
        server.terminate()
        assert server.wait(20) == 143


_SERVE = """
import sys, time
from agentrl.viewer import run_app, viewer_server
run_app.overview = lambda run: time.sleep(60)
viewer_server.serve(sys.argv[1], port=0, ready=lambda url: print(url, flush=True))
"""


def test_a_request_that_computes_does_not_keep_the_server_from_ending(tmp_path):
    run = runs.run(tmp_path / "run")
    command = [sys.executable, "-c", _SERVE, str(run)]
    silent = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with (
        subprocess.Popen(command, **silent) as interrupted,
        subprocess.Popen(command, **silent) as terminated,
    ):
        connections = []
        servers = {interrupted: (signal.SIGINT, 0), terminated: (signal.SIGTERM, 143)}
        for server, (number, _) in servers.items():
            url = server.stdout.readline().decode().partition("/#")[0]
            asking = HTTPConnection(url.removeprefix("http://"), timeout=30)
            asking.request("GET", "/api/run")
            assert ask(url, "/api/run/name")[0] == 200  # the first request has begun
            server.send_signal(number)
            connections.append(asking)
        for server, (_, code) in servers.items():
            assert server.wait(20) == code
        for asking in connections:
            asking.close()


def test_stopping_while_images_are_encoded_is_clean(tmp_path):
    run = tmp_path / "run"
    with Recorder(run) as recorder:
        frames = [recorder.frame(screen(n, 1080, 2400)) for n in range(24)]
        runs.played(recorder, "train", 0)
    command = [sys.executable, "-m", "agentrl", "view", str(run), "--port", "0"]
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
def test_stopping_under_load_leaves_nothing_running(tmp_path, number, code):
    run, temporary = runs.run(tmp_path / "run"), tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "agentrl", "view", str(run), "--port", "0"]
    places = {name: str(temporary) for name in ("TMPDIR", "SQLITE_TMPDIR")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **places}
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().partition("#")[0]
        with urllib.request.urlopen(f"{url}api/news", timeout=30) as news:
            assert news.readline().startswith(b"data: ")  # a stream that stays open
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
def test_view_prints_the_address_of_the_requested_page(tmp_path, arguments, page) -> None:
    run = runs.run(tmp_path / "run")
    command = [sys.executable, "-m", "agentrl", "view", str(run), "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert page in server.stdout.readline()
        server.terminate()
        server.wait(20)


def test_view_without_arguments_serves_the_folder_runs_at_the_next_free_port(tmp_path) -> None:
    runs.run(tmp_path / "runs" / "one")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # another program uses the port already
            taken.bind(("127.0.0.1", DEFAULT_PORT))
            taken.listen()
        command = [sys.executable, "-m", "agentrl", "view"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
            assert server.stdout is not None
            said = server.stdout.readline()
            server.terminate()
            server.wait(20)
    assert re.match(r"http://127\.0\.0\.1:82\d\d/", said)
    assert f"(port {DEFAULT_PORT} is in use; Ctrl-C stops the server)" in said


def test_view_reports_what_it_cannot_serve(tmp_path: Path, small) -> None:
    run = runs.run(tmp_path / "run")
    taken = small.url.rpartition(":")[2]
    for arguments, words in (
        ([str(run), "--port", taken], "--port 0 picks a free one"),
        ([str(tmp_path / "gone")], "no such run"),
        ([str(run), "--host", "\u00e4..b"], "cannot listen on host="),
    ):
        command = [sys.executable, "-m", "agentrl", "view", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert words in done.stderr
