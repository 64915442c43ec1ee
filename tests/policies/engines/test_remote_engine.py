import gzip
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.config import EndpointConfig
from agentrl.errors import ConfigError, EngineError
from agentrl.policies.engines import chat_completions_format, remote_engine
from agentrl.policies.engines.engine import Completion, EngineSettings, Sampling
from agentrl.policies.engines.remote_engine import RemoteEngine
from tests.policies.completions_server import Server, exact, ok, refusal, reply, serving

ASKED = [{"role": "user", "content": "hello"}]
CALLS = Sampling(stop_texts=("</tool_call>",))
KEY = "sk-not-to-be-leaked-1234"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_engine, "_BACKOFF_S", 0.01)


@pytest.fixture
async def started(server: Server) -> AsyncIterator[RemoteEngine]:
    """A started client; the requests of the start are cleared."""
    client = at(server)
    await client.start()
    server.asked.clear()
    yield client
    await client.close()


def at(server: Server, *, deadline_s: float = 20.0, **settings: Any) -> RemoteEngine:
    endpoint = EndpointConfig(url=server.url, **settings)
    return RemoteEngine(
        EngineSettings(endpoint=endpoint, deadline_s=deadline_s, start_deadline_s=20.0)
    )


async def start(client: RemoteEngine) -> RemoteEngine:
    try:
        await client.start()
    finally:
        await client.close()
    return client


async def test_top_p_is_sent_if_it_is_not_1(started: RemoteEngine, server: Server) -> None:
    for top_p in (1.0, 0.8):
        await started.chat(ASKED, Sampling(top_p=top_p))
    assert [request.get("top_p") for request in server.asked] == [None, 0.8]


async def test_probable_tokens_are_requested_and_read_by_their_ids(server: Server) -> None:
    def answer(name: str) -> Any:
        found = exact("ok", [7, 8])
        for token in found["choices"][0]["logprobs"]["content"]:
            token["top_logprobs"] = [
                {"token": f"{name}{id}", "logprob": p}
                for id, p in ((7, -0.5), (9, -1.5), (8, -1e9))
            ]
        return ok(found)

    server.answers += [ok(exact("ok", [7])), answer("token_id:"), answer("word")]
    client = at(server)
    await client.start()
    replies = [await client.chat(ASKED, Sampling(top_logprobs=3)) for _ in range(2)]
    await client.close()
    assert (server.asked[-1]["top_logprobs"], "top_logprobs" in server.asked[0]) == (3, False)
    assert [reply.top_logprobs for reply in replies if reply] == [
        (((7, -0.5), (9, -1.5)),) * 2,
        (),
    ]


async def test_requests_contain_the_configured_fields(server: Server) -> None:
    client = at(server, headers={"X-Team": "games"}, extra_body={"top_p": 0.5, "seed": None})
    await client.start()
    found = await client.chat(ASKED, Sampling(temperature=0.7, max_new_tokens=9, seed=2**40 + 5))
    await client.close()
    assert (client.model, found) == ("toy", Completion(text="ok", finish_reason="stop"))
    assert server.asked[-1] == {
        "model": "toy", "messages": ASKED, "temperature": 0.7, "max_tokens": 9, "top_p": 0.5,
    }  # fmt: skip
    assert server.asked[0]["max_tokens"] == 1
    assert all(headers["X-Team"] == "games" for headers in server.headers)
    assert not any("Authorization" in headers for headers in server.headers)


@pytest.mark.parametrize(
    "said",
    [
        reply("<tool_call>{}</tool_call>"),
        reply("<tool_call>{}</tool_call>\n<tool_call>{}</tool_call>"),
        reply("<tool_call>{}"),
        reply("<tool_call>{}", stop_reason="</tool_call>"),
        reply("<tool_call>{}", matched_stop="</tool_call>"),
    ],
    ids=["kept", "ignored", "left out", "reported by vLLM", "reported by SGLang"],
)
async def test_a_reply_ends_with_the_stop_text_whatever_the_server_does_with_it(
    server: Server, started: RemoteEngine, said: Any
) -> None:
    server.answers.append(ok(said))
    found = await started.chat(ASKED, CALLS)
    assert server.asked[-1]["stop"] == ["</tool_call>"]
    assert found == Completion(text="<tool_call>{}</tool_call>", finish_reason="stop")


@pytest.mark.parametrize(
    "said",
    [
        reply("I am done"),
        reply("<tool_call>{}", "length"),
        reply("<tool_call>{}", stop_reason=None),
        reply("<tool_call>{}", stop_reason=151645),
    ],
)
async def test_a_reply_that_ends_otherwise_gets_no_stop_text(
    server: Server, started: RemoteEngine, said: Any
) -> None:
    server.answers.append(ok(said))
    found = await started.chat(ASKED, CALLS)
    (choice,) = said["choices"]
    expected = choice["message"]["content"], choice["finish_reason"]
    assert (found.text, found.finish_reason) == expected


