"""Estimate how many GPUs of 24 to 141 GB training needs, with `agentrl plan`'s simulation.

    python benchmarks/memory_table.py

For each model and training method, two ranks are simulated; with more ranks, sharded memory is
divided accordingly. Engines share the ranks' GPUs, or one engine has 1, 2, 4 or 8 separate GPUs,
whichever needs fewer GPUs. A star means that weights, gradients and optimizer state are in CPU
memory (`train.offload=true`), where that saves GPUs. Micro-batches have 8,192 tokens, contexts
2,048.
"""

import argparse
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from conditions import conditions
from rich.console import Console
from rich.table import Table

from agentrl import config as configuration
from agentrl.cluster.placement import Layout, Node, plan_layout
from agentrl.config import Config
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.plan.memory_plan import MemoryPlanner
from agentrl.training.plan.memory_simulation import MemorySimulation, RankMemory
from agentrl.training.plan.model_config_folder import config_folder

MODELS = [f"Qwen/Qwen2.5-VL-{size}-Instruct" for size in ("3B", "7B", "32B", "72B")]
MODELS.append("Qwen/Qwen3-VL-30B-A3B-Instruct")
CARDS = (24, 40, 80, 141)
MOST = 64
COMMON = [
    "train.gradient_checkpointing=true", "train.activation_offload=true", "model.dtype=bfloat16",
    "train.micro_batch_tokens=8192", "rollout.max_context=2048",
]  # fmt: skip
WAYS = {
    "full": ["train.master_dtype=bfloat16", "optim.moments=8bit"],
    "LoRA": ["model.lora.rank=32"],
    "QLoRA": ["model.lora.rank=32", "model.lora.base=nf4"],
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, help="ids or folders")
    parser.add_argument("--ways", default=",".join(WAYS), help="comma-separated")
    options = parser.parse_args()
    console = Console(width=120)
    console.print(conditions("torch", "transformers"), highlight=False, soft_wrap=True)
    table = Table("model", "training", *(f"{card} GB" for card in CARDS), title="GPUs needed")
    for model in options.models:
        for way in options.ways.split(","):
            config = configuration.load(
                "number_game_3b", [f"model.path={model}", *COMMON, *WAYS[way]]
            )
            table.add_row(Path(model).name, way, *needed(config))
    console.print(table)


def needed(config: Config) -> Iterator[str]:
    """Yield the number of GPUs needed, for each GPU size."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = config_folder(config.model, Path(scratch) / "model")
        two = MemorySimulation(LearnerSettings.of(config), 2).run(folder)
        for card in CARDS:
            plain, offloaded = (
                fewest(
                    replace(config, train=replace(config.train, offload=offload)),
                    card * 1e9,
                    folder,
                    two,
                )
                for offload in (False, True)
            )
            found = min(plain, offloaded)
            star = "*" if offloaded < plain else ""
            yield f"{found:g}{star}" if math.isfinite(found) else f"more than {MOST}"


def fewest(config: Config, card: float, folder: Path, two: RankMemory) -> float:
    """Return the smallest number of GPUs on which a job fits, or infinity above `MOST`."""
    for count in range(1, MOST + 1):
        for placed, layout in placements(config, count):
            memory = divided(two, len(layout.ranks))
            planner = MemoryPlanner(
                LearnerSettings.of(placed), plan_rollouts(placed), placed.checkpoint, layout, folder
            )
            if not planner.plan(card, memory).problems:
                return count
    return math.inf


def placements(config: Config, count: int) -> Iterator[tuple[Config, Layout]]:
    """Yield the ways to place engines and ranks on `count` GPUs, regardless of nodes."""
    nodes = [Node(address="all", cpus=64, gpus=count)]
    together = replace(config.rollout, place="together")
    yield replace(config, rollout=together), plan_layout(nodes, together, config.train)
    for size in (1, 2, 4, 8):
        if size < count:
            kwargs = {"tensor_parallel_size": size}
            apart = replace(config.rollout, place="apart", actors=1, engine_kwargs=kwargs)
            yield replace(config, rollout=apart), plan_layout(nodes, apart, config.train, size)


def divided(two: RankMemory, ranks: int) -> RankMemory:
    """Derive the memory per rank with `ranks` ranks from the memory per rank with two."""
    sharded = ("weights", "remainders", "moments", "gradients", "reference", "other_models")
    return replace(two, **{name: getattr(two, name) * 2 / ranks for name in sharded})


if __name__ == "__main__":
    main()
