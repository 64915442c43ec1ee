"""Measure how much of the attention FlexAttention computes at the sizes of the configurations.

    python benchmarks/attention_blocks.py

For each configuration, an optimizer step of synthetic episodes (see `rank_balance.py`) is packed
for one rank. SDPA uses padded rows and also computes their masked parts. FlexAttention uses a
single row and skips blocks of 128x128 tokens that are fully masked.

"blocks" is the share of blocks that are computed. "attention", "tokens" and "cost" are relative to
SDPA: query-key pairs, tokens including padding, and the cost of the decoder layers including
attention. Everything is counted from the layouts; no model runs.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from conditions import conditions
from rank_balance import IMAGE, UNSET, dimensions, minibatches, step_samples
from rich.console import Console
from rich.table import Table

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.training.batching.packing import Packing, pack_micro_batches, sequence_keys
from agentrl.training.batching.rank_balance import LayoutCosts
from agentrl.training.learner.attention.attention_masks import BLOCK
from agentrl.types import TokenSequence


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", help="names of configurations; all by default")
    options = parser.parse_args()
    folder = Path(__file__).resolve().parent.parent / "configs"
    names = options.configs or sorted(path.stem for path in folder.glob("*.yaml"))
    console = Console(width=120)
    console.print(conditions("torch", "transformers"), highlight=False, soft_wrap=True)
    table = Table(title="FlexAttention relative to SDPA")
    for column in ("configuration", "longest row", "blocks", "attention", "tokens", "cost"):
        table.add_column(column, justify="left" if column == "configuration" else "right")
    packings = dimensions()
    for name in names:
        table.add_row(name, *measured(configuration.load(name, UNSET), packings))
    console.print(table)


def measured(config: Config, packings: dict[str, Packing]) -> list[str]:
    """Measure a configuration and return its table row."""
    size = "tiny" if config.model.path == "tiny" else "3b"
    dense = replace(packings[size], max_tokens=config.train.micro_batch_tokens)
    rng = np.random.default_rng(0)
    part = minibatches(config, list(step_samples(config, size, rng)), rng)[0]
    whole = counted(part, dense)
    sparse = counted(part, replace(dense, attention_block=BLOCK))
    blocks = sum((-(-row // BLOCK) * BLOCK) ** 2 for row in sparse.rows)
    return [
        f"{max(sparse.rows):,}",
        f"{sparse.pairs / blocks:.1%}",
        f"{sparse.pairs / whole.pairs:.1%}",
        f"{sum(sparse.rows) / sum(whole.rows):.2f}",
        f"{sparse.cost / whole.cost:.2f}",
    ]


@dataclass(slots=True, kw_only=True, frozen=True)
class Counted:
    """Amount of work of one rank in an optimizer step."""

    rows: list[int]
    """Tokens of each row, including padding."""
    pairs: int
    """Number of query-key pairs."""
    cost: float
    """Cost of the decoder, in units of one token without attention."""


def counted(part: Sequence[TokenSequence], packing: Packing) -> Counted:
    """Count the work of a layout."""
    costs = LayoutCosts(sequence_keys(part, packing, IMAGE), packing)
    rows, pairs, cost = list[int](), 0, 0.0
    for micro in pack_micro_batches(part, packing, IMAGE):
        width = max(sum(tree.length for tree in row) for row in micro)
        for row in micro:
            padding = width - sum(tree.length for tree in row)
            rows.append(width)
            pairs += costs.attention_pairs(row, padding)
            cost += costs.of_row(row, padding)
    return Counted(rows=rows, pairs=pairs, cost=cost)


if __name__ == "__main__":
    main()
