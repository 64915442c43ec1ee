"""A real chat completions server over HTTP that gives the responses set by a test."""

import http.server
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Said = tuple[int, Mapping[str, str], bytes]
"""Status, headers and content."""


def ok(content: Any) -> Said:
    return 200, {}, json.dumps(content).encode()


def refusal(status: int, message: str, **headers: str) -> Said:
    return status, headers, json.dumps({"error": {"message": message, "code": status}}).encode()


def reply(text: Any, finish: Any = "stop", **others: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish, **others}]}


def exact(
    text: str, ids: Sequence[int], prompt_ids: Sequence[int] = (1, 2, 3), logprob: Any = -0.5
) -> dict[str, Any]:
    logprobs = {"content": [{"token": "t", "logprob": logprob} for _ in ids]}
    answer = reply(text, token_ids=list(ids), logprobs=logprobs)
    return {**answer, "prompt_token_ids": list(prompt_ids)}


@dataclass(slots=True, kw_only=True)
class Server:
    """Requests received, and responses to give."""

    url: str = ""
    models: Any = field(default_factory=lambda: ok({"data": [{"id": "toy"}]}))
    answers: deque[Any] = field(default_factory=deque)
    """One per following request: a response, or a function that writes it."""
    usual: Callable[[dict[str, Any]], Any] = lambda body: ok(reply("ok"))
    """Makes the response when no answer is left."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.headers.append(dict(self.headers))
            self.say(server.models if self.path == "/v1/models" else refusal(404, "no such page"))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                server.asked.append(body)
                server.headers.append(dict(self.headers))
                server.at_once += 1
                server.most_at_once = max(server.most_at_once, server.at_once)
                said = server.answers.popleft() if server.answers else server.usual(body)
            try:
                said(self) if callable(said) else self.say(said)
            finally:
                with lock:
                    server.at_once -= 1

        def say(self, said: Any) -> None:
            if callable(said):
                said(self)
                return
            status, headers, content = said
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            pass

    class Quiet(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *arguments: Any) -> None:
            """Ignore disconnecting clients, which some tests simulate."""

    http_server = Quiet(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http_server.server_port}/v1"
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        http_server.shutdown()
        thread.join(10)
        http_server.server_close()
