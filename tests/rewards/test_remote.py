import base64
import http.server
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import numpy as np
import PIL.Image
import pytest

from agentrl import cli
from agentrl.config import RewardConfig
from agentrl.errors import ConfigError, RewardError
from agentrl.rewards.remote import OpenRLHF, Remote
from agentrl.rollout.rewards.scoring import RewardFunctions
from tests.rollout.rewards.test_reward_calls import answered

THEIRS = """
import time


def compute_score(reward_inputs, bonus=0.0):
    rows = []
    for one in reward_inputs:
        if one["response"] == "raise":
            raise KeyError("a bad day")
        if one["response"].startswith("raise "):
            raise ValueError("no such word: " + one["response"])
        if one["response"] == "hang":
            time.sleep(60)
        if one["response"] == "skip":
            rows.append({})
            continue
        if one["response"] == "count":
            rows.append({"overall": len(reward_inputs)})
            continue
        rows.append({
            "overall": float(one["response"] == one["ground_truth"]) + bonus,
            "bright": float(one["images"][0].mean()) if one["images"] else -1.0,
        })
        if one["response"].startswith("name "):
            rows[-1][one["response"]] = 0.0
    return rows


compute_score.max_batch_size = 4


def of_an_episode(episode):
    return 0.0
"""


@contextmanager
def served(folder, *arguments, **environment):
    (folder / "theirs.py").write_text(THEIRS)
    process = subprocess.Popen(
        [sys.executable, "-m", "agentrl", "serve-reward", "theirs.py:compute_score", "--port", "0",
         *arguments],
        cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        process.stdout.close()


@contextmanager
def answering(*answers):
    """Run a server that gives these answers in order: (status, body, *headers)."""
    left = list(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body, *headers = left.pop(0)
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", left
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def inputs(*replies, image=None):
    images = [] if image is None else [image]
    return [{"response": r, "ground_truth": "42", "images": images} for r in replies]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("server"), "bonus=0.5", "--deadline-s", "3") as url:
        yield url


def test_a_function_is_called_over_the_network_with_images(server):
    image = np.full((4, 6, 3), 100, np.uint8)
    rows = Remote(server, images=True)(inputs("42", "41", image=image))
    assert rows == [{"overall": 1.5, "bright": 100.0}, {"overall": 0.5, "bright": 100.0}]
    assert Remote(server)(inputs("42", image=image)) == [{"overall": 1.5, "bright": -1.0}]


def test_it_is_a_reward_like_any_other(server):
    config = RewardConfig(function="agentrl.rewards.remote:Remote", kwargs={"url": server})
    scored = RewardFunctions([config], 30.0).score(answered("42"))
    assert scored.components == {"Remote": (0.0, 1.5), "Remote/bright": (0.0, -1.0)}


def test_a_failure_on_the_server_is_reported_and_affects_only_its_episode(server):
    good, bad = Remote(server)(inputs("42", "raise"))
    assert good["overall"] == 1.5
    assert "KeyError: 'a bad day'" in bad["error"]
    config = RewardConfig(function="agentrl.rewards.remote:Remote", kwargs={"url": server})
    with pytest.raises(RewardError, match="a bad day"):
        RewardFunctions([config], 30.0).score(answered("raise"))


def test_an_episode_that_the_served_function_does_not_score_has_no_reward(server):
    config = RewardConfig(function="agentrl.rewards.remote:Remote", kwargs={"url": server})
    with pytest.raises(RewardError, match="no reward function applies"):
        RewardFunctions([config], 30.0).score(answered("skip"))


def test_the_server_limits_its_calls_to_the_functions_batch_size(server):
    rows = Remote(server)(inputs(*["count"] * 6))
    assert [row["overall"] for row in rows] == [4, 4, 4, 4, 2, 2]


def test_a_lone_surrogate_in_an_error_message_is_handled(server):
    good, bad, named = Remote(server)(inputs("42", "raise \ud800", "name \ud800"))
    assert good["overall"] == 1.5
    assert named == {"overall": 0.5, "bright": -1.0, r"name \ud800": 0.0}
    assert r"no such word: raise \ud800" in bad["error"]


def test_a_hanging_call_on_the_server_is_ended_and_the_next_one_works(server):
    (row,) = Remote(server, attempts=1)(inputs("hang"))
    assert "no result within --deadline-s=3 s; its process was killed" in row["error"]
    assert Remote(server)(inputs("42"))[0]["overall"] == 1.5


def test_an_invalid_request_is_rejected_with_a_message(server):
    import httpx

    for body, words in [
        (b"{", "invalid JSON"),
        (b"[]", "must be"),
        (json.dumps({"inputs": [{"images": 5}]}).encode(), "a list of data URIs"),
        (json.dumps({"inputs": [{"images": {"a": 1}}]}).encode(), "a list of data URIs"),
        (json.dumps({"inputs": [{"images": ["/etc/passwd"]}]}).encode(), "data URI"),
        (json.dumps({"inputs": [{"images": ["data:/../mine.png"]}]}).encode(), "data URI"),
        (json.dumps({"inputs": [{"images": ["data:x,image/png;base64,"]}]}).encode(), "data URI"),
    ]:
        answer = httpx.post(f"{server}/score", content=body)
        assert answer.status_code == 400
        assert words in answer.json()["error"]
    assert httpx.get(f"{server}/health").json() == {"function": "theirs.py:compute_score"}


def png(width, height):
    held = io.BytesIO()
    PIL.Image.new("1", (width, height)).save(held, "PNG")
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode()


def test_large_images_of_a_request_are_decoded_beside_the_server_within_the_deadline(server):
    import httpx

    large = {"response": "42", "ground_truth": "42", "images": [png(8000, 8000)] * 3}
    with ThreadPoolExecutor() as pool:
        scored = pool.submit(httpx.post, f"{server}/score", json={"inputs": [large]}, timeout=30)
        slowest = 0.0
        while not scored.done():
            began = time.monotonic()
            httpx.get(f"{server}/health").raise_for_status()
            slowest = max(slowest, time.monotonic() - began)
    (row,) = scored.result().json()["rows"]
    assert row == {"overall": 1.5, "bright": 0.0} or "no result within --deadline" in row["error"]
    assert slowest < 1.0


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ([png(8000, 8000)] * 9, "images have 576,000,000 pixels; the maximum is 512,000,000"),
        ([png(1, 1)] * 2049, "2049 images; the maximum is 2048"),
        ([png(8001, 8000)], "8001x8000 pixels exceed the maximum of 64,000,000"),
        (["data:image/png;base64,AAAA"], "not recognized as PNG"),
    ],
)
def test_too_many_or_too_large_images_are_refused(server, images, words):
    import httpx

    halves = [{"response": "42", "images": images[:5]}, {"response": "42", "screens": images[5:]}]
    answer = httpx.post(f"{server}/score", json={"inputs": halves})
    assert answer.status_code in (400, 413)
    assert words in answer.json()["error"]


