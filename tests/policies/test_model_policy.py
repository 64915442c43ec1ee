import asyncio
import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.config import EndpointConfig, History, ModelConfig, RolloutConfig
from agentrl.errors import ConfigError, EngineError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.configured_image_size import open_scaler
from agentrl.policies.engines.chat_completions_format import encode_message
from agentrl.policies.engines.engine import EngineSettings, Sampling, TokenEngine
from agentrl.policies.engines.remote_engine import RemoteEngine
from agentrl.policies.model_policy import ChatPolicy, ModelPolicy, turn_seed
from agentrl.policies.open_encoder import open_encoder
from agentrl.policies.open_engine import open_engine
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.types import Message, Prompt, Reply
from tests.policies.completions_server import Server, exact, ok, refusal, reply, serving
from tests.policies.pictures import picture, screen


class Echo:
    """An engine that answers with the number of its prompts and records them."""

    def __init__(self) -> None:
        self.asked: list[tuple[Prompt, Sampling]] = []
        self.playing = 0

    async def start(self) -> None: ...

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        self.asked.append((prompt, sampling))
        return Reply(token_ids=(48 + len(self.asked), 258), logprobs=(-1.0, -0.5), version=4)

    def begin_episode(self) -> None:
        self.playing += 1

    def end_episode(self) -> None:
        self.playing -= 1

    async def load_weights(self, path: Path, version: int) -> None: ...

    async def close(self) -> None: ...


class Counter:
    """A player that replies with the turn and a random digit."""

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        return f"<think>{info['turn']} {rng.integers(10)}</think><|im_end|>"


async def test_a_session_keeps_its_conversation_and_has_a_new_seed_each_turn(
    encoder: ChatEncoder,
) -> None:
    engine = Echo()
    policy = ModelPolicy(engine, encoder, sampling=Sampling(temperature=0.5, max_new_tokens=9))
    session = policy.start_episode("play", 7)
    answers = [await session.answer(screen(turn), {}) for turn in range(3)]
    assert [answer and answer.text for answer in answers] == ["1", "2", "3"]
    (first, _), (second, how), _ = engine.asked
    assert second.token_ids[: len(first.token_ids) + 2] == (*first.token_ids, 49, 258)
    assert (how.temperature, how.max_new_tokens) == (0.5, 9)
    assert [how.seed for _, how in engine.asked] == [turn_seed(7, turn) for turn in range(3)]
    assert engine.playing == 1
    session.close()
    session.close()
    assert engine.playing == 0


@pytest.mark.parametrize(
    ("ids", "limit", "stop", "is_truncated"),
    [
        ((49, 258), 2, (), False),  # the end token is the last that fits
        ((49, 50), 2, (), True),
        ((49, 50), 2, (50,), False),
        ((49, 50), 9, (), False),  # an engine may end a reply for another reason
    ],
)
async def test_a_reply_that_reaches_the_limit_without_its_end_is_truncated(
    encoder: ChatEncoder,
    ids: tuple[int, ...],
    limit: int,
    stop: tuple[int, ...],
    is_truncated: bool,
) -> None:
    class Fixed(Echo):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
            return Reply(token_ids=ids, logprobs=(-1.0,) * len(ids), version=0)

    sampling = Sampling(max_new_tokens=limit, stop_token_ids=stop)
    session = ModelPolicy(Fixed(), encoder, sampling=sampling).start_episode("", 0)
    answer = await session.answer(screen(0), {})
    assert answer is not None
    assert answer.is_truncated is is_truncated


async def test_a_full_context_ends_the_conversation(encoder: ChatEncoder) -> None:
    policy = ModelPolicy(
        Echo(), encoder, sampling=Sampling(max_new_tokens=10), max_context=2 * 27 + 20
    )
    session = policy.start_episode("", 0)
    answers = [await session.answer(screen(turn), {}) for turn in range(3)]
    assert [answer is None for answer in answers] == [False, False, True]


