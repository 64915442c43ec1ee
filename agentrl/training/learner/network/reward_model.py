"""A reward model: scores a conversation with one number at its last token.

Shapes: S sequences.
"""

import torch
from torch import Tensor, nn

from agentrl.policies.models import ModelAdapter
from agentrl.training.learner.network.backbone import Backbone
from agentrl.types import Batch


class RewardModel(Backbone):
    """A language model with a scalar head, like transformers' sequence classifiers."""

    headless = True

    def __init__(self, policy: nn.Module, model_adapter: ModelAdapter) -> None:
        super().__init__(policy, model_adapter)
        size = self.policy.config.get_text_config().hidden_size
        self.score = nn.Linear(size, 1, bias=False, dtype=self.policy.dtype)
        # Start at zero; if the model's folder holds a reward model, its head is read later.
        nn.init.zeros_(self.score.weight)
        self.policy.lm_head = nn.Identity()

    def forward(self, batch: Batch) -> Tensor:
        """Return the rewards, float32[S], in the order of the sequences."""
        rewards = self.score(self.hidden(batch)).squeeze(-1).float()
        if self.slice is None:
            return torch.as_tensor(rewards[batch.last_positions])
        mine, own = self.slice.mine(batch.last_positions, batch.token_ids.shape[1])
        # Return a copy, because FSDP does not support views as outputs of a forward pass.
        return self.slice.joined(rewards[own], mine).clone()