async def test_tokens_of_a_reply_that_was_cut_are_not_used(server: Server) -> None:
    server.usual = lambda body: ok(exact("<tool_call>{}</tool_call> and more", [7, 8]))
    client = at(server)
    await client.start()
    assert await client.chat(ASKED, CALLS) == Completion(
        text="<tool_call>{}</tool_call>", finish_reason="stop"
    )
    await client.close()


async def test_seeds_fit_into_31_bits(server: Server, started: RemoteEngine) -> None:
    for seed in (3, 2**40 + 3):
        await started.chat(ASKED, Sampling(temperature=0, seed=seed))
    assert [body["seed"] for body in server.asked] == [3, 3]


async def test_reported_tokens_are_used(server: Server) -> None:
    server.usual = lambda body: ok(exact("up", [7, 8]))
    client = at(server)
    await client.start()
    found = await client.chat(ASKED, Sampling())
    assert found == Completion(
        text="up",
        finish_reason="stop",
        prompt_ids=(1, 2, 3),
        reply_ids=(7, 8),
        logprobs=(-0.5, -0.5),
    )
    assert (server.asked[-1]["return_token_ids"], server.asked[-1]["logprobs"]) == (True, True)
    incomplete = exact("up", [7, 8])
    incomplete["choices"][0]["logprobs"]["content"].pop()
    server.answers += [ok(incomplete), ok(reply("up", token_ids=[7, 8]))]
    assert await client.chat(ASKED, Sampling()) == Completion(text="up", finish_reason="stop")
    assert await client.chat(ASKED, Sampling()) == Completion(text="up", finish_reason="stop")
    await client.close()


async def test_tokens_are_not_requested_from_a_server_that_does_not_report_them(
    server: Server, started: RemoteEngine
) -> None:
    await started.chat(ASKED, Sampling())
    assert not {"return_token_ids", "logprobs"} & server.asked[-1].keys()


@pytest.mark.parametrize("status", [400, 422])
async def test_a_server_that_rejects_token_ids_is_asked_without_them(
    server: Server, status: int
) -> None:
    def strict(body: dict[str, Any]) -> Any:
        if "return_token_ids" in body:
            return refusal(status, "Unrecognized request argument supplied: return_token_ids")
        return ok(reply("ok"))

    server.usual = strict
    client = at(server)
    await client.start()
    assert await client.chat(ASKED, Sampling()) == Completion(text="ok", finish_reason="stop")
    await client.close()
    assert len(server.asked) == 3


def models(*names: str) -> Any:
    return ok({"data": [{"id": name} for name in names]})


