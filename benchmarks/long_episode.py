"""Measure memory per rank and time of one long episode with sequence parallelism.

    python benchmarks/long_episode.py [--tokens 8000] [--ranks 1 2]

Runs the tiny model on random tokens in float32, on the CPU with one thread per rank. Memory is the
bytes of the tensors that the forward pass saves for the backward pass, including weights. Seconds
are the best of three forward and backward passes over gloo.
"""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from conditions import conditions
from torch.autograd.graph import saved_tensors_hooks

from agentrl.config import Config
from agentrl.policies import tiny_model
from agentrl.policies.models import adapter_for
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.micro_batches import single_batch
from agentrl.types import TrainingSample


def episode(tokens: int) -> TrainingSample:
    """Draw random tokens, of which the last eight are marked as sampled."""
    rng = np.random.default_rng(0)
    return TrainingSample(
        token_ids=tuple(int(token) for token in rng.integers(0, 200, tokens)),
        sampled_positions=tuple(range(tokens - 8, tokens)),
        logprobs=(-5.0,) * 8,
        advantages=(1.0,) * 8,
        old_logprobs=(-5.0,) * 8,
        versions=(0,) * 8,
        turns=(0,) * 8,
        images=(),
        episode=0,
        reference_logprobs=None,
        values=None,
        returns=None,
        bce_gradient=None,
    )


def measure(folder: Path, tokens: int, ranks: int, rank: int, out: Path) -> None:
    """Run one rank; rank 0 writes bytes and seconds to a file."""
    torch.set_num_threads(1)
    config = Config()
    config.train.ranks = config.train.sequence_parallel = ranks
    learner = Learner(LearnerSettings.of(config), folder, rank, ranks, f"file://{out}-meet")
    batch = single_batch([episode(tokens)], adapter_for(folder))
    kept: list[int] = []
    scorer = learner._policy.module

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.nbytes)
        return tensor

    seconds = []
    for _ in range(3):
        kept.clear()
        started = time.perf_counter()
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = scorer(batch, 1.0).logprobs.sum()
        loss.backward()
        seconds.append(time.perf_counter() - started)
    learner.close()
    if rank == 0:
        out.write_text(f"{sum(kept)} {min(seconds)}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    print(conditions("torch", "transformers"))
    print(f"\n| ranks for {options.tokens:,} tokens | saved per rank, MB | s |\n|---|---|---|")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        folder = tiny_model.build(Path(place) / "tiny", 0, max_position=options.tokens)
        for ranks in options.ranks:
            out = Path(place) / str(ranks)
            processes = [
                context.Process(
                    target=measure, args=(folder, options.tokens, ranks, rank, out), daemon=True
                )
                for rank in range(ranks)
            ]
            for process in processes:
                process.start()
            for process in processes:
                process.join(600)
                process.kill()
            assert all(process.exitcode == 0 for process in processes)
            kept, seconds = out.read_text().split()
            print(f"| {ranks} | {int(kept) / 1e6:,.0f} | {float(seconds):.2f} |", flush=True)


if __name__ == "__main__":
    main()
