"""Environments over HTTP, with the real server in a separate process."""

import asyncio
import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agentrl.cli.serve import standalone_program
from agentrl.config import Config, EnvConfig
from agentrl.data.gymnasium_spaces import AnyText
from agentrl.errors import ConfigError, EnvError, WorldError
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments import env_server
from agentrl.rollout.environments.env_client import RemoteEnv
from agentrl.rollout.environments.env_server import InvalidRequest, pack, unpack
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.types import Outcome

GAME = """
import os, time, gymnasium, numpy as np

class Game(gymnasium.Env):
    action_space = gymnasium.spaces.MultiDiscrete([3, 3])
    observation_space = gymnasium.spaces.Dict({
        "screen": gymnasium.spaces.Box(0, 255, (8, 6, 3), np.uint8),
        "n": gymnasium.spaces.Discrete(9),
    })
    metadata = {"render_modes": ["rgb_array"]}
    def __init__(self, render_mode=None, length=3, fault=None, url=0, deadline_s=0, token=0,
                 row=None):
        if fault == "full": raise OSError("too many open files")
        self.render_mode, self.length, self.fault = render_mode, length, fault
        self.named, self.row = [url, deadline_s, token], row or {}
    def look(self):
        screen = self.np_random.integers(256, size=(8, 6, 3), dtype=np.uint8)
        info = {"at": (1, 2), "mask": np.ones(2, np.int8), "named": self.named}
        return {"screen": screen, "n": self.steps}, info
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        observation, info = self.look()
        return observation, {**info, **self.row}
    def step(self, action):
        self.steps += 1
        if self.fault == "hang": time.sleep(60)
        if self.fault == "break" and action[0] == 2: raise RuntimeError("the game broke")
        ended = self.steps == self.length
        reward = "0.5" if self.fault == "text" else np.float32(0.5)
        return self.look()[0], reward, ended, False, {"n": self.steps}
    def render(self):
        return np.zeros((8, 6, 3), np.uint8)
"""
PLAY, BREAK = np.array([0, 0]), np.array([2, 0])