@pytest.mark.parametrize(
    ("listed", "settings", "words"),
    [
        (models("a", "b"), {}, ["serves 2 models ('a', 'b')", "set rollout.endpoint.model"]),
        (models(), {}, ["does not list its models", "rollout.endpoint.model"]),
        (refusal(404, "no"), {}, ["does not list its models"]),
        (ok([1]), {}, ["does not list its models"]),
        ((200, {}, b"<html>welcome</html>"), {}, ["invalid JSON", "<html>welcome"]),
        (
            refusal(401, "who are you?"),
            {},
            ["status 401", "set rollout.endpoint.api_key_env"],
        ),
        (refusal(403, "no"), {"api_key_env": "TEST_KEY"}, ["403", "rejects the key in TEST_KEY"]),
        (refusal(418, "teapot"), {}, ["returned status 418: 'teapot'"]),
        ((307, {"Location": "http://127.0.0.1:1/"}, b""), {}, ["returned status 307"]),
    ],
)
async def test_an_unusable_server_is_a_config_error(
    server: Server, monkeypatch: pytest.MonkeyPatch, listed: Any, settings: Any, words: list[str]
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    server.models = listed
    with pytest.raises(ConfigError) as error:
        await start(at(server, **settings))
    assert f"rollout.endpoint.url={server.url}" in str(error.value)
    for word in words:
        assert word in str(error.value)


async def test_an_unknown_model_is_reported_with_the_available_ones(server: Server) -> None:
    server.models = models("qwen-7b", "llama")
    server.usual = lambda body: refusal(404, f"The model `{body['model']}` does not exist.")
    with pytest.raises(ConfigError) as error:
        await start(at(server, model="qwen-7"))
    assert "rollout.endpoint.model='qwen-7'" in str(error.value)
    assert "did you mean 'qwen-7b'" in str(error.value)
    assert "It serves 'qwen-7b', 'llama'" in str(error.value)


async def test_an_unlisted_model_that_answers_is_accepted(server: Server) -> None:
    server.models = models("qwen-7b-2026")
    assert (await start(at(server, model="qwen-7b"))).model == "qwen-7b"
    server.models = refusal(404, "no such page")
    assert (await start(at(server, model="qwen-7b"))).model == "qwen-7b"


async def test_fields_that_the_server_rejects_are_reported(server: Server) -> None:
    server.usual = lambda body: refusal(400, "top_p must be at most 1")
    with pytest.raises(ConfigError, match="top_p must be at most 1"):
        await start(at(server, extra_body={"top_p": 7}))


async def test_an_unreachable_server_is_reported_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = EndpointConfig(url=f"http://127.0.0.1:{free.getsockname()[1]}/v1")
        client = RemoteEngine(EngineSettings(endpoint=nowhere))
        began = time.monotonic()
        with pytest.raises(ConfigError, match=r"ConnectError.*vllm serve"):
            await start(client)
    assert time.monotonic() - began < 5


async def test_the_start_has_a_deadline(server: Server) -> None:
    server.models = lambda handler: server.over.wait(30)
    endpoint = EndpointConfig(url=server.url)
    client = RemoteEngine(EngineSettings(endpoint=endpoint, start_deadline_s=0.2))
    with pytest.raises(ConfigError, match=r"no answer within 0\.2 s \(rollout\.start_deadline_s\)"):
        await start(client)


async def test_a_busy_server_is_retried(server: Server, started: RemoteEngine) -> None:
    server.answers += [refusal(429, "slow down", **{"Retry-After": "0"}), refusal(503, "loading")]
    server.answers.append(lambda handler: handler.connection.shutdown(socket.SHUT_RDWR))
    assert await started.chat(ASKED, Sampling()) == Completion(text="ok", finish_reason="stop")
    assert len(server.asked) == 4


@pytest.mark.parametrize("header", ["soon", "-1", "1e9", "Wed, 21 Oct 2015 07:28:00 GMT", "\xb2"])
async def test_a_retry_after_that_is_no_number_of_seconds_is_ignored(
    server: Server, started: RemoteEngine, header: str
) -> None:
    server.answers.append(refusal(429, "slow down", **{"Retry-After": header}))
    began = time.monotonic()
    await started.chat(ASKED, Sampling())
    assert time.monotonic() - began < 5


async def test_retry_after_is_respected(server: Server, started: RemoteEngine) -> None:
    server.answers.append(refusal(429, "slow down", **{"Retry-After": "1"}))
    began = time.monotonic()
    await started.chat(ASKED, Sampling())
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_retries_are_limited(server: Server, started: RemoteEngine, status: int) -> None:
    server.usual = lambda body: refusal(status, "not now")
    with pytest.raises(EngineError, match=f"returned status {status}: 'not now'"):
        await started.chat(ASKED, Sampling())
    assert len(server.asked) == 5


async def test_a_reply_that_is_cut_off_is_requested_again(
    server: Server, started: RemoteEngine
) -> None:
    def cut(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"choices": [{"mess')
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)

    server.answers.append(cut)
    assert await started.chat(ASKED, Sampling()) == Completion(text="ok", finish_reason="stop")
    assert len(server.asked) == 2
    server.usual = lambda body: cut
    with pytest.raises(EngineError, match="RemoteProtocolError: peer closed connection"):
        await started.chat(ASKED, Sampling())


@pytest.mark.parametrize("status", [302, 400, 401, 404])
async def test_permanent_errors_are_not_retried(
    server: Server, started: RemoteEngine, status: int
) -> None:
    server.usual = lambda body: refusal(status, "no")
    with pytest.raises(EngineError, match=f"returned status {status}"):
        await started.chat(ASKED, Sampling())
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 2048 tokens. However, you requested 3016 tokens",
        "the request exceeds the available context size (4096 tokens)",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
async def test_a_context_overflow_is_not_an_error(
    server: Server, started: RemoteEngine, said: str
) -> None:
    server.answers.append(refusal(400, said))
    assert await started.chat(ASKED, Sampling()) is None


async def test_silent_and_slow_responses_have_a_deadline(server: Server) -> None:
    def trickle(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        while not server.over.wait(0.02):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    client = at(server, deadline_s=0.3)
    await client.start()
    for silent in (lambda handler: server.over.wait(30), trickle):
        server.answers.append(silent)
        began = time.monotonic()
        with pytest.raises(EngineError, match=r"no answer within 0\.3 s"):
            await client.chat(ASKED, Sampling())
        assert time.monotonic() - began < 5
    assert await client.chat(ASKED, Sampling()) == Completion(text="ok", finish_reason="stop")
    await client.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((200, {}, b"a" * (10 << 20)), "exceeds 8388608 bytes"),
        ((200, {"Content-Encoding": "gzip"}, gzip.compress(b"{}")), "is compressed"),
        ((200, {}, b"not json"), "invalid JSON: 'not json'"),
        ((200, {}, b"[" * 100_000), "invalid JSON"),
        ((200, {}, b"\xff\xfe"), "invalid JSON"),
        ((204, {}, b""), "returned status 204"),
        (ok([]), "not a chat completions response"),
        (ok({"choices": []}), "not a chat completions response"),
        (ok({"choices": [{"message": None}]}), "not a chat completions response"),
        (ok(reply(None)), "has no text"),
        (ok(reply(5)), "has no text"),
        (ok(reply("", "length")), "raise rollout.max_new_tokens"),
        (ok(reply("I", "content_filter")), "content filter"),
        (ok(reply("I", "tool_calls")), "finish_reason 'tool_calls'"),
        (ok(reply("I", ["stop"])), "finish_reason"),
        (ok(exact("I", [-1])), "token ids are invalid"),
        (ok(exact("I", [True])), "token ids are invalid"),
        (ok(exact("I", [1], ["a"])), "token ids are invalid"),  # type: ignore[list-item]
        (ok(exact("I", [1], logprob=0.7)), "log-probabilities are invalid"),
        (ok(exact("I", [1], logprob=float("nan"))), "log-probabilities are invalid"),
        (ok(exact("I", [1], logprob=-float("inf"))), "log-probabilities are invalid"),
        (ok(exact("I", [1], logprob="-1")), "log-probabilities are invalid"),
        (ok(reply("I", logprobs=[1], token_ids=[1])), "not a chat completions response"),
    ],
)
async def test_an_invalid_response_is_an_engine_error(
    server: Server, started: RemoteEngine, said: Any, words: str
) -> None:
    server.answers.append(said)
    with pytest.raises(EngineError, match=words) as error:
        await started.chat(ASKED, Sampling())
    assert len(str(error.value)) < 500


async def test_truncated_and_empty_replies_are_valid(server: Server, started: RemoteEngine) -> None:
    for text, finish in (("cut of", "length"), ("", "stop"), ("<script>", None)):
        server.answers.append(ok(reply(text, finish)))
        assert await started.chat(ASKED, Sampling()) == Completion(text=text, finish_reason=finish)
    server.answers.append(ok(reply("half \ud83d")))
    assert await started.chat(ASKED, Sampling()) == Completion(
        text="half \\ud83d", finish_reason="stop"
    )


async def test_the_key_is_sent_only_to_the_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", f" {KEY}\n")
    client = at(server, api_key_env="TEST_KEY")
    await client.start()
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    echoes = [refusal(401, f"Incorrect API key provided: {KEY}"), (200, {}, f"{KEY} {{".encode())]
    for echo in echoes:
        server.answers.append(echo)
        with pytest.raises(EngineError) as error:
            await client.chat(ASKED, Sampling())
        assert KEY not in str(error.value)
    await client.close()


@pytest.mark.parametrize("value", [None, "", " ", "two\nlines", "schlüssel"])
async def test_an_invalid_key_is_reported_by_its_variable(
    server: Server, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv("TEST_KEY", raising=False)
    else:
        monkeypatch.setenv("TEST_KEY", value)
    with pytest.raises(ConfigError, match="api_key_env=TEST_KEY") as error:
        at(server, api_key_env="TEST_KEY")
    assert not value or not value.strip() or value not in str(error.value)


async def test_no_proxy_is_used_for_loopback(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert (await start(at(server))).model == "toy"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(
            ["choices", "message", "content", "finish_reason", "token_ids", "logprobs", "logprob",
             "prompt_token_ids", "data", "id", "error"]
        ),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(ANYTHING, ANYTHING, ANYTHING, ANYTHING)
def test_any_response_is_a_reply_or_an_engine_error(
    whole: Any, choice: Any, ids: Any, logprobs: Any
) -> None:
    given_tokens = {**reply("a", token_ids=ids, logprobs={"content": logprobs})}
    for answer in (whole, {"choices": choice}, {**given_tokens, "prompt_token_ids": ids}):
        try:
            found = chat_completions_format.parse_completion(answer, ("a",))
        except EngineError:
            continue
        assert len(found.reply_ids) == len(found.logprobs)
        assert bool(found.prompt_ids) == bool(found.reply_ids)
    assert all(isinstance(name, str) for name in chat_completions_format.parse_models(whole))
    assert isinstance(chat_completions_format.error_text(json.dumps(whole).encode()), str)
