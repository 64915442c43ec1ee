"""A model without its output head: attention masks, images, and slices of sequence parallelism.

Shapes: B rows; L padded tokens.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agentrl.training.learner.sequence_parallel import Slice
from agentrl.types import Batch


class Backbone(nn.Module):
    """A Hugging Face model up to its last hidden states; the unit of sharding.

    Args:
        policy: a Hugging Face model with an output head.
    """

    # Any: Hugging Face models share no type beyond Module.
    policy: Any

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy
        self.slice: Slice | None = None
        """This rank's columns of every row under sequence parallelism, for which the model has
        been prepared; None computes whole rows."""

    @property
    def supports_masks(self) -> bool:
        """Whether the decoder's attention supports masks: flash-attn's kernels do not."""
        settings: Any = self.policy.config.get_text_config()
        return "flash" not in str(settings._attn_implementation)

    def hidden(self, batch: Batch) -> Tensor:
        """[B * l, hidden] the last hidden states, one row per flat position.

        l is L, or under sequence parallelism the width of this rank's slice; see `Slice.mine`.
        """
        own = self.slice.of if self.slice is not None else _whole
        seen = self._image_arguments(batch)
        states: Tensor = self.policy.model(
            input_ids=own(batch.token_ids),
            position_ids=own(batch.positions),
            use_cache=False,
            **self._attention(batch),
            **seen,
        )[0]
        states = states.flatten(0, 1)
        return states if seen else states + self._untouched_vision()

    def _attention(self, batch: Batch) -> dict[str, Any]:
        """Arguments of the forward pass that define which tokens attend to which."""
        if batch.has_branches and not self.supports_masks:
            return _sequence_bounds(batch.subtree_ends)
        if self.slice is None:
            return {
                "attention_mask": _attention_mask(batch.subtree_ends)
                if batch.has_branches
                else None
            }
        # Padding columns get an end beyond all columns, which no token of a sample has.
        length = self.slice.count * self.slice.width(batch.subtree_ends.shape[1])
        ends = self.slice.padded(batch.subtree_ends, fill=length)
        return {
            "attention_mask": _attention_mask(ends) if batch.has_branches else None,
            "ulysses": self.slice,
        }

    def _image_arguments(self, batch: Batch) -> dict[str, Any]:
        """Arguments of the forward pass for images; empty without images.

        An image that occurs several times is encoded once; one outside this rank's slice is not
        encoded at all.
        """
        if not batch.pixels:
            return {}
        grid = batch.pixels["image_grid_thw"]
        index = batch.pixels.get("image_index")
        order = list(range(len(grid))) if index is None else index.tolist()
        shown = self._tokens_in_slice(batch, grid[order]) if self.slice is not None else None
        if shown is not None:
            order = [place for place, own in zip(order, shown, strict=True) if own.any()]
            shown = [own for own in shown if own.any()]
        if not order:
            return {}
        pixels = batch.pixels["pixel_values"]
        looked = sorted({*order})
        if len(looked) < len(grid):
            rows = torch.split(pixels, grid.prod(-1).tolist())
            pixels, grid = torch.cat([rows[place] for place in looked]), grid[looked]
        # Encoded here and not inside the model, so that the decoder's attention arguments do not
        # reach the vision tower.
        seen = self.policy.model.get_image_features(pixels, grid, return_dict=True)
        places = {place: number for number, place in enumerate(looked)}

        def laid_out(features: Sequence[Tensor]) -> tuple[Tensor, ...]:
            found = [features[places[place]] for place in order]
            if shown is None:
                return tuple(found)
            return tuple(part[own] for part, own in zip(found, shown, strict=True))

        seen.pooler_output = laid_out(seen.pooler_output)
        # Qwen3-VL adds features of earlier vision layers.
        if layers := getattr(seen, "deepstack_features", None):
            seen.deepstack_features = [laid_out(layer) for layer in layers]
        return {"mm_encoder_outputs": {"image": seen}}

    def _tokens_in_slice(self, batch: Batch, grid: Tensor) -> list[Tensor]:
        """For each image in the rows, bool[its tokens] on the CPU: True for those in the slice.

        Args:
            batch: with images.
            grid: int64[images in the rows, 3], patches of each.
        """
        assert self.slice is not None
        places = (batch.token_ids == self.policy.config.image_token_id).flatten().nonzero()
        own, _ = self.slice.mine(places.squeeze(-1), batch.token_ids.shape[1])
        patches = grid.prod(-1)
        sizes = patches // (patches.sum() // len(places))
        return list(torch.split(own.cpu(), sizes.tolist()))

    def _untouched_vision(self) -> Tensor:
        """Zero; gives the vision tower a gradient, as ranks with images wait to reduce theirs."""
        trained = [p for p in self.vision() if p.requires_grad]
        return sum((p.sum() for p in trained), torch.zeros((), device=self.policy.device)) * 0.0

    def layers(self) -> Iterator[nn.Module]:
        """The decoder's blocks, the units of layer-wise sharding."""
        stacks = [
            module
            for name, module in self.policy.named_modules()
            if isinstance(module, nn.ModuleList) and not is_vision(name)
        ]
        yield from max(stacks, key=len, default=nn.ModuleList())

    def vision(self) -> Iterator[nn.Parameter]:
        """The parameters of the vision tower; empty for a text-only model."""
        yield from (p for name, p in self.policy.named_parameters() if is_vision(name))

    def attention_break_even(self) -> float:
        """Row length, in tokens, at which attention costs as much as the rest of the decoder."""
        layers = list(self.layers())
        size = sum(p.numel() for layer in layers for p in layer.parameters())
        hidden: int = self.policy.config.get_text_config().hidden_size
        return size / max(1, 2 * hidden * len(layers))


def _whole(rows: Tensor) -> Tensor:
    return rows


def _attention_mask(ends: Tensor) -> Tensor:
    """bool[B, 1, L, L] attention mask: True where query (dim 2) attends to key (dim 3)."""
    columns = torch.arange(ends.shape[1], device=ends.device)
    return (columns[None, :] <= columns[:, None]) & (columns[:, None] < ends[:, None, None, :])


def _sequence_bounds(ends: Tensor) -> dict[str, Any]:
    """The bounds of each sample in a row, as transformers passes them to flash-attn.

    Args:
        ends: int64[1, L], of samples one after the other, without padding.
    """
    assert len(ends) == 1, f"variable-length attention takes a single row, not {len(ends)}"

    bounds = F.pad(torch.unique_consecutive(ends[0]), (1, 0)).int()
    longest = int(bounds.diff().max())
    return {
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def is_vision(name: str) -> bool:
    """True for the dotted name of a module or parameter of the vision tower."""
    return any(part in ("visual", "vision_tower", "vision_model") for part in name.split("."))
