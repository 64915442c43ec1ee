"""vLLM's weight transfer, and serving of adapters, from a real learner to a real engine."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from agentrl.config import Config, LoraConfig
from agentrl.errors import EngineError
from agentrl.policies import tiny_model
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.engine import EngineSettings
from agentrl.policies.engines.vllm_engine import VLLMEngine
from agentrl.training.learner import lora_adapters
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.weight_sync import published_weights
from agentrl.weight_sync.engine_link import LocalLink
from agentrl.weight_sync.transport_choice import transport_class
from tests.policies import families
from tests.policies.engines.test_vllm_engine import (
    ask,
    check_against_transformers,
    check_versions,
    prompts,
    wait_for_tokens,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_environment.yaml"
pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.filterwarnings("default")]
# Importing it needs a patched torchvision, and pytest's own skip would come too early.
needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="needs PEFT")
in_the_engines_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def tiny_vlm(tmp_path_factory) -> Path:
    return tiny_model.build(tmp_path_factory.mktemp("model") / "tiny", 0)


@pytest.fixture(scope="module")
def encoder(tiny_vlm: Path) -> ChatEncoder:
    return ChatEncoder(tiny_vlm)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny_vlm: Path) -> AsyncIterator[VLLMEngine]:
    pytest.importorskip("vllm")
    opened = VLLMEngine(
        EngineSettings(folder=tiny_vlm, max_context=1024, deadline_s=120, backend="shared"),
        max_num_seqs=64,
    )
    await opened.start()
    yield opened
    await opened.close()


class Tampering(LocalLink):
    """Flips the last bit of every chunk on its way."""

    def send_each(self, messages):
        for method, arguments in messages:
            if method == "update_weights":
                path = Path(arguments[0]["path"])
                content = bytearray(path.read_bytes())
                content[-1] ^= 1
                path.write_bytes(content)
        super().send_each(messages)


async def send(learner, engine, version, *, link=LocalLink, transport="shared"):
    """One publish, as a job's."""
    receiver = transport_class(transport)()
    shapes = learner.shapes()
    await receiver.begin(engine, version, shapes, learner._settings.train.check_weights)
    opened = link(lambda message: receiver.receive(engine, message), 1, 60)
    digest = await asyncio.to_thread(learner.send_weights, transport, opened)
    await receiver.finish(engine, version, list(shapes), digest)


@in_the_engines_loop
async def test_an_engine_uses_chunked_weights_even_for_cached_images(
    engine, encoder, tiny_vlm, config: Config, tmp_path, monkeypatch
):
    monkeypatch.setattr("agentrl.policies.engines.vllm_weight_transfer._CHUNK_BYTES", 1 << 20)
    config.train.check_weights = True
    asked = prompts(encoder)
    old = await ask(engine, asked, temperature=0)
    check_against_transformers(tiny_vlm, asked, old)
    other = tiny_model.build(tmp_path / "other", 1)
    learner = Learner(LearnerSettings.of(config), other)
    known = {0: tiny_vlm}
    for version, folder in ((7, other), (8, tiny_vlm), (9, other)):
        learner.load_weights(folder / "model.safetensors")
        under_way = asyncio.create_task(ask(engine, asked, max_new_tokens=100))
        await wait_for_tokens(engine, 5)
        await send(learner, engine, version)
        replies = await ask(engine, asked, temperature=0)
        check_against_transformers(folder, asked, replies)
        assert {reply.version for reply in replies} == {version}
        check_versions({**known, version: folder}, asked, await under_way)
        known = {version: folder}
    assert not list(published_weights.shared_folder().glob("chunk-*"))
    learner.close()


@in_the_engines_loop
async def test_weights_of_another_model_are_refused_before_any_is_sent(
    engine, encoder, tiny_vlm, config
):
    learner = Learner(LearnerSettings.of(config), tiny_vlm)
    shapes = learner.shapes()
    *most, last = shapes
    with pytest.raises(EngineError, match=f"{last} is missing"):
        await engine.begin_weight_update(10, {name: shapes[name] for name in most}, False)
    with pytest.raises(EngineError, match="version 10 have not arrived"):
        await ask(engine, prompts(encoder))
    await send(learner, engine, 11)
    check_against_transformers(tiny_vlm, prompts(encoder), await ask(engine, prompts(encoder)))
    learner.close()