Start = Callable[..., tuple[str, subprocess.Popen[str]]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start copies of the server program, without agentrl."""
    (tmp_path / "game.py").write_text(GAME)
    program = tmp_path / "copied.py"
    program.write_text(standalone_program())
    running: list[subprocess.Popen[str]] = []
    errors = (tmp_path / "stderr").open("w")

    def begin(*arguments: str, **variables: str) -> tuple[str, subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-P", str(program), "game.py:Game", "--port", "0", *arguments],
            cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables},
            stderr=errors,
        )  # fmt: skip
        running.append(process)
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, "the server did not start"
        return found[0], process

    yield begin
    for process in running:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()
    errors.close()


@pytest.fixture
def remote() -> Iterator[Callable[..., RemoteEnv]]:
    """Open environments, and close them at the end."""
    with ExitStack() as opened:
        yield lambda *given, **named: opened.enter_context(closing(RemoteEnv(*given, **named)))


def test_a_served_environment_behaves_like_a_local_one(
    start: Start, tmp_path: Path, monkeypatch
) -> None:
    url, _ = start()
    monkeypatch.chdir(tmp_path)
    there = resolve_env(EnvConfig(id=url, kwargs={"length": 2, "render_mode": "rgb_array"})).make()
    scope: dict[str, Any] = {}
    exec(GAME, scope)
    here = scope["Game"](length=2)
    assert there.action_space == here.action_space
    assert there.observation_space == here.observation_space
    for ours, theirs in zip(here.reset(seed=5), there.reset(seed=5), strict=True):
        assert_same(ours, theirs)
    for _ in range(2):
        for ours, theirs in zip(here.step(PLAY), there.step(PLAY), strict=True):
            assert_same(ours, theirs)
    assert there.render().shape == (8, 6, 3)
    there.close()


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_same(ours[key], theirs[key])
    else:
        np.testing.assert_array_equal(ours, theirs)


async def test_episodes_are_collected_from_a_server_and_discarded_when_it_fails(
    start: Start,
) -> None:
    url, process = start()
    config = Config(
        env=EnvConfig(
            id=url,
            kwargs={"fault": "break"},
            translator_kwargs={"parameters": ["a", "b"]},
            patience_s=0.5,
        )
    )
    config.rollout.max_refills = 100
    rollouts = RolloutWorker(plan_rollouts(config), None, None)
    await rollouts.start()
    try:
        requests = requests_of_step("train", 1, [1, 2], 2)
        played = await rollouts.collect(requests, "random")
        assert all(len(e.episode.turns) == 3 for e in played)
        assert rollouts.progress.void["EnvError"] == rollouts.progress.episodes - len(requests) > 0
        config.rollout.max_refills = 0
        process.kill()
        with pytest.raises(WorldError, match="4 of 4 episodes are void"):
            await rollouts.collect(requests, "random")
    finally:
        await rollouts.close()


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"system": "Reply in French."}, r"a system message \(info\['system'\]\)"),
        ({"preceding": [{"role": "user", "content": "hello"}]}, "earlier messages"),
    ],
)
async def test_a_question_of_a_server_is_not_asked_without_its_own_messages(
    start: Start, row: dict[str, Any], what: str
) -> None:
    given = {"translator_kwargs": {"parameters": ["a", "b"]}, "kwargs": {"row": row}}
    env = EnvConfig(id=start()[0], **given)
    requests = requests_of_step("train", 1, [1], 1)
    for named, seen in ((None, False), ("space", True)):
        env.translator_class = named
        rollouts = RolloutWorker(plan_rollouts(Config(env=env)), None, None)
        await rollouts.start()
        try:
            if seen:
                assert len(await rollouts.collect(requests, "random")) == 1
            else:
                with pytest.raises(ConfigError, match=f"{what}.*env.translator_class=QA-v0"):
                    await rollouts.collect(requests, "random")
        finally:
            await rollouts.close()


def test_an_exception_is_reported_and_the_environment_can_be_reset(start: Start, remote) -> None:
    env = remote(start()[0], {"fault": "break"})
    env.reset(seed=1)
    with pytest.raises(EnvError, match=r"RuntimeError: the game broke \(game\.py"):
        env.step(BREAK)
    env.reset(seed=1)
    assert env.step(PLAY)[1] == 0.5


def test_a_text_is_no_reward(start: Start, remote) -> None:
    env = remote(start()[0], {"fault": "text"})
    env.reset(seed=1)
    with pytest.raises(EnvError, match=r"the reward is '0\.5' \(str\), not a number"):
        env.step(PLAY)


def test_a_slow_call_times_out(start: Start, remote) -> None:
    env = remote(start()[0], {"fault": "hang"}, deadline_s=4.0)
    env.reset(seed=1)
    with pytest.raises(EnvError, match=r"no answer within 4 s"):
        env.step(PLAY)


def test_a_retried_call_is_executed_once(start: Start, remote) -> None:
    env = remote(start()[0])
    env.reset(seed=1)
    first = env.step(PLAY)
    env._http.close()  # the connection breaks, and the answer may have been lost
    env._number -= 1
    again = env.step(PLAY)
    assert_same(first[0], again[0])
    assert env.step(PLAY)[4]["n"] == 2


def test_a_retried_open_makes_one_environment(start: Start) -> None:
    url, _ = start("--most", "1")
    for _ in range(2):
        status, answer = post(url, "open", pack({"key": "0" * 32}))
        assert (status, answer["render_mode"]) == (200, None)
    assert post(url, "open", pack({"key": "1" * 32}))[0] == 400


def test_a_failing_constructor_is_an_env_error_and_a_wrong_argument_a_config_error(
    start: Start, remote
) -> None:
    url, _ = start()
    with pytest.raises(EnvError, match="OSError: too many"):
        remote(url, {"fault": "full"})
    with pytest.raises(ConfigError, match="lenght"):
        remote(url, {"lenght": 2})


def test_arguments_of_the_environment_may_have_the_names_of_the_clients(
    start: Start, tmp_path
) -> None:
    url, _ = start()
    there = resolve_env(
        EnvConfig(id=url, kwargs={"url": "here", "deadline_s": 1, "token": "a"})
    ).make()
    assert there.reset(seed=1)[1]["named"] == ["here", 1, "a"]
    there.close()


def test_a_body_without_the_token_is_not_read(start: Start) -> None:
    url, _ = start(AGENTRL_ENV_TOKEN="s3cret")
    with socket.create_connection(urlsplit(url).netloc.split(":"), timeout=20) as connection:
        connection.sendall(b"POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 403")


def test_a_dead_server_is_an_env_error(start: Start, remote) -> None:
    url, process = start()
    env = remote(url)
    env.reset(seed=1)
    process.kill()
    process.wait(10)
    with pytest.raises(EnvError, match="Connection"):
        env.step(PLAY)
    env.close()
    with pytest.raises(EnvError, match=url):
        RemoteEnv(url)


async def test_a_restart_within_the_patience_voids_only_what_was_played(start: Start) -> None:
    url, process = start()
    config = Config(
        env=EnvConfig(id=url, translator_kwargs={"parameters": ["a", "b"]}, patience_s=60.0)
    )
    rollouts = RolloutWorker(plan_rollouts(config), None, None)
    await rollouts.start()
    try:
        requests = requests_of_step("train", 1, [1, 2], 2)
        await rollouts.collect(requests, "random")
        process.kill()  # the environments of the pool are gone, too
        process.wait(10)
        collecting = asyncio.create_task(rollouts.collect(requests, "random"))
        await asyncio.sleep(0.5)
        assert not collecting.done()
        start("--port", url.rpartition(":")[2])
        played = await collecting
        assert {e.episode.outcome for e in played} == {Outcome.TERMINATED}
        assert rollouts.progress.episodes == len(requests)
    finally:
        await rollouts.close()


def test_a_restart_in_an_episode_ends_it_and_not_the_next_one(start: Start, remote) -> None:
    url, process = start()
    env = remote(url, patience_s=30.0)
    env.reset(seed=1)
    process.kill()
    process.wait(10)
    start("--port", url.rpartition(":")[2])
    with pytest.raises(EnvError, match=r"/step \(seed 1\): HTTP 410: .* the server was restarted"):
        env.step(PLAY)
    env.reset(seed=1)
    assert env.step(PLAY)[1] == 0.5


def test_another_version_of_the_protocol_is_refused(start: Start, fixed_server) -> None:
    status, answer = post(start()[0], "open", pack({"key": "0" * 32, "version": 2}))
    assert (status, answer["error"].partition(";")[0]) == (
        400, "the client uses protocol version 2, but this server uses 1"
    )  # fmt: skip
    spec = dict.fromkeys(("action_space", "observation_space", "render_mode"))
    old = fixed_server(200, pack({**spec, "metadata": {}}))
    with pytest.raises(ConfigError, match="uses protocol version 0, but this agentrl uses 1"):
        RemoteEnv(old)


def test_an_idle_environment_is_closed(start: Start, remote) -> None:
    env = remote(start("--idle", "1.0", "--most", "1")[0])
    with pytest.raises(ConfigError, match="--most"):
        remote(env._url)
    end, other = time.monotonic() + 20, None
    while other is None and time.monotonic() < end:  # room for one more
        with suppress(ConfigError):
            other = remote(env._url)
    assert other is not None
    with pytest.raises(
        EnvError, match=r"/step: HTTP 410: this environment no longer exists: it was closed"
    ):
        env.step(PLAY)


def test_a_wrong_token_is_refused(start: Start, remote, monkeypatch) -> None:
    url, _ = start(AGENTRL_ENV_TOKEN="s3cret")
    for wrong in ("", "another"):
        monkeypatch.setenv("AGENTRL_ENV_TOKEN", wrong)
        with pytest.raises(ConfigError, match="the token is missing or wrong"):
            RemoteEnv(url)
    monkeypatch.setenv("AGENTRL_ENV_TOKEN", "s3cret")
    remote(url)
    with pytest.raises(InvalidRequest, match="AGENTRL_ENV_TOKEN"):
        env_server.EnvServer(gymnasium.Env, ("0.0.0.0", 0))


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}]
)
def test_a_request_that_a_web_page_may_have_caused_is_refused(start: Start, headers) -> None:
    url, _ = start()
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    with closing(connection):
        body = pack({"key": "0" * 32, "kwargs": {}})
        connection.request("POST", "/open", body, {"Content-Type": "text/plain", **headers})
        answer = connection.getresponse()
        assert answer.status == 403
        assert "server: " in unpack(answer.read())["error"]
    connection.request("POST", "/open", body, {"Origin": url})
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize(
    "name",
    ["LOCALHOST", "LocalHost:80", "localhost.", "localhost.:8100", "[0:0:0:0:0:0:0:1]:8100"],
)
def test_a_host_name_may_be_spelled_in_every_way(start: Start, name: str) -> None:
    url, _ = start()
    with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
        connection.request("POST", "/open", pack({"key": "0" * 32}), {"Host": name})
        assert connection.getresponse().status == 200


def test_a_refused_name_comes_with_a_cure(start: Start) -> None:
    url, _ = start()
    with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
        connection.request("POST", "/open", pack({"key": "0" * 32}), {"Host": "gateway:8100"})
        error = unpack(connection.getresponse().read())["error"]
    assert "not a name of this server: 'gateway:8100'" in error
    assert "localhost" in error
    assert "--host" in error


def test_a_page_behind_a_proxy_that_replaces_host_is_refused_with_a_cure(start: Start) -> None:
    url, _ = start()
    with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
        origin = {"Origin": "https://runs.example"}
        connection.request("POST", "/open", pack({"key": "0" * 32}), origin)
        error = unpack(connection.getresponse().read())["error"]
    assert "'https://runs.example', not '127.0.0.1:" in error
    assert "forward the Host header" in error
    assert "--host other than loopback" in error


def test_a_taken_port_is_an_error_of_one_line(start: Start, tmp_path: Path) -> None:
    url, _ = start()
    port = str(urlsplit(url).port)
    command = [sys.executable, "-P", "copied.py", "game.py:Game", "--port", port]
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert second.returncode == 1
    assert second.stderr.startswith(f"cannot listen on 127.0.0.1:{port}: ")
    assert second.stderr.count("\n") == 1


def test_a_server_may_listen_on_ipv6(start: Start, remote) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    url, _ = start("--host", "::1")
    assert urlsplit(url).hostname == "::1"
    remote(url).reset(seed=1)


def test_half_open_connections_take_few_threads_and_keep_no_client_out(
    start: Start, remote, tmp_path: Path
) -> None:
    url, process = start("--most", "8")
    address, threads = urlsplit(url), Path(f"/proc/{process.pid}/task")
    before, env = len(list(threads.iterdir())), remote(url)
    with ExitStack() as opened:
        for number in range(600):
            connection = socket.create_connection((address.hostname, address.port), 10)
            opened.enter_context(connection)
            connection.send(b"POST /open HTTP/1.1\r\n" if number % 2 else b"")
        env.reset(seed=1)
        remote(url).reset(seed=2)
        assert len(list(threads.iterdir())) - before < 80
        env.step(PLAY)
    assert not (tmp_path / "stderr").read_text()  # no traceback per connection


def test_clients_may_connect_long_before_they_send(start: Start, remote) -> None:
    url, _ = start()
    connections = [http.client.HTTPConnection(urlsplit(url).netloc, timeout=20) for _ in range(200)]
    for connection in connections:
        connection.connect()
    for number, connection in enumerate(connections):
        connection.request("POST", "/open", pack({"key": f"{number:032x}"}))
        assert connection.getresponse().status == 200
        connection.close()


def test_many_clients_may_connect_at_once(start: Start, remote) -> None:
    url, _ = start()
    together = threading.Barrier(100)

    def reset(seed: int) -> None:
        together.wait(20)
        remote(url, patience_s=0.0).reset(seed=seed)

    with ThreadPoolExecutor(100) as threads:
        list(threads.map(reset, range(100)))


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("open", b"", "the message is not valid"),
        ("open", b"\xff\xff\xff\xff{}", "the message is incomplete"),
        ("open", pack([1]), "must be a dictionary"),
        ("open", pack({"key": "0" * 32, "kwargs": {"lenght": 2}}), "unexpected keyword"),
        ("open", pack({"key": "../x"}), "32 random hexadecimal"),
        ("step", pack({"key": "x", "action": 1}), "this environment no longer exists"),
        ("_make", pack({"key": "x"}), "unknown path"),
        ("open", b"[" * 100_000, "the message is "),
    ],
)
def test_an_invalid_request_is_refused(start: Start, path: str, body: bytes, message: str) -> None:
    status, answer = post(start()[0], path, body)
    assert status in (400, 410, 500)
    assert message in answer["error"]


def post(url: str, path: str, body: bytes) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)) as connection:
        connection.request("POST", f"/{path}", body)
        response = connection.getresponse()
        return response.status, unpack(response.read())


def test_an_invalid_url_is_a_config_error() -> None:
    for url in ("http://", "http://127.0.0.1:1/path", "https://127.0.0.1:1"):
        with pytest.raises(ConfigError, match="must have the form http"):
            RemoteEnv(url)
    with pytest.raises(ConfigError, match=r"env\.id"):
        open_translator(resolve_env(EnvConfig(id="http://127.0.0.1:9")))


@pytest.fixture
def fixed_server() -> Iterator[Callable[..., str]]:
    """Serve the same answer to every request."""
    running: list[ThreadingHTTPServer] = []

    def begin(status: int, body: bytes, length: int | None = None, pause_s: float = 0.0) -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                with suppress(OSError):
                    for place in range(len(body)):
                        self.wfile.write(body[place : place + 1])
                        time.sleep(pause_s)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield begin
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, pack({})), (200, pack([1])), (500, pack([1])), (200, b"<html>"), (302, b""),
        (429, b"slow down"), (200, pack({"observation_space": 1})[:-3]),
    ],
)  # fmt: skip
def test_an_unexpected_answer_is_an_error(fixed_server, status: int, body: bytes) -> None:
    named = r"HTTP \d+: not an environment server|env\.id=.* is not an environment server"
    with pytest.raises((ConfigError, EnvError), match=named):
        RemoteEnv(fixed_server(status, body))


def test_an_answer_that_is_slow_or_too_long_is_an_error(fixed_server) -> None:
    started = time.monotonic()
    with pytest.raises(EnvError, match="no answer within 2 s"):
        RemoteEnv(fixed_server(200, b"x" * 100, pause_s=0.5), deadline_s=2.0)
    assert time.monotonic() - started < 15
    with pytest.raises(EnvError, match="the maximum is"):
        RemoteEnv(fixed_server(200, b"x", length=10**12))
    with pytest.raises(EnvError, match="IncompleteRead"):
        RemoteEnv(fixed_server(200, b"x", length=100))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | hnp.arrays(st.sampled_from([np.uint8, np.float32, np.int64, np.bool_]), (2, 3)),
    lambda inner: st.lists(inner, max_size=3)
    | st.tuples(inner, inner)
    | st.dictionaries(st.text().filter(lambda key: not key.startswith("$")), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(VALUES)
def test_a_value_survives_the_round_trip(value: Any) -> None:
    def check(sent: Any, got: Any) -> None:
        assert type(got) is type(sent)
        if isinstance(sent, np.ndarray):
            assert got.dtype == sent.dtype
            np.testing.assert_array_equal(got, sent)
        elif isinstance(sent, dict):
            assert sent.keys() == got.keys()
            for key in sent:
                check(sent[key], got[key])
        elif isinstance(sent, list | tuple):
            assert len(sent) == len(got)
            for a, b in zip(sent, got, strict=True):
                check(a, b)
        else:
            assert sent == got

    check(value, unpack(pack(value)))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(4),
        spaces.Box(-1.0, 1.0, (2, 3)),
        spaces.Box(0, 255, (4, 4, 3), np.uint8),
        spaces.Text(5, charset="abc"),
        spaces.Tuple([spaces.Discrete(2), spaces.Box(0.0, 1.0, (1,))]),
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.MultiBinary([2, 2])}),
    ],
)
def test_a_space_survives_the_round_trip(space: gymnasium.Space[Any]) -> None:
    assert unpack(pack(env_server.sendable(space))) == space


def test_an_unsupported_space_arrives_as_its_description() -> None:
    got = unpack(pack(env_server.sendable(spaces.Sequence(spaces.Discrete(2)))))
    assert "Sequence" in repr(got)
    assert got.contains("anything")


def test_an_unsupported_space_of_texts_arrives_as_one() -> None:
    got = unpack(pack(env_server.sendable(AnyText())))
    assert env_server.is_text_space(got)
    assert not got.contains(1)


def test_an_unsupported_value_is_an_error() -> None:
    for value in (object(), {1: 2}, {"$array": 1}, np.array([object()])):
        with pytest.raises(InvalidRequest, match="cannot be sent"):
            pack({"a": value})


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(message: bytes) -> None:
    try:
        unpack(message)
    except InvalidRequest:
        return