def test_an_image_that_cannot_be_decoded_voids_only_its_episode(server):
    import httpx

    broken = png(300, 300)[:-40]
    sent = [
        {"response": "42", "ground_truth": "42", "images": [one]} for one in (png(3, 3), broken)
    ]
    good, bad = httpx.post(f"{server}/score", json={"inputs": sent}).json()["rows"]
    assert good == {"overall": 1.5, "bright": 0.0}
    assert "ImageError" in bad["error"]


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_a_request_that_a_web_page_may_have_caused_is_refused(server, headers):
    import httpx

    for path in ("score", "get_reward"):
        answer = httpx.post(f"{server}/{path}", content=b"{}", headers=headers)
        assert answer.status_code == 403
        assert "server: " in answer.json()["error"]
    assert httpx.get(f"{server}/health", headers={"Origin": server}).status_code == 200


def test_a_token_is_required_if_one_is_set(tmp_path, monkeypatch):
    with served(tmp_path, AGENTRL_REWARD_TOKEN="open sesame") as url:
        with pytest.raises(RewardError, match="401"):
            Remote(url)(inputs("42"))
        monkeypatch.setenv("AGENTRL_REWARD_TOKEN", "open sesame")
        assert Remote(url)(inputs("42"))[0]["overall"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["theirs.py:of_an_episode"], "takes an episode"),
        (["theirs.py:compute_score", "--host", "0.0.0.0"], "AGENTRL_REWARD_TOKEN"),
        (["theirs.py:compute_score", "bnous=1"], "does not accept its kwargs"),
        (["theirs.py:compute_score", "bonus"], "key=value"),
    ],
)
def test_invalid_command_arguments_are_reported(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.delenv("AGENTRL_REWARD_TOKEN", raising=False)
    (tmp_path / "theirs_too.py").write_text(THEIRS)
    where = arguments[0].replace("theirs.py", f"{tmp_path}/theirs_too.py")
    assert cli.run(["serve-reward", where, *arguments[1:]]) == 2
    assert words in capsys.readouterr().err
    sys.modules.pop("theirs_too", None)


ROWS = json.dumps({"rows": [{"overall": 1.0}]}).encode()


def test_a_request_to_a_busy_server_is_retried():
    with answering((503, b"later"), (502, b"later"), (200, ROWS)) as (url, left):
        assert Remote(url)(inputs("42")) == [{"overall": 1.0}]
        assert left == []
    began = time.monotonic()
    with answering((429, b"", ("Retry-After", "1")), (200, ROWS)) as (url, left):
        assert Remote(url)(inputs("42")) == [{"overall": 1.0}]
    assert time.monotonic() - began >= 1


def test_a_response_that_is_cut_off_is_requested_again():
    cut = (200, ROWS[:9], ("Content-Length", "1000"))
    with answering(cut, (200, ROWS)) as (url, _):
        assert Remote(url)(inputs("42")) == [{"overall": 1.0}]
    with (
        answering(cut, cut) as (url, _),
        pytest.raises(RewardError, match="failed after 2 attempts: IncompleteRead"),
    ):
        Remote(url, attempts=2)(inputs("42"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, b"<html>"), "no rows"),
        ((200, b'{"rows": []}'), "0 rows for 1 episodes"),
        ((500, b'{"error": "out of memory"}'), "500: out of memory"),
        ((302, b""), "302"),
    ],
)
def test_an_invalid_response_is_an_error_at_once(answer, words):
    with answering(answer, (200, ROWS)) as (url, left):
        with pytest.raises(RewardError, match=words):
            Remote(url)(inputs("42"))
        assert len(left) == 1


