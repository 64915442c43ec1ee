import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import TopPLogitsWarper

from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError, EngineError
from agentrl.policies import tiny_model
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.engines.engine import EngineSettings, Sampling, TokenEngine
from agentrl.policies.engines.hf_decoding import nucleus, processed_logprobs
from agentrl.policies.engines.hf_engine import HFEngine
from agentrl.types import Prompt, Reply
from agentrl.weight_sync import safetensors_files
from tests.policies import families
from tests.policies.pictures import screen


@pytest_asyncio.fixture
async def engine(tiny_vlm: Path) -> AsyncIterator[HFEngine]:
    engine = HFEngine(EngineSettings(folder=tiny_vlm, deadline_s=60), device="cpu", max_batch=4)
    await engine.start()
    yield engine
    await engine.close()


def prompts(encoder: ChatEncoder, count: int) -> list[Prompt]:
    return [
        Conversation(encoder, "x" * (seed % 3)).observe(screen(seed, "<image>" + "a" * seed))
        for seed in range(count)
    ]


async def play_one_turn_each(
    engine: HFEngine, asked: Sequence[Prompt], order: Sequence[int]
) -> dict[int, Reply]:
    """Every episode begins; their prompts then arrive in some order, with pauses."""
    replies: dict[int, Reply] = {}

    async def request(seed: int) -> None:
        sampling = Sampling(seed=seed, max_new_tokens=6)
        replies[seed] = await engine.generate(asked[seed], sampling)

    for _ in order:
        engine.begin_episode()
    async with asyncio.TaskGroup() as group:
        for seed in order:
            group.create_task(request(seed))
            for _ in range(seed % 3):
                await asyncio.sleep(0)
    for _ in order:
        engine.end_episode()
    return replies


@pytest.mark.parametrize("top_p", [0.01, 0.3, 0.9, 0.999])
def test_top_p_keeps_the_tokens_that_transformers_keeps(top_p: float) -> None:
    logits = 3 * torch.randn(40, 300, generator=torch.Generator().manual_seed(1))
    logprobs = processed_logprobs(logits, torch.full((40,), 0.7), [5])
    found = nucleus(logprobs, torch.full((40,), top_p, dtype=torch.float64))
    expected = TopPLogitsWarper(top_p)(None, logprobs).log_softmax(-1)
    assert torch.equal(found.isinf(), expected.isinf())
    torch.testing.assert_close(found, expected)


def test_an_engine_refuses_what_it_cannot_sample_or_report() -> None:
    with pytest.raises(ConfigError, match=r"top_p=0\.5 is not supported by rollout.engine=mine"):
        TokenEngine.check(RolloutConfig(engine="mine", top_p=0.5))
    with pytest.raises(ConfigError, match=r"top_logprobs=3 is not supported by .*=mine"):
        TokenEngine.check(RolloutConfig(engine="mine", top_logprobs=3))


async def test_the_engine_samples_within_top_p(engine: HFEngine, encoder: ChatEncoder) -> None:
    (prompt,) = prompts(encoder, 1)
    found = []
    for sampling in ({"temperature": 0.0}, {"top_p": 1e-6}, {}):
        engine.begin_episode()
        found.append(await engine.generate(prompt, Sampling(max_new_tokens=12, **sampling)))
        engine.end_episode()
    greedy, cut, free = (reply.token_ids for reply in found)
    assert greedy == cut != free


@pytest.mark.parametrize("temperature", [0.0, 0.7])
async def test_top_logprobs_are_those_of_transformers(
    engine: HFEngine, encoder: ChatEncoder, temperature: float
) -> None:
    asked, counts = prompts(encoder, 3), (7, 0, 2)
    for _ in asked:
        engine.begin_episode()
    replies = await asyncio.gather(
        *(
            engine.generate(
                prompt,
                Sampling(temperature=temperature, max_new_tokens=5, seed=seed, top_logprobs=count),
            )
            for seed, (prompt, count) in enumerate(zip(asked, counts, strict=True))
        )
    )
    for _ in asked:
        engine.end_episode()
    assert engine._model is not None
    banned = list(encoder.model_adapter.banned_token_ids)
    for prompt, reply, count in zip(asked, replies, counts, strict=True):
        if not count:
            assert reply.top_logprobs == ()
            continue
        ids = torch.tensor([prompt.token_ids + reply.token_ids])
        inputs = encoder.model_adapter.forward_inputs(
            ids, torch.ones_like(ids).bool(), prompt.images
        )
        with torch.no_grad():
            logits = engine._model(**inputs).logits[0, len(prompt.token_ids) - 1 : -1].float()
        logits[:, banned] = -torch.inf
        expected = torch.softmax(logits / (temperature or 1.0), -1).topk(count)
        assert [[id for id, _ in top] for top in reply.top_logprobs] == expected.indices.tolist()
        found = torch.tensor([[logprob for _, logprob in top] for top in reply.top_logprobs])
        torch.testing.assert_close(found.exp(), expected.values, atol=1e-5, rtol=1e-3)