@in_the_engines_loop
async def test_a_flipped_bit_is_detected_and_the_engine_stops_answering(
    engine, encoder, tiny_vlm, config
):
    """The last of this engine's tests."""
    config.train.check_weights = True
    learner = Learner(LearnerSettings.of(config), tiny_vlm)
    with pytest.raises(EngineError, match="learner published"):
        await send(learner, engine, 20, link=Tampering)
    with pytest.raises(EngineError, match="version 20"):
        await ask(engine, prompts(encoder))
    with pytest.raises(EngineError, match="restart the engine"):
        await engine.load_weights(tiny_vlm / "model.safetensors", 21)
    learner.close()


async def test_a_tied_output_head_follows_chunked_weights(encoder, config, tmp_path):
    pytest.importorskip("vllm")
    first, second = (
        families.tie(tiny_model.build(tmp_path / f"{seed}", seed, embedding_std=0.1))
        for seed in (0, 1)
    )
    tied = VLLMEngine(
        EngineSettings(folder=first, max_context=1024, deadline_s=120, backend="shared"),
        max_num_seqs=16,
    )
    learner = Learner(LearnerSettings.of(config), second)
    await tied.start()
    try:
        await send(learner, tied, 1)
        asked = prompts(encoder)
        check_against_transformers(second, asked, await ask(tied, asked))
    finally:
        await tied.close()
        learner.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def adapted(tiny_vlm: Path) -> AsyncIterator[VLLMEngine]:
    pytest.importorskip("vllm")
    opened = VLLMEngine(
        EngineSettings(folder=tiny_vlm, max_context=1024, deadline_s=120, lora_rank=4),
        max_num_seqs=64,
    )
    await opened.start()
    yield opened
    await opened.close()


def move(learner, seed):
    """Let every adapter add something."""
    torch.manual_seed(seed)
    for name, parameter in learner._policy._named().items():
        if lora_adapters.is_lora_b(name):
            with torch.no_grad():
                torch.nn.init.normal_(parameter.to_local(), std=0.05)