@contextmanager
def dripping(begin):
    """Run a server that keeps sending one byte at a time as long as a client is connected."""
    listening = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def drip():
        peer, _ = listening.accept()
        with peer, suppress(OSError):
            peer.sendall(begin)
            while not done.wait(0.05):
                peer.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        done.set()
        thread.join()
        listening.close()


@pytest.mark.parametrize(
    "begin", [b"HTTP/1.0 200 ", b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.0 500 Oops\r\n\r\n"]
)
def test_a_slow_server_has_the_same_deadline(begin):
    with ThreadPoolExecutor() as pool, dripping(begin) as url:
        asked = pool.submit(Remote(url, deadline_s=0.5), inputs("42"))
        assert "in time" in str(asked.exception(15))


def test_an_unreachable_server_is_reported_within_the_deadline():
    with pytest.raises(RewardError, match=r"failed after 2 attempts: .*refused.*serve-reward"):
        Remote("http://127.0.0.1:9", attempts=2)(inputs("42"))


@pytest.mark.parametrize(
    "kwargs", [{"url": "ftp://x"}, {"url": "nonsense"}, {"url": "http://x", "attempts": 0}]
)
def test_an_invalid_url_is_rejected_before_any_work(kwargs):
    with pytest.raises(ConfigError):
        Remote(**kwargs)


# --- OpenRLHF's protocol ------------------------------------------------------------------

PROMPT = "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"
PADDED = PROMPT.replace("How", "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>How")


@pytest.mark.parametrize(
    ("query", "prompt"),
    [
        (f"{PROMPT}42<|im_end|>", PROMPT),
        (f"{PADDED}42<|im_end|>\n<|endoftext|>", PROMPT),  # an image is several tokens
        (f"{PROMPT}42<|im_end|>", '[{"role": "user", "content": "How many?"}]'),  # LMM-R1
        ("<s>[INST] How many? [/INST]42</s>", None),
    ],
)
def test_openrlhf_gets_rewards_of_the_response_alone(server, query, prompt):
    import httpx

    request = {"query": [query, "41"], "prompts": [prompt, ""], "labels": ["42", "42"]}
    answer = httpx.post(f"{server}/get_reward", json=request)
    assert answer.json() == {
        "rewards": [1.5, 0.5],
        "scores": [1.5, 0.5],
        "extra_logs": {"bright": [-1.0, -1.0]},
    }


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        ({"queries": ["42"]}, 400, '"query" must be a list of strings'),
        ({"query": ["42"], "labels": []}, 400, '"labels" must be a list as long as "query" (1)'),
        (
            {"query": ["42", "raise"], "labels": ["42", "42"]},
            500,
            "1 of 2 failed: .*a bad day",
        ),
        (
            {"query": ["skip", "42"], "labels": ["42", "42"]},
            500,
            "1 of 2 failed: returned None",
        ),
    ],
)
def test_openrlhf_gets_an_error_status_for_what_cannot_be_scored(server, content, status, words):
    import httpx

    answer = httpx.post(f"{server}/get_reward", json=content)
    assert answer.status_code == status
    assert re.search(words.replace("(1)", r"\(1\)"), answer.json()["error"])