@pytest.mark.parametrize(
    ("last", "logprobs", "message"),
    [
        (258, (-1.0, float("nan")), "258 with log-probability nan"),
        (258, (-1.0,), "2 tokens and 1 log-p"),
        (-1, (-1.0, -0.5), "token -1 .* ids must be 0 to "),
        (10**6, (-1.0, -0.5), "token 1000000 .* ids must be 0 to "),
    ],
)
async def test_a_reply_that_cannot_be_trained_on_is_an_engine_error(
    encoder: ChatEncoder, last: int, logprobs: tuple[float, ...], message: str
) -> None:
    class Unreliable(Echo):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
            return Reply(token_ids=(49, last), logprobs=logprobs, version=0)

    session = ModelPolicy(Unreliable(), encoder).start_episode("", 0)
    with pytest.raises(EngineError, match=message):
        await session.answer(screen(0), {})


@given(st.integers(0, 2**64), st.integers(0, 50))
def test_turn_seeds_are_in_range_and_differ(episode: int, turn: int) -> None:
    assert 0 <= turn_seed(episode, turn) < 2**63
    assert turn_seed(episode, turn) != turn_seed(episode, turn + 1) != turn_seed(episode + 1, turn)


async def test_a_scripted_answer_is_encoded_as_if_sampled(encoder: ChatEncoder) -> None:
    session = ScriptedPolicy(Counter(), encoder).start_episode("play", 3)
    first = await session.answer(screen(0), {"turn": 0})
    second = await session.answer(screen(1), {"turn": 1})
    assert first.reply.token_ids == encoder.reply_ids(first.text)
    assert first.reply.logprobs == (0.0,) * len(first.reply.token_ids)
    said = (*first.prompt.token_ids, *first.reply.token_ids)
    assert second.prompt.token_ids[: len(said)] == said
    again = (
        await ScriptedPolicy(Counter(), encoder)
        .start_episode("play", 3)
        .answer(screen(0), {"turn": 0})
    )
    assert again.reply == first.reply


async def test_a_scripted_reply_longer_than_the_models_is_a_config_error(encoder):
    said = await ScriptedPolicy(Counter()).start_episode("", 0).answer(screen(0), {"turn": 0})
    ids = encoder.reply_ids(said.text)
    enough = ScriptedPolicy(Counter(), encoder, max_tokens=len(ids)).start_episode("play", 3)
    assert (await enough.answer(screen(0), {"turn": 0})).reply.token_ids == ids
    short = ScriptedPolicy(Counter(), encoder, max_tokens=len(ids) - 1).start_episode("play", 3)
    with pytest.raises(
        ConfigError, match=f"max_new_tokens={len(ids) - 1} is too low; .* {len(ids)} tokens"
    ):
        await short.answer(screen(0), {"turn": 0})


async def test_a_scripted_player_needs_no_model() -> None:
    session = ScriptedPolicy(Counter()).start_episode("", 0)
    answer = await session.answer(screen(0), {"turn": 5})
    assert (answer.reply.token_ids, answer.prompt.token_ids) == ((), ())
    assert len(answer.prompt.images) == 1
    session.close()


async def test_engines_open_by_name_and_report_unknown_arguments(tiny_vlm: Path) -> None:
    model = ModelConfig(path=str(tiny_vlm), image_size=[84, 140])
    with pytest.raises(ConfigError, match="no_such"):
        open_engine(RolloutConfig(engine="hf", engine_kwargs={"no_such": 1}), model, tiny_vlm)
    with pytest.raises(ConfigError, match="engine=vllm; the maximum is 2"):
        open_engine(RolloutConfig(engine="vllm", temperature=3.0), model, tiny_vlm)
    engine = open_engine(
        RolloutConfig(engine="hf", engine_kwargs={"device": "cpu"}), model, tiny_vlm
    )
    assert isinstance(engine, TokenEngine)
    await engine.start()
    policy = ModelPolicy(engine, open_encoder(model, tiny_vlm), sampling=Sampling(max_new_tokens=4))

    async def play(seed: int) -> list[tuple[int, ...]]:
        session = policy.start_episode("", seed)
        texts = []
        for turn in range(1 + seed):
            answer = await session.answer(
                Message(role="user", text="<image>", images=screen(turn, "", 360, 640).images), {}
            )
            assert answer is not None
            texts.append(answer.reply.token_ids)
        session.close()
        return texts

    played = [await asyncio.gather(*(play(seed) for seed in range(4))) for _ in range(2)]
    await engine.close()
    assert played[0] == played[1]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
