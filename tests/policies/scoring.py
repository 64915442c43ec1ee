"""Log-probabilities as the learner computes them."""

from collections.abc import Sequence

import torch

from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.types import Prompt


def forward_logprobs(
    model: torch.nn.Module,
    encoder: ChatEncoder,
    prompt: Prompt,
    reply: Sequence[int],
    temperature: float = 1.0,
) -> list[float]:
    """Log-probability of each reply token, with banned tokens masked, in one forward pass."""
    ids = torch.tensor([[*prompt.token_ids, *reply]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    with torch.inference_mode():
        logits = (
            model(**encoder.model_adapter.forward_inputs(ids, mask, prompt.images))
            .logits[0]
            .float()
        )
    logits = logits.clone()
    logits[:, list(encoder.model_adapter.banned_token_ids)] = -torch.inf
    table = torch.log_softmax(logits / temperature, dim=-1)
    start = len(prompt.token_ids)
    return [float(table[start + i - 1, token]) for i, token in enumerate(reply)]
