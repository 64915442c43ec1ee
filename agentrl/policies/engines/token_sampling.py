"""Sample tokens from logits so that each reply depends only on its own seed."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from agentrl.errors import EngineError
from agentrl.policies.engines.engine import Sampling


def processed_logprobs(logits: Tensor, temperature: Tensor, banned: Sequence[int]) -> Tensor:
    """The log-probabilities that are sampled from; the learner must use the same ones.

    Args:
        logits: float[..., V].
        temperature: float[...], above 0.
        banned: ids that cannot be sampled.

    Returns:
        float32[..., V]; -inf where banned.
    """
    logits = logits.float()
    if banned:
        logits[..., list(banned)] = -torch.inf
    return torch.log_softmax(logits / temperature.unsqueeze(-1), dim=-1)


class TokenSampler:
    """Samples the tokens of a batch, with one random stream per request.

    Args:
        requests: one per row.
        device: of the logits.
    """

    def __init__(self, requests: Sequence[Sampling], device: torch.device) -> None:
        self._streams = [np.random.default_rng(request.seed) for request in requests]
        self._greedy = torch.tensor([r.temperature <= 0 for r in requests], device=device)
        self._temperature = torch.tensor(
            [r.temperature if r.temperature > 0 else 1.0 for r in requests], device=device
        )

    def draw(self, logits: Tensor, banned: Sequence[int], rows: Tensor) -> tuple[Tensor, Tensor]:
        """Sample one token for each unfinished row.

        Args:
            logits: float[B, V].
            banned: ids that cannot be sampled.
            rows: int64[B], the request of each row of the logits.

        Returns:
            int64[B] tokens, and float32[B] their log-probabilities.

        Raises:
            EngineError: the logits are not finite.
        """
        logprobs = processed_logprobs(logits, self._temperature[rows], banned)
        uniform = [self._streams[row].random(dtype=np.float32) for row in rows.tolist()]
        mass = logprobs.double().exp().cumsum(-1)
        if not torch.isfinite(mass[:, -1]).all():
            raise EngineError(
                "the model's logits are not finite: its weights have diverged, for example because "
                "the learning rate is far too high"
            )
        point = torch.tensor(uniform, dtype=torch.float64, device=logits.device) * mass[:, -1]
        sampled = torch.searchsorted(mass, point.unsqueeze(-1), right=True).squeeze(-1)
        tokens = torch.where(self._greedy[rows], logprobs.argmax(-1), sampled)
        return tokens, logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