async def client(server: Server) -> Any:
    server.asked.clear()
    server.answers.clear()
    client = RemoteEngine(
        EngineSettings(endpoint=EndpointConfig(url=server.url, model="toy"), deadline_s=20)
    )
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
    server: Server, client: RemoteEngine, tiny_vlm: Path, history: History
) -> None:
    encoder = ChatEncoder(tiny_vlm)
    (sign,) = encoder.text_ids("@")
    talk = Conversation(encoder, "play", history)
    session = ChatPolicy(client, history=history).start_episode("play", 0)
    for turn, said in enumerate(("<memory>a <image></memory>up", "down", "left")):
        message = screen(turn) if turn != 1 else Message(role="user", text="dark")
        if turn == 0:
            earlier = screen(8), Message(role="assistant", text="I look."), screen(9)
            earlier = (*earlier, Message(role="assistant", text="And I see."))
            message = replace(message, preceding=earlier)
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
    server: Server, client: RemoteEngine
) -> None:
    scale = open_scaler(ModelConfig(image_size=[56, 84]))
    session = ChatPolicy(client, scale=scale).start_episode("", 0)
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


async def test_answers_contain_the_reported_tokens(server: Server, client: RemoteEngine) -> None:
    session = ChatPolicy(client, sampling=Sampling(temperature=0)).start_episode("", 4)
    server.answers += [ok(exact("up", [5, 6])), ok(reply("up", "length"))]
    first, second = [await session.answer(Message(role="user", text="?"), {}) for _ in range(2)]
    assert first is not None
    assert second is not None
    assert (first.prompt.token_ids, first.reply.token_ids) == ((1, 2, 3), (5, 6))
    assert first.reply.logprobs == (-0.5, -0.5)
    assert (first.is_truncated, second.is_truncated) == (False, True)
    assert (second.prompt.token_ids, second.reply.token_ids, second.text) == ((), (), "up")
    seeds = [body["seed"] for body in server.asked]
    assert len(set(seeds)) == 2
    assert [body["temperature"] for body in server.asked] == [0, 0]


async def test_a_full_context_on_the_server_ends_the_conversation(
    server: Server, client: RemoteEngine
) -> None:
    session = ChatPolicy(client).start_episode("", 0)
    server.answers.append(refusal(400, "maximum context length is 10 tokens"))
    assert await session.answer(Message(role="user", text="?"), {}) is None


async def test_a_placeholder_without_an_image_is_an_error(client: RemoteEngine) -> None:
    with pytest.raises(ValueError, match="1 <image> placeholders has 0 images"):
        await (
            ChatPolicy(client).start_episode("", 0).answer(Message(role="user", text="<image>"), {})
        )


@given(st.lists(st.text(max_size=10), min_size=1, max_size=4))
def test_text_and_images_keep_their_order(words: list[str]) -> None:
    words = [word.replace("<image>", "") for word in words]
    images = tuple(picture(n, 28, 28) for n in range(len(words) - 1))
    sent = encode_message(Message(role="user", text="<image>".join(words), images=images))[
        "content"
    ]
    if not images:
        assert sent == words[0]
        return
    assert "".join(p.get("text", "<image>") for p in sent) == "<image>".join(words)
    assert sum(part["type"] == "image_url" for part in sent) == len(images)
    assert all(part["type"] == "image_url" or part["text"] for part in sent)
