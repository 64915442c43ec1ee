import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from agentrl.cluster import ray_cluster
from agentrl.cluster.ray_actor_calls import short_reason
from agentrl.cluster.ray_actor_logs import _Formatter
from agentrl.errors import ClusterError


class FakeRay(SimpleNamespace):
    """As much of Ray as the cluster knows."""

    def __init__(self, running: bool = False) -> None:
        super().__init__(running=running)

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **_: Any) -> None:
        self.running = True

    def shutdown(self) -> None:
        self.running = False


@pytest.mark.parametrize("running", [True, False])
def test_a_session_is_ended_only_by_its_owner(
    monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    ray = FakeRay(running=running)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray_cluster, "_joined_here", False)
    ray_cluster.join_cluster()
    ray_cluster.join_cluster()  # Rollouts and learner both do.
    assert ray.running
    ray_cluster.leave_cluster()
    assert ray.running is running
    ray.running = True  # What the user starts later is the user's.
    ray_cluster.leave_cluster()
    assert ray.running


@pytest.mark.slow
@pytest.mark.parametrize("when", ["while Ray starts", "while workers start", "when it runs"])
def test_no_process_of_ray_outlives_a_killed_driver_for_long(when: str) -> None:
    script = """
import time
import agentrl.cluster.ray_cluster as cluster
cluster.join_cluster()
print("running", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        end = time.monotonic() + 60
        started: list[psutil.Process] = []
        named = "default_worker.py" if when == "while workers start" else "agent.py"
        while not any(_is_called(process, named) for process in started):
            assert time.monotonic() < end
            started = psutil.Process(driver.pid).children(recursive=True)
        if when == "when it runs":
            driver.stdout.readline()
            started = psutil.Process(driver.pid).children(recursive=True)
            listening = [
                c.laddr.ip for p in started for c in p.net_connections() if c.status == "LISTEN"
            ]
            assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}
        driver.kill()
    end = time.monotonic() + 15  # left alone, agents end after a minute, workers after half of it
    while left := [process for process in started if process.is_running()]:
        assert time.monotonic() < end, left
        time.sleep(0.1)


def _is_called(process: psutil.Process, program: str) -> bool:
    try:
        return any(word.endswith(program) for word in process.cmdline()[:3])
    except psutil.Error:  # it has ended already
        return False


def test_logs_of_a_run_do_not_name_its_phones() -> None:
    words = ("%s is lost, %s too", "R58M123", "192.168.1.7:5555")
    record = logging.LogRecord("agentrl", logging.WARNING, "x.py", 1, words[0], words[1:], None)
    line = _Formatter(["R58M123"]).format(record)
    assert "usb-" in line
    assert "net-" in line
    assert not any(serial in line for serial in words[1:])


def test_a_cluster_that_does_not_answer_is_reported_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "_CONNECT_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as server,
        contextlib.ExitStack() as full,
    ):
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for _ in range(3):  # no connection is accepted: further ones wait
            waiting = full.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        monkeypatch.setenv("RAY_ADDRESS", f"ray://{address}")
        with pytest.raises(ClusterError, match=rf"RAY_ADDRESS=ray://{address}: .*within 0\.2 s"):
            ray_cluster.join_cluster()
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ClusterError, match=rf"{address}: the cluster cannot be reached.*refused"):
        ray_cluster.join_cluster()


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", None])
def test_a_port_that_is_not_rays_is_reported_soon(
    monkeypatch: pytest.MonkeyPatch, says: bytes | None
) -> None:
    """It closes the connection, answers something else, or says nothing at all."""
    monkeypatch.setattr(ray_cluster, "_CONNECT_S", 0.2)

    def serve() -> None:
        with server.accept()[0] as connection:
            if says is None:
                over.wait(10)
            else:
                connection.recv(1024)
                connection.sendall(says)

    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{server.getsockname()[1]}")
        why = r"no answer within 0\.2 s" if says is None else "the server there is not Ray"
        with pytest.raises(ClusterError, match=rf"be reached \({why}\).*ray start --head"):
            ray_cluster.join_cluster()
        over.set()
        thread.join(10)


def test_joining_keeps_the_handler_of_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Replacing(FakeRay):
        def init(self, **_: Any) -> None:
            signal.signal(signal.SIGTERM, lambda number, frame: None)

    def own(number: int, frame: Any) -> None:
        pass

    monkeypatch.setitem(sys.modules, "ray", Replacing())
    monkeypatch.setattr(ray_cluster, "_joined_here", False)
    before = signal.signal(signal.SIGTERM, own)
    try:
        ray_cluster.join_cluster()
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        ray_cluster.leave_cluster()
        signal.signal(signal.SIGTERM, before)


def test_a_cluster_that_cannot_be_joined_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    script = "from agentrl.cluster.ray_cluster import join_cluster; join_cluster()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "RAY_ADDRESS": "nonsense", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "ClusterError: Ray did not start on nonsense" in done.stderr
    assert "copy ~/.ray/auth_token from its head node" in done.stderr
    assert "rollout.launcher=local" in done.stderr


def test_a_token_is_found_where_ray_looks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not ray_cluster._has_token()
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("t")
    assert ray_cluster._has_token()


@pytest.mark.slow
def test_ray_prints_nothing_about_a_node_that_the_job_has_lost() -> None:
    script = """
import os, signal, time
import agentrl.cluster.ray_cluster as cluster
from ray.cluster_utils import Cluster
nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
dies = nodes.add_node(num_cpus=1)
os.environ["RAY_ADDRESS"] = nodes.address
ray = cluster.join_cluster()
os.kill(dies.all_processes["raylet"][0].process.pid, signal.SIGKILL)
deadline = time.monotonic() + 60
while sum(node["Alive"] for node in ray.nodes()) > 1 and time.monotonic() < deadline:
    time.sleep(0.1)
time.sleep(2)  # for Ray's messages
print("the job's last line")
cluster.leave_cluster()
nodes.shutdown()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    shown = (done.stdout + done.stderr).splitlines()
    assert not [line for line in shown if "raylet" in line or "marked dead" in line]


def test_the_reason_of_a_lost_connection_is_not_rays_message() -> None:
    from ray.exceptions import ActorUnavailableError

    message = (
        "The actor is temporarily unavailable: RpcError: RPC error: Socket closed rpc_code: 14"
    )
    error = ActorUnavailableError(message, bytes(16))
    assert short_reason(error) == "the connection to its process was lost"
