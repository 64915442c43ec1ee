import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch
from safetensors.torch import load_file, save_file

from agentrl.config import ModelConfig, RolloutConfig
from agentrl.errors import ConfigError, EngineError, EngineMismatch
from agentrl.policies import tiny_model
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.engines.engine import EngineSettings, Sampling
from agentrl.policies.engines.vllm_engine import VLLMEngine
from agentrl.policies.models import load_model
from agentrl.training.engine_check.compared_prompts import ComparedPrompt
from agentrl.training.engine_check.reference_copy import ReferenceCopy
from agentrl.types import Message, Prompt, Reply
from agentrl.weight_sync import safetensors_files
from tests.policies import families
from tests.policies.pictures import picture, screen
from tests.policies.scoring import forward_logprobs

pytestmark = [pytest.mark.filterwarnings("default")]
in_the_engines_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny_vlm: Path) -> AsyncIterator[VLLMEngine]:
    pytest.importorskip("vllm")
    engine = VLLMEngine(
        EngineSettings(folder=tiny_vlm, max_context=1024, deadline_s=120), max_num_seqs=64
    )
    await engine.start()
    yield engine
    await engine.close()


async def ask(engine: VLLMEngine, asked: list[Prompt], **how: float) -> list[Reply]:
    samplings = [Sampling(seed=seed, **{"max_new_tokens": 8, **how}) for seed in range(len(asked))]  # type: ignore[arg-type]
    pairs = zip(asked, samplings, strict=True)
    return list(await asyncio.gather(*(engine.generate(p, s) for p, s in pairs)))


def prompts(encoder: ChatEncoder) -> list[Prompt]:
    """No image; one; two of different sizes; a conversation that repeats an image."""
    two = (picture(1), picture(2, 112, 196))
    asked = [
        Conversation(encoder, "play").observe(Message(role="user", text="hello")),
        Conversation(encoder, "").observe(screen(1)),
        Conversation(encoder, "").observe(Message(role="user", text="<image>a<image>", images=two)),
    ]
    talk = Conversation(encoder, "play")
    for seed in (1, 3, 1):
        asked.append(talk.observe(screen(seed)))
        talk.answer((40, 41, 258))
    return asked


def check_against_transformers(folder: Path, asked: list[Prompt], replies: list[Reply]) -> None:
    model, encoder = load_model(folder).eval(), ChatEncoder(folder)
    for prompt, reply in zip(asked, replies, strict=True):
        expected = forward_logprobs(model, encoder, prompt, reply.token_ids)
        np.testing.assert_allclose(reply.logprobs, expected, atol=1e-3)


@pytest.mark.vllm
@in_the_engines_loop
async def test_logprobs_equal_those_of_transformers(
    engine: VLLMEngine, encoder: ChatEncoder, tiny_vlm: Path
) -> None:
    asked = prompts(encoder)
    check_against_transformers(tiny_vlm, asked, await ask(engine, asked))
    check_against_transformers(tiny_vlm, asked, await ask(engine, asked))  # from its caches


@pytest.mark.vllm
@in_the_engines_loop
async def test_images_in_the_wrong_order_are_refused(
    engine: VLLMEngine, encoder: ChatEncoder, tiny_vlm: Path
) -> None:
    two = (np.zeros((140, 84, 3), np.uint8), picture(2))
    message = Message(role="user", text="<image>a<image>", images=two)
    compared = [ComparedPrompt(prompt=Conversation(encoder, "").observe(message))]
    copy = ReferenceCopy(tiny_vlm, ModelConfig(path=str(tiny_vlm)), RolloutConfig())
    assert (await copy.compare(compared, engine.generate)).largest < 1e-4

    async def swapped(prompt: Prompt, sampling: Sampling) -> Reply:
        return await engine.generate(replace(prompt, images=prompt.images[::-1]), sampling)

    with pytest.raises(EngineMismatch, match=r"vllm \d"):
        await copy.compare(compared, swapped)


