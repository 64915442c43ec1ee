"""Log-probabilities and entropies of sampled tokens.

Shapes: N sampled tokens of the batch; V vocabulary.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from agentrl.policies.models import ModelAdapter
from agentrl.training.learner.network.backbone import Backbone
from agentrl.types import Batch

_CHUNK = 1 << 26
"""Maximum number of logits (positions times vocabulary) in memory: 256 MB in float32."""


class Scores(NamedTuple):
    """Scores of a batch's sampled tokens, ordered by sample."""

    logprobs: Tensor
    """float32[N] log-probabilities, with gradient."""
    entropy: Tensor
    """float32[N], entropy in nats of the distribution that the token was drawn from."""
    most_probable: Tensor
    """int64[N], the most probable token in the sampled token's place."""


class LogprobModel(Backbone):
    """A policy that computes log-probabilities of sampled tokens.

    Args:
        policy: a Hugging Face model with an output head.
        model_adapter: adapter of the model's family. Tokens that it bans have probability 0,
            because engines never sample them.
    """

    banned: Tensor

    def __init__(self, policy: nn.Module, model_adapter: ModelAdapter) -> None:
        super().__init__(policy, model_adapter)
        head: Any = self.policy.get_output_embeddings()
        mask = torch.zeros(head.weight.shape[0], dtype=torch.bool)
        mask[list(model_adapter.banned_token_ids)] = True
        self.register_buffer("banned", mask, persistent=False)

    def forward(self, batch: Batch, temperature: float, entropy_gradient: bool = False) -> Scores:
        """Score the sampled tokens, at the temperature they were sampled with."""
        hidden = self.hidden(batch)
        if self.slice is None:
            return self._scores(
                hidden, batch.logit_positions, batch.targets, temperature, entropy_gradient
            )
        mine, own = self.slice.mine(batch.logit_positions, batch.token_ids.shape[1])
        scores = self._scores(hidden, own, batch.targets[mine], temperature, entropy_gradient)
        # Ids below 2^24 are exact in float32.
        columns = torch.stack([scores.logprobs, scores.entropy, scores.most_probable.float()])
        logprobs, entropy, most_probable = self.slice.joined(columns, mine)
        # Return copies, because FSDP does not support views as outputs of a forward pass.
        return Scores(logprobs.clone(), entropy.clone(), most_probable.round().long())

    def _scores(
        self,
        hidden: Tensor,
        logit_positions: Tensor,
        targets: Tensor,
        temperature: float,
        entropy_gradient: bool,
    ) -> Scores:
        # Sequences with a common prefix share its logits.
        positions, which = torch.unique(logit_positions, return_inverse=True)
        rows = hidden[positions]
        size = max(1, _CHUNK // len(self.banned))
        if len(positions) <= size:
            return self._score(rows, which, targets, temperature, entropy_gradient)
        parts, order = [], []
        for start in range(0, len(positions), size):
            tokens = ((which >= start) & (which < start + size)).nonzero().squeeze(-1)
            order.append(tokens)
            # Recompute a chunk's logits in the backward pass instead of keeping them.
            part: Scores = checkpoint(
                self._score,
                rows[start : start + size],
                which[tokens] - start,
                targets[tokens],
                temperature,
                entropy_gradient,
                use_reentrant=False,
            )
            parts.append(part)
        back = torch.cat(order).argsort()
        return Scores(*(torch.cat(column)[back] for column in zip(*parts, strict=True)))

    def _score(
        self,
        rows: Tensor,
        which: Tensor,
        targets: Tensor,
        temperature: float,
        entropy_gradient: bool,
    ) -> Scores:
        logits = self.model_adapter.logits(self.policy, rows)
        # Like engines, apply the temperature before the softmax over allowed tokens.
        if temperature != 1.0:
            logits = logits / temperature
        table = F.log_softmax(logits.masked_fill(self.banned, -torch.inf), dim=-1)
        chosen = table[which, targets]
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            # 0 * -inf would be nan.
            entropy = -(table.exp() * table.masked_fill(self.banned, 0)).sum(-1)[which]
        with torch.no_grad():
            most_probable = table.argmax(-1)[which]
        return Scores(chosen, entropy, most_probable)
