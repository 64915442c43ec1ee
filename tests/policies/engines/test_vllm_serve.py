"""The real `vllm serve` as an endpoint, on the CPU."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.config import EndpointConfig, History, ModelConfig
from agentrl.errors import ConfigError, RewardError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.configured_image_size import open_scaler
from agentrl.policies.engines.engine import EngineSettings, Sampling
from agentrl.policies.engines.hf_engine import HFEngine
from agentrl.policies.engines.remote_engine import RemoteEngine
from agentrl.policies.model_policy import ChatPolicy, ModelPolicy
from agentrl.rewards.judge import Judge
from agentrl.types import Message
from tests.policies.pictures import screen
from tests.policies.scoring import forward_logprobs
from tests.policies.vllm_serving import vllm_serving
from tests.replay import episodes as made

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.filterwarnings("default")]
GREEDY = Sampling(temperature=0, max_new_tokens=12)


@pytest.fixture(scope="module")
def url(tiny_vlm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("vllm")
    log = tmp_path_factory.mktemp("vllm") / "log"
    with vllm_serving(tiny_vlm, log, "--logprobs-mode", "processed_logprobs") as url:
        yield url


@pytest.fixture
async def client(url: str, tiny_vlm: Path) -> AsyncIterator[RemoteEngine]:
    # Local engines never sample image placeholders; a server needs a logit bias for that.
    bans = {str(id): -100 for id in ChatEncoder(tiny_vlm).model_adapter.banned_token_ids}
    settings = EndpointConfig(url=url, extra_body={"logit_bias": bans})
    client = RemoteEngine(EngineSettings(endpoint=settings, deadline_s=60, start_deadline_s=60))
    await client.start()
    yield client
    await client.close()


async def test_a_server_answers_like_the_same_local_model(
    client: RemoteEngine, tiny_vlm: Path
) -> None:
    encoder, engine = ChatEncoder(tiny_vlm, (84, 140)), HFEngine(EngineSettings(folder=tiny_vlm))
    await engine.start()
    model = engine._model
    # Only the last screen: a random model's bytes are not valid text and do not round-trip.
    history = History(turns=1)
    there = ChatPolicy(
        client, history=history, sampling=GREEDY,
        scale=open_scaler(ModelConfig(image_size=[84, 140])),
    ).start_episode("play", 1)  # fmt: skip
    here = ModelPolicy(engine, encoder, history=history, sampling=GREEDY).start_episode("play", 1)
    two = screen(3, "<image>a<image>").images + screen(4).images
    shown = [
        Message(role="user", text="hello"), screen(1), screen(2, width=300, height=200),
        Message(role="user", text="<image>a<image>", images=two),
    ]  # fmt: skip
    for message in shown:
        served, own = await there.answer(message, {}), await here.answer(message, {})
        assert served is not None
        assert own is not None
        assert served.prompt.token_ids == own.prompt.token_ids
        assert served.reply.token_ids == own.reply.token_ids
        # vLLM withholds an incomplete last character.
        assert served.text.rstrip("\ufffd") == own.text.rstrip("\ufffd")
        expected = forward_logprobs(model, encoder, served.prompt, served.reply.token_ids)
        np.testing.assert_allclose(served.reply.logprobs, expected, atol=1e-3)
        np.testing.assert_array_equal(np.array(served.prompt.images), np.array(own.prompt.images))
    await engine.close()


async def test_a_conversation_continues_with_its_replies(
    client: RemoteEngine, tiny_vlm: Path
) -> None:
    session = ChatPolicy(client, sampling=GREEDY).start_episode("play", 1)
    encoder = ChatEncoder(tiny_vlm)
    talk = Conversation(encoder, "play")
    for number in range(3):
        message = Message(role="user", text=f"screen {number}")
        answer = await session.answer(message, {})
        assert answer is not None
        assert answer.prompt.token_ids == talk.observe(message).token_ids
        talk.answer(encoder.reply_ids(answer.text))


async def test_a_context_overflow_ends_the_episode(client: RemoteEngine) -> None:
    session = ChatPolicy(client, sampling=GREEDY).start_episode("play", 1)
    assert await session.answer(Message(role="user", text="a" * 1500), {}) is None


async def test_mistakes_are_reported_with_the_servers_message(url: str) -> None:
    for settings, words in (
        ({"model": "tiy"}, r"model='tiy'.*does not exist.*did you mean 'tiny'"),
        ({"extra_body": {"top_p": 7}}, "top_p"),
    ):
        endpoint = EndpointConfig(url=url, **settings)  # type: ignore[arg-type]
        client = RemoteEngine(EngineSettings(endpoint=endpoint))
        with pytest.raises(ConfigError, match=words):
            await client.start()
        await client.close()


def test_recorded_episodes_contain_the_servers_tokens(url: str, tmp_path: Path) -> None:
    where = [f"rollout.endpoint.url={url}", f"run.dir={tmp_path}", "logging=[]"]
    short = ["env.max_turns=3", "rollout.concurrency=4", "rollout.endpoint.extra_body={seed: null}"]
    short += ["rollout.top_logprobs=3", "eval.rings=null"]
    assert (
        agentrl(["eval", "sokoban", "rollout.engine=remote", "--episodes=4", *where, *short]) == 0
    )
    (run,) = tmp_path.iterdir()
    recorded = replay.open(run)
    games = recorded.episodes()
    assert (len(games), any(game.outcome.void for game in games)) == (4, False)
    for game in games:
        for turn in recorded.episode(game.id).episode.turns:
            assert turn.prompt_ids
            assert len(turn.reply_ids) == len(turn.reply_logprobs) > 0
            sampled = zip(turn.reply_ids, turn.reply_logprobs, strict=True)
            for (id, logprob), top in zip(sampled, turn.reply_top_logprobs, strict=True):
                assert len(top) == 3
                least = top[-1][1]
                assert dict(top).get(id, min(logprob, least)) == pytest.approx(logprob, abs=1e-4)


async def test_a_judge_behind_it_answers_by_the_schema(url: str, tiny_vlm: Path) -> None:
    """An untrained model can only give a valid grade because vLLM enforces the schema."""
    screens = (made.screen(3), made.screen(4))
    turns = (made.turn(images=screens, shown="<image>A<image>B"),)
    played = made.episode("e0", turns=turns, final_images=(made.screen(5),))
    judge = Judge(url, "tiny", reason=False, scores=(0, 7), votes=3, temperature=1.0, attempts=1)
    assert await judge(played) in range(8)
    free = Judge(url, "tiny", reason=False, response_format="none", attempts=1, max_tokens=8)
    with pytest.raises(RewardError, match="no valid grade in 1 answers"):
        await free(played)


def test_rows_are_answered_by_a_server_as_by_the_same_local_model(
    url: str, tiny_vlm: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"question": "What is {k} + 1?"}}\n' for k in range(5)))
    bans = {str(id): -100 for id in ChatEncoder(tiny_vlm).model_adapter.banned_token_ids}
    found = []
    for model, settings in [
        (url, [f"rollout.endpoint.extra_body={{logit_bias: {json.dumps(bans)}}}"]),
        (str(tiny_vlm), ["rollout.engine=hf", "rollout.launcher=local"]),
    ]:
        out = tmp_path / f"out-{len(found)}.jsonl"
        command = ["infer", model, str(rows), "--out", str(out), "--greedy", *settings]
        assert agentrl([*command, "rollout.max_new_tokens=12"]) == 0
        found.append([json.loads(line) for line in out.read_text().splitlines()])
    for served, own in zip(*found, strict=True):
        # vLLM withholds an incomplete last character.
        (response,), (expected,) = served.pop("responses"), own.pop("responses")
        assert response.rstrip("\ufffd") == expected.rstrip("\ufffd")
        assert served == own