async def test_replies_do_not_depend_on_the_order_of_arrival(
    engine: HFEngine, encoder: ChatEncoder
) -> None:
    asked = prompts(encoder, 7)
    first = await play_one_turn_each(engine, asked, range(7))
    second = await play_one_turn_each(engine, asked, [5, 2, 6, 0, 3, 1, 4])
    assert first == second
    assert len({reply.token_ids for reply in first.values()}) == 7


async def test_equal_prompts_are_prefilled_once_with_unchanged_results(
    engine: HFEngine, encoder: ChatEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = prompts(encoder, 2)
    assert engine._model is not None
    rows: list[int] = []
    engine._model.register_forward_pre_hook(
        lambda _, __, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    together = await play_one_turn_each(engine, [first, other, first, first], range(4))
    assert rows[0] == 2  # and the images of two
    assert rows[1] == 4
    assert len({together[seed].token_ids for seed in (0, 2, 3)}) == 3
    for seed, prompt in enumerate((first, other, first, first)):
        rows.clear()
        engine.begin_episode()
        alone = await engine.generate(prompt, Sampling(seed=seed, max_new_tokens=6))
        engine.end_episode()
        assert rows[0] == 1
        assert alone.token_ids == together[seed].token_ids
        assert alone.logprobs == pytest.approx(together[seed].logprobs, abs=1e-5)


async def test_a_batch_waits_for_every_running_episode(
    engine: HFEngine, encoder: ChatEncoder
) -> None:
    asked = prompts(encoder, 2)
    engine.begin_episode()
    engine.begin_episode()
    waiting = asyncio.create_task(engine.generate(asked[0], Sampling(max_new_tokens=2)))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    engine.end_episode()
    assert len((await waiting).token_ids) == 2
    engine.end_episode()


async def test_a_cancelled_prompt_is_not_waited_for(engine: HFEngine, encoder: ChatEncoder) -> None:
    asked = prompts(encoder, 2)
    engine.begin_episode()
    engine.begin_episode()
    abandoned = asyncio.create_task(engine.generate(asked[0], Sampling(max_new_tokens=2)))
    await asyncio.sleep(0)
    abandoned.cancel()
    await asyncio.wait([abandoned])
    engine.end_episode()
    reply = await engine.generate(asked[1], Sampling(max_new_tokens=2))
    assert len(reply.token_ids) == 2
    engine.end_episode()


async def test_image_tokens_are_never_sampled_at_any_temperature(
    engine: HFEngine, encoder: ChatEncoder
) -> None:
    asked = prompts(encoder, 1)[0]
    replies = await asyncio.gather(
        *(
            engine.generate(asked, Sampling(temperature=50.0, max_new_tokens=60, seed=seed))
            for seed in range(24)
        )
    )
    tokens = [token for reply in replies for token in reply.token_ids]
    assert len(set(tokens)) > 300
    assert not set(tokens) & set(encoder.model_adapter.banned_token_ids)
    for reply in replies:
        assert not set(reply.token_ids[:-1]) & set(encoder.eos_token_ids)


async def test_a_further_token_ends_the_replies_that_name_it(
    engine: HFEngine, encoder: ChatEncoder
) -> None:
    asked = prompts(encoder, 1)[0]
    free = Sampling(max_new_tokens=12, seed=3)
    whole = (await engine.generate(asked, free)).token_ids
    stop = whole[4]
    ended = replace(free, stop_token_ids=(stop,))
    replies = await asyncio.gather(engine.generate(asked, ended), engine.generate(asked, free))
    assert replies[0].token_ids == whole[: whole.index(stop) + 1]
    assert replies[1].token_ids == whole
    assert encoder.single_tokens(["<|im_end|>", "no token"]) == (encoder.end_id,)


async def test_samples_follow_the_distribution(engine: HFEngine, encoder: ChatEncoder) -> None:
    asked = prompts(encoder, 1)[0]
    greedy = await engine.generate(asked, Sampling(temperature=0, max_new_tokens=1))
    replies = await asyncio.gather(
        *(engine.generate(asked, Sampling(max_new_tokens=1, seed=seed)) for seed in range(400))
    )
    share = sum(reply.token_ids == greedy.token_ids for reply in replies) / len(replies)
    chance = torch.tensor(greedy.logprobs[0]).exp().item()
    assert abs(share - chance) < 4 * (chance * (1 - chance) / len(replies)) ** 0.5 + 1 / len(
        replies
    )


async def test_loaded_weights_behave_as_in_a_new_engine(
    engine: HFEngine, encoder: ChatEncoder, tmp_path: Path
) -> None:
    asked = prompts(encoder, 1)[0]
    before = await engine.generate(asked, Sampling(max_new_tokens=5))
    other = tiny_model.build(tmp_path / "other", 1)
    await engine.load_weights(other / "model.safetensors", 3)
    after = await engine.generate(asked, Sampling(max_new_tokens=5))
    fresh = HFEngine(EngineSettings(folder=other), device="cpu")
    await fresh.start()
    expected = await fresh.generate(asked, Sampling(max_new_tokens=5))
    await fresh.close()
    assert (before.version, after.version) == (0, 3)
    assert after.token_ids == expected.token_ids != before.token_ids
    assert after.logprobs == expected.logprobs


async def test_weights_of_another_model_are_refused(engine: HFEngine, tiny_vlm: Path) -> None:
    path = tiny_vlm.parent / "partial.safetensors"
    weights = load_file(tiny_vlm / "model.safetensors")
    save_file({"lm_head.weight": weights["lm_head.weight"]}, path)
    with pytest.raises(EngineError, match="weights of"):
        await engine.load_weights(path, 1)


async def test_non_finite_weights_are_an_error(
    engine: HFEngine, encoder: ChatEncoder, tiny_vlm: Path, tmp_path: Path
) -> None:
    weights = load_file(tiny_vlm / "model.safetensors")
    name = next(name for name in weights if name.endswith("norm.weight"))
    save_file(weights | {name: weights[name] * torch.nan}, tmp_path / "broken.safetensors")
    await engine.load_weights(tmp_path / "broken.safetensors", 1)
    for temperature in (0.0, 1.0):
        with pytest.raises(EngineError, match="logits are not finite"):
            await engine.generate(prompts(encoder, 1)[0], Sampling(temperature=temperature))


async def test_refused_weights_leave_the_old_ones_unchanged(
    engine: HFEngine, encoder: ChatEncoder, tiny_vlm: Path, tmp_path: Path
) -> None:
    asked = prompts(encoder, 1)[0]
    before = await engine.generate(asked, Sampling(max_new_tokens=3))
    weights = {n: t * 2 for n, t in load_file(tiny_vlm / "model.safetensors").items()}
    for name in ("lm_head.weight", "elsewhere"):
        path = tmp_path / f"{name}.safetensors"
        save_file(weights | {name: torch.zeros(2, 2)}, path)
        with pytest.raises(EngineError, match="do not fit the model"):
            await engine.load_weights(path, 1)
    assert await engine.generate(asked, Sampling(max_new_tokens=3)) == before


async def test_weights_corrupted_in_transfer_are_an_error(
    engine: HFEngine, tiny_vlm: Path, tmp_path: Path
) -> None:
    tensors = load_file(tiny_vlm / "model.safetensors")
    safetensors_files.write(tmp_path / "right.safetensors", tensors, checked=True)
    await engine.load_weights(tmp_path / "right.safetensors", 5)
    with safe_open(tmp_path / "right.safetensors", framework="pt") as file:
        metadata = file.metadata()
    name = next(iter(tensors))
    tensors[name].view(-1)[0] += 1e-3
    save_file(tensors, tmp_path / "wrong.safetensors", metadata=metadata)
    with pytest.raises(EngineError, match="learner published"):
        await engine.load_weights(tmp_path / "wrong.safetensors", 6)


async def test_tied_weights_are_published_once_under_one_name(
    encoder: ChatEncoder, tiny_vlm: Path, tmp_path: Path
) -> None:
    folder = families.tie(shutil.copytree(tiny_vlm, tmp_path / "tied"))
    engine = HFEngine(EngineSettings(folder=folder), device="cpu")
    await engine.start()
    assert engine._model is not None
    published = {n: p.clone() for n, p in engine._model.named_parameters()}
    assert "lm_head.weight" not in published
    embedding = next(name for name in published if "embed_tokens" in name)
    published[embedding] *= -1
    save_file(published, tmp_path / "new.safetensors")
    await engine.load_weights(tmp_path / "new.safetensors", 2)
    head = engine._model.get_parameter("lm_head.weight")
    assert torch.equal(head, published[embedding])
    reply = await engine.generate(prompts(encoder, 1)[0], Sampling(max_new_tokens=1))
    assert reply.version == 2
    del published[embedding]
    save_file(published, tmp_path / "partial.safetensors")
    with pytest.raises(EngineError, match=r"embed_tokens\S* is missing"):
        await engine.load_weights(tmp_path / "partial.safetensors", 3)
    await engine.close()


async def test_a_closed_engine_is_an_error(engine: HFEngine, encoder: ChatEncoder) -> None:
    engine.begin_episode()
    engine.begin_episode()
    waiting = asyncio.create_task(engine.generate(prompts(encoder, 1)[0], Sampling()))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await waiting
    with pytest.raises(EngineError, match="closed"):
        await engine.generate(prompts(encoder, 1)[0], Sampling())


async def test_a_folder_without_a_model_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json"):
        await HFEngine(EngineSettings(folder=tmp_path)).start()
