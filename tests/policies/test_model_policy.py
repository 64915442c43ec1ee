import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.config import ModelConfig, RolloutConfig
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.engine import Sampling
from agentrl.policies.model_policy import ModelPolicy, draw_seed
from agentrl.policies.open_model import open_encoder, open_engine
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.types import Message, Prompt, Reply
from tests.policies.pictures import screen


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
    assert [how.seed for _, how in engine.asked] == [draw_seed(7, turn) for turn in range(3)]
    assert engine.playing == 1
    session.close()
    session.close()
    assert engine.playing == 0


async def test_a_full_context_ends_the_conversation(encoder: ChatEncoder) -> None:
    policy = ModelPolicy(
        Echo(), encoder, sampling=Sampling(max_new_tokens=10), max_context=2 * 27 + 20
    )
    session = policy.start_episode("", 0)
    answers = [await session.answer(screen(turn), {}) for turn in range(3)]
    assert [answer is None for answer in answers] == [False, False, True]


@given(st.integers(0, 2**64), st.integers(0, 50))
def test_turn_seeds_are_in_range_and_differ(episode: int, turn: int) -> None:
    assert 0 <= draw_seed(episode, turn) < 2**63
    assert draw_seed(episode, turn) != draw_seed(episode, turn + 1) != draw_seed(episode + 1, turn)


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
    enough = ScriptedPolicy(Counter(), encoder, most_tokens=len(ids)).start_episode("play", 3)
    assert (await enough.answer(screen(0), {"turn": 0})).reply.token_ids == ids
    short = ScriptedPolicy(Counter(), encoder, most_tokens=len(ids) - 1).start_episode("play", 3)
    with pytest.raises(ConfigError, match=f"max_new_tokens={len(ids) - 1}: .* {len(ids)} tokens"):
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
    with pytest.raises(ConfigError, match="vLLM accepts at most 2"):
        open_engine(RolloutConfig(engine="vllm", temperature=3.0), model, tiny_vlm)
    engine = open_engine(
        RolloutConfig(engine="hf", engine_kwargs={"device": "cpu"}), model, tiny_vlm
    )
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
