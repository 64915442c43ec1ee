import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.config import EndpointConfig, History, ModelConfig
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.conversation import Conversation
from agentrl.policies.endpoint_policy import EndpointPolicy, to_api_message
from agentrl.policies.engines.endpoint import Endpoint
from agentrl.policies.engines.engine import Sampling
from agentrl.policies.open_model import open_scaler
from agentrl.types import Message
from tests.policies.completions_server import Server, exact, ok, refusal, reply, serving
from tests.policies.pictures import picture, screen


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
async def client(server: Server) -> Any:
    server.asked.clear()
    server.answers.clear()
    client = Endpoint(EndpointConfig(url=server.url, model="toy"), deadline_s=20)
    yield client
    await client.close()


def shown(url: str) -> np.ndarray:
    head, _, data = url.partition(",")
    assert head == "data:image/png;base64"
    decoded = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
    return cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)


def laid_out(messages: list[dict[str, Any]]) -> str:
    """The messages as ChatML text, with one sign per image."""

    def words(content: Any) -> str:
        if isinstance(content, str):
            return content
        return "".join(part.get("text", "@") for part in content)

    return "".join(f"{m['role']}\n{words(m['content'])}\n" for m in messages) + "assistant\n"


@pytest.mark.parametrize(
    "history",
    [History(), History(turns=1), History(turns=2), History(turns=1, carries_memory=True)],
    ids=["concat", "window:1", "window:2", "compact:1"],
)
async def test_a_server_receives_the_prompt_of_a_local_model(
    server: Server, client: Endpoint, tiny_vlm: Path, history: History
) -> None:
    encoder = ChatEncoder(tiny_vlm)
    (sign,) = encoder.text_ids("@")
    talk = Conversation(encoder, "play", history)
    session = EndpointPolicy(client, history=history).start_episode("play", 0)
    for turn, said in enumerate(("<memory>a <image></memory>up", "down", "left")):
        message = screen(turn) if turn != 1 else Message(role="user", text="dark")
        server.answers.append(ok(reply(said)))
        answer = await session.answer(message, {})
        prompt = talk.observe(message)
        collapsed = encoder.model_adapter.collapse_image_tokens(prompt.token_ids, prompt.images)
        text = encoder.text(
            [sign if id == encoder.model_adapter.image_token_id else id for id in collapsed]
        )
        assert laid_out(server.asked[-1]["messages"]) == text
        assert answer is not None
        np.testing.assert_array_equal(np.array(answer.prompt.images), np.array(prompt.images))
        talk.answer(encoder.reply_ids(said))
    session.close()


async def test_images_are_sent_losslessly_at_the_configured_size(
    server: Server, client: Endpoint
) -> None:
    scale = open_scaler(ModelConfig(image_size=[56, 84]))
    session = EndpointPolicy(client, scale=scale).start_episode("", 0)
    two = (picture(1), picture(2, 112, 196))
    message = Message(role="user", text="<image>first<image>then", images=two)
    answer = await session.answer(message, {})
    (asked,) = server.asked[-1]["messages"]
    assert [part["type"] for part in asked["content"]] == ["image_url", "text"] * 2
    sent = [shown(part["image_url"]["url"]) for part in asked["content"][::2]]
    assert answer is not None
    for own, seen, recorded in zip(two, sent, answer.prompt.images, strict=True):
        np.testing.assert_array_equal(seen, scale(own))
        np.testing.assert_array_equal(seen, recorded)


async def test_answers_contain_the_reported_tokens(server: Server, client: Endpoint) -> None:
    session = EndpointPolicy(client, sampling=Sampling(temperature=0)).start_episode("", 4)
    server.answers += [ok(exact("up", [5, 6])), ok(reply("up"))]
    first, second = [await session.answer(Message(role="user", text="?"), {}) for _ in range(2)]
    assert first is not None
    assert second is not None
    assert (first.prompt.token_ids, first.reply.token_ids) == ((1, 2, 3), (5, 6))
    assert first.reply.logprobs == (-0.5, -0.5)
    assert (second.prompt.token_ids, second.reply.token_ids, second.text) == ((), (), "up")
    seeds = [body["seed"] for body in server.asked]
    assert len(set(seeds)) == 2
    assert [body["temperature"] for body in server.asked] == [0, 0]


async def test_a_full_context_ends_the_conversation(server: Server, client: Endpoint) -> None:
    session = EndpointPolicy(client).start_episode("", 0)
    server.answers.append(refusal(400, "maximum context length is 10 tokens"))
    assert await session.answer(Message(role="user", text="?"), {}) is None


async def test_a_placeholder_without_an_image_is_an_error(client: Endpoint) -> None:
    with pytest.raises(ValueError, match="1 <image> placeholders has 0 images"):
        await (
            EndpointPolicy(client)
            .start_episode("", 0)
            .answer(Message(role="user", text="<image>"), {})
        )


@given(st.lists(st.text(max_size=10), min_size=1, max_size=4))
def test_text_and_images_keep_their_order(words: list[str]) -> None:
    words = [word.replace("<image>", "") for word in words]
    images = tuple(picture(n, 28, 28) for n in range(len(words) - 1))
    sent = to_api_message(Message(role="user", text="<image>".join(words), images=images))[
        "content"
    ]
    if not images:
        assert sent == words[0]
        return
    assert "".join(p.get("text", "<image>") for p in sent) == "<image>".join(words)
    assert sum(part["type"] == "image_url" for part in sent) == len(images)
    assert all(part["type"] == "image_url" or part["text"] for part in sent)