@pytest.mark.vllm
@in_the_engines_loop
async def test_new_weights_are_used_even_for_cached_images(
    engine: VLLMEngine, encoder: ChatEncoder, tiny_vlm: Path, tmp_path: Path
) -> None:
    asked = prompts(encoder)
    old = await ask(engine, asked, temperature=0)
    other = tiny_model.build(tmp_path / "other", 1)
    for version, folder in ((7, other), (8, tiny_vlm)):
        await engine.load_weights(folder / "model.safetensors", version)
        replies = await ask(engine, asked, temperature=0)
        check_against_transformers(folder, asked, replies)
        assert {reply.version for reply in replies} == {version}
    assert [reply.token_ids for reply in replies] == [reply.token_ids for reply in old]


@pytest.mark.vllm
@in_the_engines_loop
async def test_published_checksums_are_verified(
    engine: VLLMEngine, encoder: ChatEncoder, tiny_vlm: Path, tmp_path: Path
) -> None:
    tensors = load_file(tiny_vlm / "model.safetensors")
    path = tmp_path / "checked.safetensors"
    safetensors_files.write(path, tensors, checked=True)
    await engine.load_weights(path, 6)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    under_way = asyncio.create_task(ask(engine, prompts(encoder), max_new_tokens=400))
    await wait_for_tokens(engine, 1)
    with pytest.raises(EngineError, match="learner published"):
        await engine.load_weights(path, 7)
    with pytest.raises(
        EngineError, match="a weight update failed during this request: the weights of version 7"
    ):
        await under_way
    await engine.load_weights(tiny_vlm / "model.safetensors", 8)


@pytest.mark.vllm
@in_the_engines_loop
async def test_requests_in_flight_continue_with_new_weights(
    engine: VLLMEngine, encoder: ChatEncoder, tiny_vlm: Path, tmp_path: Path
) -> None:
    other = tiny_model.build(tmp_path / "other", 1)
    folders = {20: tiny_vlm, 21: other, 22: tiny_vlm}
    await engine.load_weights(tiny_vlm / "model.safetensors", 20)
    asked = prompts(encoder)
    under_way = asyncio.create_task(ask(engine, asked, max_new_tokens=400))
    for version in (21, 22):
        await wait_for_tokens(engine, 10)
        await engine.load_weights(folders[version] / "model.safetensors", version)
    check_versions(folders, asked, await under_way)
    check_against_transformers(tiny_vlm, asked, await ask(engine, asked))


def check_versions(folders: dict[int, Path], asked: list[Prompt], replies: list[Reply]) -> None:
    """Check that every version has sampled tokens, with the log-probabilities of its model."""
    assert {version for reply in replies for version in reply.token_versions} == set(folders)
    for folder in {*folders.values()}:
        model, encoder = load_model(folder).eval(), ChatEncoder(folder)
        for prompt, reply in zip(asked, replies, strict=True):
            expected = np.array(forward_logprobs(model, encoder, prompt, reply.token_ids))
            own = np.array([folders[version] == folder for version in reply.token_versions])
            np.testing.assert_allclose(np.array(reply.logprobs)[own], expected[own], atol=1e-3)


async def wait_for_tokens(engine: VLLMEngine, count: int) -> None:
    """Wait until a reply in flight has that many more tokens."""

    def longest() -> int:
        states = engine._engine.output_processor.request_states.values()
        return max((s.detokenizer.num_output_tokens() for s in states), default=0)

    before = longest()
    async with asyncio.timeout(60):
        while longest() < before + count:
            await asyncio.sleep(0.005)


