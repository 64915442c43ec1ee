"""A model without its output head: attention, images, and slices of sequence parallelism.

Shapes: B rows; L padded tokens.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from agentrl.policies.models import ModelAdapter
from agentrl.training.learner.attention import attention_masks
from agentrl.training.learner.parallel.sequence_parallel import Slice
from agentrl.types import Batch


class Backbone(nn.Module):
    """A Hugging Face model up to its last hidden states; the unit of sharding.

    Raises:
        ConfigError: the decoder has layers with unsupported attention.
    """

    # Any, because Hugging Face models have no common type beyond Module.
    policy: Any
    headless = False
    """Whether the model's output head is dropped, and may be missing from its files."""

    def __init__(self, policy: nn.Module, model_adapter: ModelAdapter) -> None:
        super().__init__()
        self.policy = policy
        self.model_adapter = model_adapter
        attention_masks.check_layers(self.policy.config.get_text_config())
        self.slice: Slice | None = None
        """This rank's columns of every row if the model is prepared for sequence parallelism; None
        computes whole rows."""
        self.uses_blocks = False
        """Whether the attention takes block masks; see `flex_attention.prepare`."""

    @property
    def supports_masks(self) -> bool:
        """Whether the decoder's attention supports masks; only flash-attn's kernels do not."""
        settings: Any = self.policy.config.get_text_config()
        return self.uses_blocks or "flash" not in str(settings._attn_implementation)

    def hidden(self, batch: Batch) -> Tensor:
        """Return the last hidden states, [B * l, hidden], one row per flat position.

        l is L, or under sequence parallelism the width of this rank's slice; see `Slice.mine`.
        """
        own = self.slice.of if self.slice is not None else _whole
        seen = self._image_arguments(batch)
        # Run this before the decoder, because all ranks must gather in the same order.
        untouched = None if seen else self._untouched_vision(batch.token_ids.device)
        states: Tensor = self.policy.base_model(
            input_ids=own(batch.token_ids),
            position_ids=own(batch.positions),
            use_cache=False,
            **self._attention(batch),
            **seen,
        )[0]
        states = states.flatten(0, 1)
        return states if untouched is None else states + untouched

    def _attention(self, batch: Batch) -> dict[str, Any]:
        """Return the forward arguments that define which tokens attend to which."""
        if batch.has_branches and not self.supports_masks:
            return attention_masks.sequence_bounds(batch.subtree_ends)
        # If each row holds one sequence, transformers' own causal masks are right.
        mask = None
        settings: Any = self.policy.config.get_text_config()
        within_images = self.model_adapter.attends_within_images and bool(batch.pixels)
        is_limited = self.uses_blocks and not attention_masks.is_causal(settings)
        if batch.has_branches or within_images or is_limited:
            ends = batch.subtree_ends
            if self.slice is not None:
                # Mark padding with an end beyond all columns, which no sample's token has.
                length = self.slice.count * self.slice.width(ends.shape[1])
                ends = self.slice.padded(ends, fill=length)
            images = self._is_image(batch.token_ids) if within_images else None
            mask = attention_masks.build(
                ends, batch.positions, images, settings, blocks=self.uses_blocks
            )
        if self.slice is None:
            return {"attention_mask": mask}
        return {"attention_mask": mask, "ulysses": self.slice}

    def _is_image(self, token_ids: Tensor) -> Tensor:
        """Return a bool tensor of the same shape, True on image tokens."""
        return token_ids.eq(int(self.model_adapter.image_token_id or 0))

    def _image_arguments(self, batch: Batch) -> dict[str, Any]:
        """Return the forward arguments for images; empty without images.

        An image that occurs several times is encoded once; images outside this rank's slice are
        not encoded at all.
        """
        if not batch.pixels:
            return {}
        pixels = dict(batch.pixels)
        sizes = pixels.pop("image_tokens").tolist()
        index = pixels.pop("image_index", None)
        order = list(range(len(sizes))) if index is None else index.tolist()
        shown = None
        if self.slice is not None:
            shown = self._tokens_in_slice(batch, [sizes[number] for number in order])
            order = [place for place, own in zip(order, shown, strict=True) if own.any()]
            shown = [own for own in shown if own.any()]
        if not order:
            return {}
        looked = sorted({*order})
        if len(looked) < len(sizes):
            pixels = self.model_adapter.select_images(pixels, looked)
        pixels = self.model_adapter.expand_pixels(pixels)
        # Encode images here, not inside the model, so that the decoder's attention arguments do
        # not reach the vision tower.
        seen = self.model_adapter.encode_images(self.policy.base_model, pixels)
        places = {place: number for number, place in enumerate(looked)}

        def laid_out(features: Sequence[Tensor]) -> tuple[Tensor, ...]:
            found = [features[places[place]] for place in order]
            if shown is None:
                return tuple(found)
            return tuple(part[own] for part, own in zip(found, shown, strict=True))

        own = laid_out(seen.pooler_output)
        seen.pooler_output = torch.cat(own) if self.model_adapter.joins_images else own
        # Some models add features of earlier vision layers to the decoder's hidden states.
        if layers := getattr(seen, "deepstack_features", None):
            seen.deepstack_features = [laid_out(layer) for layer in layers]
        return {"mm_encoder_outputs": {"image": seen}}

    def _tokens_in_slice(self, batch: Batch, sizes: Sequence[int]) -> list[Tensor]:
        """Return bool[tokens] on the CPU for each image in the rows: True for tokens in the slice.

        Args:
            batch: batch with images.
            sizes: number of tokens of each image in the rows.
        """
        assert self.slice is not None
        places = self._is_image(batch.token_ids).flatten().nonzero()
        own, _ = self.slice.mine(places.squeeze(-1), batch.token_ids.shape[1])
        return list(torch.split(own.cpu(), list(sizes)))

    def _untouched_vision(self, device: torch.device) -> Tensor:
        """Return zero, connected to the vision tower so that it gets a gradient.

        Ranks with images wait for this rank to reduce the tower's gradients. If the tower is
        gathered separately, they also wait for it to gather, so this encodes a blank image.
        """
        parts = [p.sum() for p in self.vision() if p.requires_grad and not isinstance(p, DTensor)]
        if any(isinstance(tower, FSDPModule) for tower in self.towers()):
            blank = self.model_adapter.scale(np.zeros((32, 32, 3), np.uint8), None, 1024)
            pixels = self.model_adapter.compact_pixels([blank])
            pixels = {name: value.to(device) for name, value in pixels.items()}
            pixels = self.model_adapter.expand_pixels(pixels)
            seen = self.model_adapter.encode_images(self.policy.base_model, pixels)
            used = (*seen.pooler_output, *(getattr(seen, "deepstack_features", None) or ()))
            parts += [features.sum() for features in used]
        return sum(parts, torch.zeros((), device=device)) * 0.0

    def layers(self) -> Iterator[nn.Module]:
        """Return the decoder's blocks, the units of layer-wise sharding."""
        return self.model_adapter.blocks(self.policy)

    def parts(self) -> Iterator[nn.Module]:
        """Return the modules other than layers that layer-wise sharding gathers separately.

        Excludes the output head, which is used chunk by chunk in both passes, and an embedding
        tied to it.
        """
        yield from self.towers()
        embedding, head = self.policy.get_input_embeddings(), self.policy.get_output_embeddings()
        if getattr(head, "weight", None) is not embedding.weight:
            yield embedding

    def towers(self) -> Iterator[nn.Module]:
        """Return the outermost vision modules that have parameters."""
        is_vision = self.model_adapter.is_vision
        for name, module in self.policy.named_modules():
            is_outermost = is_vision(name) and not is_vision(name.rpartition(".")[0])
            if is_outermost and any(True for _ in module.parameters()):
                yield module

    def vision(self) -> Iterator[nn.Parameter]:
        """Return the vision tower's parameters; empty for a text-only model."""
        is_vision = self.model_adapter.is_vision
        yield from (p for name, p in self.policy.named_parameters() if is_vision(name))

    def attention_break_even(self) -> float:
        """Return the row length, in tokens, at which attention costs as much as other layers."""
        layers = list(self.layers())
        size = sum(p.numel() for layer in layers for p in layer.parameters())
        hidden: int = self.policy.config.get_text_config().hidden_size
        return size / max(1, 2 * hidden * len(layers))

    def image_token_cost(self) -> float:
        """Return the cost of encoding an image token, relative to a token in the decoder."""
        decoder = sum(p.numel() for layer in self.layers() for p in layer.parameters())
        vision = list(self.vision())
        size = sum(p.numel() for p in vision) * self.model_adapter.patches_per_token
        # A frozen tower runs only forward; a backward pass would take twice as long as the forward.
        passes = 1.0 if any(p.requires_grad for p in vision) else 1 / 3
        return size * passes / max(1, decoder)


def _whole(rows: Tensor) -> Tensor:
    return rows
