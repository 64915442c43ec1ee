"""Measure bytes per weight and step time of each kind of optimizer state.

    python benchmarks/optimizer.py

Counts the bytes of the tensors that exist during a step: weights, remainders of bfloat16 weights,
moments and gradients, for the shapes of a small decoder. Steps of all kinds and of a bare
`torch.optim.AdamW` alternate within one process; compare ratios, not times.
"""

import argparse
import time
from statistics import median

import torch
from conditions import conditions
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from agentrl import accelerators
from agentrl.training.learner.adamw import Moments
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.parallel.process_group import join

HIDDEN, INTERMEDIATE, VOCABULARY, LAYERS = 512, 1536, 4096, 4
KINDS: list[tuple[torch.dtype, Moments]] = [
    (torch.float32, "float32"),
    (torch.float32, "bfloat16"),
    (torch.float32, "8bit"),
    (torch.bfloat16, "float32"),
    (torch.bfloat16, "bfloat16"),
    (torch.bfloat16, "8bit"),
]


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of a decoder's weights by name."""
    found: dict[str, tuple[int, ...]] = {"embedding": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        found |= {f"{layer}.{name}": (HIDDEN, HIDDEN) for name in ("q", "k", "v", "o")}
        found |= {f"{layer}.{name}": (INTERMEDIATE, HIDDEN) for name in ("gate", "up")}
        found |= {f"{layer}.down": (HIDDEN, INTERMEDIATE), f"{layer}.norm": (HIDDEN,)}
    return found


class Kind:
    """Weights of one precision, with an optimizer.

    Args:
        dtype: type of weights and gradients.
        moments: how the optimizer stores its moments; None uses a bare `torch.optim.AdamW`.
        device: device of all tensors.
    """

    def __init__(self, dtype: torch.dtype, moments: Moments | None, device: torch.device) -> None:
        torch.manual_seed(0)
        self.weights = {
            name: nn.Parameter(torch.randn(shape, device=device).mul_(0.02).to(dtype))
            for name, shape in shapes().items()
        }
        self.gradients = {
            name: (torch.randn_like(weight) * 1e-3).detach()
            for name, weight in self.weights.items()
        }
        self.remainders = {
            name: torch.zeros_like(weight, dtype=torch.int16)
            for name, weight in self.weights.items()
            if dtype == torch.bfloat16
        }
        self.bare: torch.optim.AdamW | None = None
        self.optimizer: Optimizer | None = None
        if moments is None:
            self.bare = torch.optim.AdamW(
                list(self.weights.values()), betas=(0.9, 0.99), weight_decay=0.0, fused=True
            )
        else:
            rank = join()
            self.optimizer = Optimizer(self.weights, rank, self.remainders, moments=moments)

    def step(self) -> float:
        """Make a step and return the seconds it took."""
        for name, weight in self.weights.items():
            weight.grad = self.gradients[name].clone()
        started = time.perf_counter()
        if self.optimizer is not None:
            self.optimizer.step(1e-6, torch.zeros((), device=weight.device))
        if self.bare is not None:
            torch.nn.utils.clip_grad_norm_(self.weights.values(), 1.0)
            self.bare.param_groups[0]["lr"] = 1e-6
            self.bare.step()
            self.bare.zero_grad()
        if weight.device.type != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter() - started

    def num_bytes(self) -> list[float]:
        """Return the bytes per weight of weights, remainders, moments and gradients."""
        assert self.optimizer is not None
        state = self.optimizer.state_tensors()
        moments = {n: t for n, t in state.items() if not n.endswith("/remainder")}
        count = sum(weight.numel() for weight in self.weights.values())
        parts: list[dict[str, Tensor]] = [dict(self.weights), self.remainders, moments]
        return [sum(t.nbytes for t in part.values()) / count for part in (*parts, self.gradients)]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=9)
    steps = parser.parse_args().steps
    console = Console(width=100)
    console.print(conditions("torch", "bitsandbytes"), highlight=False, soft_wrap=True)
    device = accelerators.device()
    kinds = {
        (str(dtype).removeprefix("torch."), moments): Kind(dtype, moments, device)
        for dtype, moments in KINDS
    }
    bare = Kind(torch.float32, None, device)
    taken = [[kind.step() for kind in (bare, *kinds.values())] for _ in range(steps + 1)][1:]
    table = Table(title="Bytes per trained weight, and the duration of a step")
    for column in ("master_dtype", "moments", "weight", "remainder", "moments", "gradient", "sum"):
        table.add_column(column, justify="left" if column.endswith("dtype") else "right")
    table.add_column("step / bare AdamW", justify="right")
    for index, ((dtype, moments), kind) in enumerate(kinds.items(), 1):
        parts = kind.num_bytes()
        ratio = median(row[index] / row[0] for row in taken)
        numbers = [f"{part:.2f}" for part in (*parts, sum(parts))]
        table.add_row(dtype, moments, *numbers, f"{ratio:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