@pytest.mark.vllm
@in_the_engines_loop
async def test_image_tokens_are_never_sampled_at_any_temperature(
    engine: VLLMEngine, encoder: ChatEncoder
) -> None:
    replies = await ask(engine, prompts(encoder)[1:2] * 24, temperature=2.0, max_new_tokens=60)
    tokens = [token for reply in replies for token in reply.token_ids]
    assert len(set(tokens)) > 300
    assert not set(tokens) & set(encoder.model_adapter.banned_token_ids)
    assert all(np.isfinite(reply.logprobs).all() for reply in replies)


@pytest.mark.vllm
@in_the_engines_loop
async def test_the_smallest_top_p_leaves_only_the_most_probable_token(
    engine: VLLMEngine, encoder: ChatEncoder
) -> None:
    asked = prompts(encoder)[1:2]
    (greedy,) = await ask(engine, asked, temperature=0.0, max_new_tokens=20)
    (cut,) = await ask(engine, asked, temperature=1.0, top_p=1e-6, max_new_tokens=20)
    (free,) = await ask(engine, asked, temperature=1.0, max_new_tokens=20)
    assert cut.token_ids == greedy.token_ids != free.token_ids


@pytest.mark.vllm
@in_the_engines_loop
async def test_top_logprobs_are_those_of_vllm_and_of_transformers(
    engine: VLLMEngine, encoder: ChatEncoder, tiny_vlm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, how = prompts(encoder)[1], {"temperature": 0.7, "max_new_tokens": 6}
    outputs: list[Any] = []

    async def kept(*asked: Any) -> Any:
        outputs.append(await VLLMEngine._run(engine, *asked))
        return outputs[-1]

    monkeypatch.setattr(engine, "_run", kept)
    (reply,) = await ask(engine, [prompt], **how, top_logprobs=5)
    (plain,) = await ask(engine, [prompt], **how)
    assert plain.top_logprobs == ()
    for found, position in zip(reply.top_logprobs, outputs[0].outputs[0].logprobs, strict=True):
        ranked = sorted(position.items(), key=lambda item: item[1].rank)[:5]
        assert found == tuple((token, one.logprob) for token, one in ranked)
    model = load_model(tiny_vlm).eval()
    ids = torch.tensor([prompt.token_ids + reply.token_ids])
    inputs = encoder.model_adapter.forward_inputs(ids, torch.ones_like(ids).bool(), prompt.images)
    with torch.no_grad():
        logits = model(**inputs).logits[0, len(prompt.token_ids) - 1 : -1].float()
    logits[:, list(encoder.model_adapter.banned_token_ids)] = -torch.inf
    expected = torch.log_softmax(logits / 0.7, -1).topk(5).values
    found_logprobs = [[logprob for _, logprob in top] for top in reply.top_logprobs]
    np.testing.assert_allclose(found_logprobs, expected, atol=2e-3)


@pytest.mark.vllm
@in_the_engines_loop
async def test_a_reply_includes_its_end_token(engine: VLLMEngine, encoder: ChatEncoder) -> None:
    replies = await ask(engine, prompts(encoder)[1:2] * 40, temperature=2.0, max_new_tokens=200)
    ended = [reply for reply in replies if len(reply.token_ids) < 200]
    assert ended
    for reply in replies:
        assert not set(reply.token_ids[:-1]) & set(encoder.eos_token_ids)
    assert all(reply.token_ids[-1] in encoder.eos_token_ids for reply in ended)


@pytest.mark.vllm
@in_the_engines_loop
async def test_a_prompt_changed_by_vllm_is_an_error(
    engine: VLLMEngine, encoder: ChatEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = prompts(encoder)[1]
    request = engine._request(asked)
    request["prompt_token_ids"] = [*request["prompt_token_ids"], 10]
    monkeypatch.setattr(engine, "_request", lambda prompt: request)
    with pytest.raises(EngineError, match="expanded the prompt to"):
        await engine.generate(asked, Sampling(max_new_tokens=2))


@pytest.mark.vllm
@in_the_engines_loop
async def test_a_request_has_a_deadline(
    engine: VLLMEngine, encoder: ChatEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_deadline_s", 0.001)
    with pytest.raises(EngineError, match="TimeoutError"):
        await engine.generate(prompts(encoder)[1], Sampling(max_new_tokens=500))


@pytest.mark.vllm
@in_the_engines_loop
async def test_after_refused_weights_requests_fail_until_weights_are_loaded(
    engine: VLLMEngine, encoder: ChatEncoder, tiny_vlm: Path, tmp_path: Path
) -> None:
    weights = load_file(tiny_vlm / "model.safetensors")
    *most, last = weights
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    save_file({name: weights[name] for name in most}, tmp_path / "partial.safetensors")
    asked = prompts(encoder)
    for name, words in (("broken", r"broken\.safetensors"), ("partial", f"{last} is missing")):
        with pytest.raises(EngineError, match=words):
            await engine.load_weights(tmp_path / f"{name}.safetensors", 11)
        with pytest.raises(EngineError, match=rf"version 11 \(\S+{name}\S+\) were not loaded"):
            await ask(engine, asked)
    await engine.load_weights(tiny_vlm / "model.safetensors", 12)
    replies = await ask(engine, asked)
    check_against_transformers(tiny_vlm, asked, replies)
    assert {reply.version for reply in replies} == {12}


@pytest.mark.vllm
@in_the_engines_loop
async def test_an_engine_whose_load_failed_midway_refuses_all_requests(
    engine: VLLMEngine, encoder: ChatEncoder, tiny_vlm: Path, tmp_path: Path
) -> None:
    """Must be the last test of this engine."""
    weights = load_file(tiny_vlm / "model.safetensors")
    (middle,) = [
        name for name in weights if name.endswith("language_model.layers.2.mlp.up_proj.weight")
    ]
    save_file(weights | {middle: torch.zeros(2, 2)}, tmp_path / "misshapen.safetensors")
    # Bypasses the engine's own check of the file.
    with pytest.raises(Exception, match="collective_rpc"):
        await engine._engine.collective_rpc(
            "load_safetensors", args=(str(tmp_path / "misshapen.safetensors"),)
        )
    with pytest.raises(EngineError, match="restart the engine"):
        await engine.load_weights(tiny_vlm / "model.safetensors", 15)
    with pytest.raises(EngineError, match="version 15"):
        await ask(engine, prompts(encoder))


@pytest.mark.slow
@pytest.mark.vllm
async def test_a_tied_head_follows_new_weights(encoder: ChatEncoder, tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    first, second = (
        families.tie(tiny_model.build(tmp_path / f"{seed}", seed, embedding_std=0.1))
        for seed in (0, 1)
    )
    engine = VLLMEngine(
        EngineSettings(folder=first, max_context=1024, deadline_s=120), max_num_seqs=16
    )
    await engine.start()
    try:
        asked = prompts(encoder)
        for version, folder in ((1, second), (2, first)):
            await engine.load_weights(folder / "model.safetensors", version)
            check_against_transformers(folder, asked, await ask(engine, asked))
    finally:
        await engine.close()


@pytest.mark.vllm
async def test_unknown_vllm_arguments_are_reported(tiny_vlm: Path) -> None:
    pytest.importorskip("vllm")
    with pytest.raises(ConfigError, match="no_such_argument"):
        await VLLMEngine(EngineSettings(folder=tiny_vlm), no_such_argument=1).start()


@pytest.mark.vllm
@in_the_engines_loop
async def test_arguments_parsed_from_the_source_equal_those_of_the_class(
    engine: VLLMEngine,
) -> None:
    from vllm import AsyncEngineArgs

    assert VLLMEngine.known_kwargs() == [field.name for field in fields(AsyncEngineArgs)]


async def test_without_vllm_the_error_says_how_to_install_it(
    tiny_vlm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match=r"agentrl-screens\[cpu\].*or use rollout\.engine=hf"):
        await VLLMEngine(EngineSettings(folder=tiny_vlm)).start()
