"""Log-probabilities of sampled tokens under the model that is trained, and nothing more.

Shapes: B samples; L padded tokens; N sampled tokens of the batch; V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MethodType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from agentrl.types import Batch

_CHUNK = 1 << 26
"""Logits (rows times vocabulary) that are held at once: 256 MB in float32."""


class Scores(NamedTuple):
    """About the sampled tokens of a batch, row by row."""

    logprobs: Tensor
    """float32[N], carries the gradient."""
    entropy: Tensor
    """float32[N], of the whole distribution at that place, in nats; without gradient."""
    hits: Tensor
    """bool[N], True where the token is the most probable one."""


class TokenScorer(nn.Module):
    """A policy as the learner needs it; the unit that is sharded.

    Args:
        policy: a Hugging Face model with an output head.
        banned: ids that engines never sample; their probability is 0 here as well.
    """

    banned: Tensor
    policy: Any

    def __init__(self, policy: nn.Module, banned: Sequence[int]) -> None:
        super().__init__()
        # Any: what Hugging Face models offer beside a Module has no common type.
        self.policy = policy
        head: Any = self.policy.get_output_embeddings()
        mask = torch.zeros(head.weight.shape[0], dtype=torch.bool, device=head.weight.device)
        mask[list(banned)] = True
        self.register_buffer("banned", mask, persistent=False)
        _cut_patches_by_matmul(policy)

    def forward(self, batch: Batch, temperature: float) -> Scores:
        """Scores of the tokens in the loss mask, under the temperature they were sampled with.

        Args:
            batch: its first tokens are never sampled ones.
            temperature: above 0.
        """
        hidden = self.policy.model(
            input_ids=batch.token_ids,
            attention_mask=batch.attention_mask,
            use_cache=False,
            **self._see(batch.pixels),
        )[0]
        sampled = batch.loss_mask[:, 1:]
        rows = hidden[:, :-1][sampled]
        targets = batch.token_ids[:, 1:][sampled]
        if not batch.pixels:
            rows = rows + self._untouched_vision()
        size = max(1, _CHUNK // len(self.banned))
        if len(rows) <= size:
            return self._score(rows, targets, temperature)
        # The logits of a chunk are made again in the backward pass instead of being kept.
        parts = [
            checkpoint(self._score, *part, temperature, use_reentrant=False)
            for part in zip(torch.split(rows, size), torch.split(targets, size), strict=True)
        ]
        return Scores(*(torch.cat(column) for column in zip(*parts, strict=True)))

    def _see(self, pixels: Mapping[str, Tensor]) -> dict[str, Any]:
        """Arguments of the forward pass; a picture that several rows show is looked at once."""
        if "image_index" not in pixels:
            return dict(pixels)
        rest = dict(pixels)
        index, grid = rest.pop("image_index"), rest.pop("image_grid_thw")
        seen = self.policy.model.get_image_features(
            rest.pop("pixel_values"), grid, return_dict=True
        )
        order = index.tolist()
        seen.pooler_output = tuple(seen.pooler_output[i] for i in order)
        # Qwen3-VL adds features of earlier layers of the tower.
        if layers := getattr(seen, "deepstack_features", None):
            seen.deepstack_features = [tuple(layer[i] for i in order) for layer in layers]
        return rest | {"image_grid_thw": grid[index], "mm_encoder_outputs": {"image": seen}}

    def _untouched_vision(self) -> Tensor:
        """Zero; gives the vision tower a gradient, as ranks that saw pictures wait for its sum."""
        trained = [p for p in self.vision() if p.requires_grad]
        return sum((p.sum() for p in trained), torch.zeros((), device=self.banned.device)) * 0.0

    def _score(self, rows: Tensor, targets: Tensor, temperature: float) -> Scores:
        logits = self.policy.get_output_embeddings()(rows).float()
        if temperature != 1.0:
            logits = logits / temperature
        table = F.log_softmax(logits.masked_fill(self.banned, -torch.inf), dim=-1)
        chosen = -F.nll_loss(table, targets, reduction="none")
        with torch.no_grad():
            entropy = -(table.exp() * table.masked_fill(self.banned, 0)).sum(-1)
            hits = table.argmax(-1) == targets
        return Scores(chosen, entropy, hits)

    def layers(self) -> Iterator[nn.Module]:
        """The decoder's blocks, which are sharded one by one."""
        stacks = [
            module
            for name, module in self.policy.named_modules()
            if isinstance(module, nn.ModuleList) and not is_vision(name)
        ]
        yield from max(stacks, key=len, default=nn.ModuleList())

    def vision(self) -> Iterator[nn.Parameter]:
        """The parameters of the vision tower; none for a model that reads text alone."""
        yield from (p for name, p in self.policy.named_parameters() if is_vision(name))


def is_vision(name: str) -> bool:
    """True for the dotted name of a module or parameter of the vision tower."""
    return any(part in ("visual", "vision_tower", "vision_model") for part in name.split("."))


def _cut_patches_by_matmul(policy: nn.Module) -> None:
    """A convolution whose kernel is its whole input is a matrix product, and faster as one."""
    for module in policy.modules():
        conv = getattr(module, "proj", None)
        if isinstance(conv, nn.Conv3d) and conv.kernel_size == conv.stride:
            module.forward = MethodType(_patches_by_matmul, module)


def _patches_by_matmul(module: Any, patches: Tensor) -> Tensor:
    conv = module.proj
    weight = conv.weight.flatten(1)
    return F.linear(patches.reshape(-1, weight.shape[1]).to(weight.dtype), weight, conv.bias)