def reinforced(folder, *settings):
    """The lines of a job's steps, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "agentrl", "train", EXAMPLE, f"run.dir={folder}", "run.name=job",
         "warm_start.steps=20", "warm_start.cache=null", "train.steps=2", "rollout.groups=2",
         "rollout.group_size=4", "eval.episodes=2", "logging=[file]", "rollout.engine=vllm",
         "train.check_weights=true", "optim.lr=0.01",
         "algorithm.entropy_coefficient=0.1", *settings],  # every group has a gradient
        capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = map(json.loads, (folder / "job" / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["stage"] == "reinforcement"]


@pytest.mark.parametrize(
    "settings",
    [
        ["train.weight_transfer=shared", "train.mode=async"],
        pytest.param(["model.lora.rank=4", "model.lora.serve=adapter"], marks=needs_peft),
    ],
    ids=["async", "adapter"],
)
def test_the_engine_of_a_job_computes_what_its_learner_does(tmp_path, settings):
    pytest.importorskip("vllm")
    steps = reinforced(tmp_path, *settings)
    assert [step["step"] for step in steps] == [1, 2]
    for step in steps:
        assert step["learner/grad_norm"] > 0
        assert step["learner/mismatch_max"] < 1e-3


needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@needs_a_gpu
async def test_weights_reach_a_sleeping_engine_by_ipc(encoder, config, tiny_vlm, tmp_path):
    other = tiny_model.build(tmp_path / "other", 1)
    shared = VLLMEngine(
        EngineSettings(
            folder=tiny_vlm, max_context=1024, deadline_s=120, backend="ipc", can_sleep=True
        ),
        gpu_memory_utilization=0.3,
        enforce_eager=True,
    )
    config.train.check_weights = True
    learner, asked = Learner(LearnerSettings.of(config), other), prompts(encoder)
    await shared.start()
    try:
        await ask(shared, asked)
        await shared.sleep()
        with pytest.raises(EngineError, match="the engine is asleep"):
            await ask(shared, asked[:1])
        await send(learner, shared, 1, transport="ipc")
        check_against_transformers(other, asked, await ask(shared, asked))
    finally:
        await shared.close()
        learner.close()


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_weights_reach_engines_on_other_gpus_by_nccl(tmp_path):
    """Not run on such GPUs yet."""
    steps = reinforced(tmp_path, "train.weight_transfer=nccl", "rollout.launcher=ray")
    assert all(step["learner/mismatch_max"] < 1e-2 for step in steps)


@needs_peft
@in_the_engines_loop
async def test_served_adapters_answer_like_the_merged_model_even_for_cached_images(
    adapted, encoder, tiny_vlm, config, tmp_path
):
    config.model.lora = LoraConfig(rank=4, alpha=8, serve="adapter")
    config.train.check_weights = True
    learner = Learner(LearnerSettings.of(config), tiny_vlm)
    asked = prompts(encoder)
    old = await ask(adapted, asked, temperature=0)
    check_against_transformers(tiny_vlm, asked, old)
    known = {0: tiny_vlm}
    for version in (1, 2, 3):
        move(learner, version)
        learner.export(tmp_path / f"{version}")
        under_way = asyncio.create_task(ask(adapted, asked, max_new_tokens=100))
        await wait_for_tokens(adapted, 5)
        await adapted.load_adapter(published_weights.publish_adapter(learner, version), version)
        if version > 1:  # the first one waits for requests without adapters
            known[version] = tmp_path / f"{version}"
        check_versions(known, asked, await under_way)
        known = {version: tmp_path / f"{version}"}
        replies = await ask(adapted, asked, temperature=0)
        check_against_transformers(tmp_path / f"{version}", asked, replies)
        assert {reply.version for reply in replies} == {version}
        assert [r.logprobs for r in replies] != [r.logprobs for r in old]
        old = replies
    learner.close()


@needs_peft
@in_the_engines_loop
async def test_base_weights_are_published_after_a_warm_start(
    adapted, encoder, tiny_vlm, config, tmp_path
):
    config.model.lora = LoraConfig(rank=4, alpha=8, serve="adapter")
    warm = tiny_model.build(tmp_path / "warm", 1)
    learner = Learner(LearnerSettings.of(config), tiny_vlm)
    learner.load_weights(warm / "model.safetensors")
    move(learner, 3)
    learner.export(tmp_path / "merged")
    asked = prompts(encoder)
    await adapted.load_weights(published_weights.publish_base(learner, 3), 3)
    await adapted.load_adapter(published_weights.publish_adapter(learner, 3), 3)
    check_against_transformers(tmp_path / "merged", asked, await ask(adapted, asked))
    learner.close()


@needs_peft
@in_the_engines_loop
async def test_checksums_of_adapters_are_verified(adapted, encoder, tiny_vlm, config, tmp_path):
    config.model.lora = LoraConfig(rank=4, alpha=8, serve="adapter")
    config.train.check_weights = True
    learner = Learner(LearnerSettings.of(config), tiny_vlm)
    folder = published_weights.publish_adapter(learner, 5)
    file = folder / "adapter_model.safetensors"
    with safe_open(file, framework="pt") as opened:
        about = opened.metadata()
    tensors = {name: tensor + 1 for name, tensor in load_file(file).items()}
    save_file(tensors, file, metadata=about)
    with pytest.raises(EngineError, match="learner published"):
        await adapted.load_adapter(folder, 5)
    with pytest.raises(EngineError, match="version 5"):
        await ask(adapted, prompts(encoder))
    await adapted.load_adapter(published_weights.publish_adapter(learner, 6), 6)
    assert {reply.version for reply in await ask(adapted, prompts(encoder))} == {6}
    learner.close()