def openrlhf_inputs(reply):
    (one,) = inputs(reply)
    return [one | {"shown": "How many?", "instructions": "", "message": "[...]"}]


def test_a_server_of_openrlhf_is_a_reward(server):
    client = OpenRLHF(f"{server}/get_reward")
    assert client(openrlhf_inputs("42")) == [{"overall": 1.5, "score": 1.5, "bright": -1.0}]
    assert client(openrlhf_inputs("41"))[0]["overall"] == 0.5


def test_requests_have_openrlhfs_format():
    sent = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"rewards": [0.5]}')

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=lambda: [listening.handle_request() for _ in range(2)])
        thread.start()
        url = f"http://127.0.0.1:{listening.server_port}/any/path"
        assert OpenRLHF(url)(openrlhf_inputs("42")) == [{"overall": 0.5}]
        assert OpenRLHF(url, prompt_key="message")(openrlhf_inputs("42")) == [{"overall": 0.5}]
        thread.join(10)
    query = f"{PROMPT}42<|im_end|>"
    assert sent == [
        {"query": [query], "prompts": [PROMPT], "labels": ["42"]},
        {"query": [query], "prompts": ["[...]"], "labels": ["42"]},
    ]
    with pytest.raises(ConfigError, match=r"prompt_key=mesage: .*did you mean 'message'"):
        OpenRLHF(url, prompt_key="mesage")(openrlhf_inputs("42"))


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"<html>", "<html>"), (b'{"rewards": []}', "0 rewards for 1"), (b'{"score": 1}', "no list")],
)
def test_an_invalid_answer_of_an_openrlhf_server_is_an_error(body, words):
    with answering((200, body)) as (url, _), pytest.raises(RewardError, match=words):
        OpenRLHF(url)(openrlhf_inputs("42"))
