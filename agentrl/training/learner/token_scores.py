"""What models say of recorded tokens before an update: log-probabilities and values, on all ranks.

Shapes: S samples; N sampled tokens of all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from agentrl.policies.models import ModelAdapter
from agentrl.training.batching.batches import Packing
from agentrl.training.learner.micro_batches import share, weigh
from agentrl.training.learner.parallel import Rank
from agentrl.types import Batch, Sample


@dataclass(slots=True, kw_only=True, frozen=True)
class Judged:
    """Of one sample with n sampled tokens; empty where nobody was asked."""

    old_logprobs: tuple[float, ...] = ()
    """[n], under the learner as it is."""
    reference_logprobs: tuple[float, ...] = ()
    """[n], under the reference."""
    values: tuple[float, ...] = ()
    """[n], of the state before each token, by the critic."""
    last_value: float = 0.0
    """Of the state after the sample's last token, by the critic."""
    implicit_logprobs: tuple[float, ...] = ()
    """[n], under the implicit reward model."""


def per_token(
    look: Callable[[Batch], tuple[Tensor, Tensor | None]],
    samples: Sequence[Sample],
    packing: Packing,
    model_adapter: ModelAdapter,
    rank: Rank,
) -> tuple[list[tuple[float, ...]], list[float]]:
    """One number for every sampled token and, where it is told, one for every sample.

    A collective call; every rank computes its share, and is told all.

    Args:
        look: [N] numbers of a batch's tokens, and [S] of its samples, without gradient.
        samples: the same on every rank, each with sampled tokens.
        packing: how they are laid out.
        model_adapter: the model family's.
        rank: this rank.

    Returns:
        [S][n], and [S].
    """
    counts = [len(sample.places) for sample in samples]
    offsets = torch.tensor([0, *counts]).cumsum(0).tolist()
    tokens = torch.zeros(offsets[-1], device=rank.device)
    ends = torch.zeros(len(samples), device=rank.device)
    for part in share(weigh(samples, "token_sum"), packing, model_adapter, rank):
        found, last = look(part.batch)
        chosen = [index for row in part.rows for tree in row for index, _ in tree.tokens]
        places = torch.cat([torch.arange(offsets[i], offsets[i + 1]) for i in chosen])
        tokens[places.to(rank.device)] += found * part.told
        if last is not None:
            ends[torch.tensor(chosen, device=rank.device)] += last * part.told
    values = rank.sum(tokens).tolist()
    return (
        [tuple(values[begin:end]) for begin, end in pairwise(offsets)],
        rank.sum(ends).tolist(),
    )
