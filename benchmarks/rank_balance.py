"""Measure how busy 2, 4 and 8 learner ranks are at the sizes of agentrl's configurations.

    python benchmarks/rank_balance.py

Ranks wait for each other in every pass, so a pass takes as long as its most expensive micro-batch.
For each configuration, a step of synthetic episodes is divided into minibatches, which are packed
for several ranks. The table shows

    mean cost of the ranks / cost of the most expensive rank, both summed over all passes

for micro-batches that are filled to `train.micro_batch_tokens` and dealt to the ranks in turn
("filled"), and for the learner's own micro-batches ("balanced"); a rank without a micro-batch
counts as 0. "speedup" is the time of one rank divided by the time of 8 balanced ranks: unlike the
efficiency, it includes prefixes that several ranks compute.

Episodes: instructions and first screen are shared within a group; replies have log-normal lengths
around 40% of `rollout.max_new_tokens`; an episode plays between half and all of `env.max_turns`.
Costs come from `micro_batch_cost`, with the dimensions of the tiny model and Qwen2.5-VL-3B. No
model runs.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from conditions import conditions
from gpu_models import TEXT, VISION
from rich.console import Console
from rich.table import Table

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.config.env_settings import parse_history
from agentrl.policies import tiny_model
from agentrl.policies.models import adapter_for
from agentrl.policies.models.model_adapter import target_size
from agentrl.training.batching.packing import Packing, pack_micro_batches, sequence_keys
from agentrl.training.batching.rank_balance import LayoutCosts, Rows, pack_for_ranks
from agentrl.training.learner.network.backbone import Backbone
from agentrl.types import TokenSequence

IMAGE = -1
"""Placeholder id of the image token."""
INSTRUCTIONS = {"tiny": 8, "3b": 200}
"""Tokens of instructions and chat template, by model size."""
SCREEN = (720, 1280)
RANKS = (2, 4, 8)
UNSET = ["devices.source=virtual:1"]
"""Overrides for settings that a configuration leaves to its user."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", help="names of configurations; all by default")
    parser.add_argument(
        "--minibatches", type=int, default=4, help="maximum number of minibatches per configuration"
    )
    options = parser.parse_args()
    folder = Path(__file__).resolve().parent.parent / "configs"
    names = options.configs or sorted(path.stem for path in folder.glob("*.yaml"))
    console = Console(width=140)
    console.print(conditions("torch", "transformers"), highlight=False, soft_wrap=True)
    table = Table(title="Mean cost of the ranks / cost of the most expensive one")
    columns = [f"{count} {way}" for way in ("filled", "balanced") for count in RANKS]
    for column in ("configuration", "samples", "tokens", *columns, "speedup"):
        table.add_column(column, justify="left" if column == "configuration" else "right")
    packings = dimensions()
    for name in names:
        table.add_row(
            name, *measured(configuration.load(name, UNSET), packings, options.minibatches)
        )
    console.print(table)


def dimensions() -> dict[str, Packing]:
    """Return the relative costs of attention and images in the tiny and the 3B model."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = tiny_model.build(Path(scratch), 0)
        adapter = adapter_for(folder)
        configs = {
            "tiny": Qwen2_5_VLConfig.from_pretrained(folder),
            "3b": Qwen2_5_VLConfig(text_config=TEXT, vision_config=VISION),
        }
        for size, config in configs.items():
            with torch.device("meta"):
                model = Backbone(Qwen2_5_VLForConditionalGeneration._from_config(config), adapter)
            for parameter in model.vision():
                parameter.requires_grad_(size == "tiny")  # the 3B jobs freeze the vision tower
            found[size] = Packing(
                max_tokens=1,
                attention_break_even=model.attention_break_even(),
                image_token_cost=model.image_token_cost(),
                read_last_tokens=False,
            )
    return found


def measured(config: Config, packings: dict[str, Packing], most: int) -> list[str]:
    """Measure a configuration and return its table row."""
    size = "tiny" if config.model.path == "tiny" else "3b"
    packing = replace(packings[size], max_tokens=config.train.micro_batch_tokens)
    rng = np.random.default_rng(0)
    samples = list(step_samples(config, size, rng))
    parts = minibatches(config, samples, rng)[:most]
    filled, balanced = np.zeros((2, len(RANKS), 2))
    single = 0.0
    for part in parts:
        costs = LayoutCosts(sequence_keys(part, packing, IMAGE), packing)
        whole = pack_micro_batches(part, packing, IMAGE)
        single += costs.of_passes(whole, 1)
        filled += [busy(whole, costs, ranks) for ranks in RANKS]
        balanced += [
            busy(pack_for_ranks(part, packing, IMAGE, ranks), costs, ranks) for ranks in RANKS
        ]
    tokens = sum(len(sample.token_ids) for part in parts for sample in part) / len(parts)
    efficiency = [
        f"{mean / most_expensive:.2f}" for way in (filled, balanced) for mean, most_expensive in way
    ]
    speedup = f"{single / balanced[-1, 1]:.2f}"
    return [f"{len(parts[0])}", f"{tokens:,.0f}", *efficiency, speedup]


def busy(batches: Sequence[Rows], costs: LayoutCosts, ranks: int) -> tuple[float, float]:
    """Return the mean cost of the ranks and the cost of all passes."""
    total = sum(costs.of_micro_batch(rows) for rows in batches)
    return total / ranks, costs.of_passes(batches, ranks)


def minibatches(
    config: Config, samples: Sequence[TokenSequence], rng: np.random.Generator
) -> list[list[TokenSequence]]:
    """Split samples into optimizer steps."""
    size = config.algorithm.minibatch or len(samples)
    order = np.array_split(rng.permutation(len(samples)), -(-len(samples) // size))
    return [[samples[index] for index in part] for part in order]


def step_samples(config: Config, size: str, rng: np.random.Generator) -> Iterator[TokenSequence]:
    """Yield the synthetic samples of one step, with the configuration's token counts."""
    history = parse_history(config.env.history or "concat")
    images = image_tokens(config)
    instructions = rng.integers(1, 1000, INSTRUCTIONS[size]).tolist()
    episode = 0
    for _ in range(config.rollout.groups):
        first = screen(rng, images)
        for _ in range(config.rollout.group_size):
            turns = int(rng.integers(-(-config.env.max_turns // 2), config.env.max_turns + 1))
            said: list[tuple[list[int], np.ndarray, list[int]]] = []
            for turn in range(turns):
                text, image = first if turn == 0 else screen(rng, images)
                limit = config.rollout.max_new_tokens
                length = int(np.clip(rng.lognormal(np.log(0.4 * limit), 0.5), 1, limit))
                said.append((text, image, rng.integers(1, 1000, length).tolist()))
                used = sum(len(own[0]) + len(own[2]) for own in said)
                kept = None if history.turns is None else -history.turns
                if kept is None and used + len(instructions) > config.rollout.max_context:
                    said.pop()
                    break
                if kept is not None:
                    yield sequence(instructions, said[kept:], episode, whole=False)
            if history.turns is None:
                yield sequence(instructions, said, episode, whole=True)
            episode += 1


def screen(rng: np.random.Generator, tokens: int) -> tuple[list[int], np.ndarray]:
    """Draw the ids of a unique screen, and a small image to represent it."""
    if not tokens:  # a state described in words
        return rng.integers(1, 1000, 12).tolist(), np.zeros((0, 0, 3), np.uint8)
    return [1, 2, *[IMAGE] * tokens, 3], rng.integers(0, 255, (4, 4, 3), dtype=np.uint8)


def image_tokens(config: Config) -> int:
    """Return the tokens of one screen; 0 if the environment describes its state in words."""
    given = config.env.kwargs
    side = given.get("pixels") or given.get("cell", 0) * given.get("size", 0)
    frame = (side, side) if side else SCREEN
    size = config.model.image_size
    wanted = (size[0], size[1]) if size else None
    width, height = target_size(frame, wanted, config.model.max_pixels, 28)
    tokens = width * height // 28**2
    return tokens if tokens < config.rollout.max_context else 0


def sequence(
    instructions: Sequence[int],
    said: Sequence[tuple[list[int], np.ndarray, list[int]]],
    episode: int,
    *,
    whole: bool,
) -> TokenSequence:
    """Make a sample that trains on the replies of all turns, or only on the last reply."""
    ids, sampled = list(instructions), list[int]()
    for number, (text, _, reply) in enumerate(said):
        ids += text
        if whole or number == len(said) - 1:
            sampled += range(len(ids), len(ids) + len(reply))
        ids += reply
    count = len(sampled)
    return TokenSequence(
        token_ids=tuple(ids),
        sampled_positions=tuple(sampled),
        logprobs=(0.0,) * count,
        versions=(0,) * count,
        turns=(0,) * count,
        images=tuple(image for _, image, _ in said if image.size),
        episode=episode,
    )


if __name__ == "__main__":
    main()
