"""Forward passes: log-probabilities of sampled tokens, and state values.

Shapes: B rows; L padded tokens; N sampled tokens of the batch, S samples; V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from agentrl.training.learner.sequence_parallel import Slice
from agentrl.types import Batch

_CHUNK = 1 << 26
"""Logits (positions times vocabulary) held at once: 256 MB in float32."""


class Scores(NamedTuple):
    """Scores of the sampled tokens of a batch, sample by sample."""

    logprobs: Tensor
    """float32[N], carries the gradient."""
    entropy: Tensor
    """float32[N], of the distribution that the token was drawn from, in nats."""
    is_argmax: Tensor
    """bool[N], True where the token is the most probable one."""


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


class LogprobModel(Backbone):
    """A policy that computes log-probabilities of sampled tokens.

    Args:
        policy: a Hugging Face model with an output head.
        banned: token ids that engines never sample; their probability is 0 here, too.
    """

    banned: Tensor

    def __init__(self, policy: nn.Module, banned: Sequence[int]) -> None:
        super().__init__(policy)
        head: Any = self.policy.get_output_embeddings()
        mask = torch.zeros(head.weight.shape[0], dtype=torch.bool, device=head.weight.device)
        mask[list(banned)] = True
        self.register_buffer("banned", mask, persistent=False)

    def forward(self, batch: Batch, temperature: float, entropy_gradient: bool = False) -> Scores:
        """Scores of the sampled tokens, at the temperature they were sampled with.

        Args:
            batch: of any layout.
            temperature: above 0.
            entropy_gradient: whether the entropy carries a gradient.
        """
        hidden = self.hidden(batch)
        if self.slice is None:
            return self._scores(
                hidden, batch.logit_positions, batch.targets, temperature, entropy_gradient
            )
        mine, own = self.slice.mine(batch.logit_positions, batch.token_ids.shape[1])
        scores = self._scores(hidden, own, batch.targets[mine], temperature, entropy_gradient)
        columns = torch.stack([scores.logprobs, scores.entropy, scores.is_argmax.float()])
        logprobs, entropy, is_argmax = self.slice.joined(columns, mine)
        # Copies: FSDP does not support views as outputs of a forward pass.
        return Scores(logprobs.clone(), entropy.clone(), is_argmax > 0.5)

    def _scores(
        self,
        hidden: Tensor,
        logit_positions: Tensor,
        targets: Tensor,
        temperature: float,
        entropy_gradient: bool,
    ) -> Scores:
        # Siblings with the same prefix share the logits of its positions.
        positions, which = torch.unique(logit_positions, return_inverse=True)
        rows = hidden[positions]
        size = max(1, _CHUNK // len(self.banned))
        if len(positions) <= size:
            return self._score(rows, which, targets, temperature, entropy_gradient)
        parts, order = [], []
        for start in range(0, len(positions), size):
            tokens = ((which >= start) & (which < start + size)).nonzero().squeeze(-1)
            order.append(tokens)
            # The logits of a chunk are recomputed in the backward pass instead of being kept.
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
        logits = self.policy.get_output_embeddings()(rows).float()
        if temperature != 1.0:
            logits = logits / temperature
        table = F.log_softmax(logits.masked_fill(self.banned, -torch.inf), dim=-1)
        chosen = table[which, targets]
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy = -(table.exp() * table.masked_fill(self.banned, 0)).sum(-1)[which]
        with torch.no_grad():
            is_argmax = table.argmax(-1)[which] == targets
        return Scores(chosen, entropy, is_argmax)


class ValueModel(Backbone):
    """A critic: a model of its own with a scalar head, one value per state.

    Args:
        policy: a Hugging Face model; its output head is dropped.
    """

    def __init__(self, policy: nn.Module) -> None:
        super().__init__(policy)
        size = self.policy.config.get_text_config().hidden_size
        self.head = nn.Linear(size, 1, device=self.policy.device, dtype=self.policy.dtype)
        # Zeros: the outputs of a random head would be noise in every advantage.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.policy.lm_head = nn.Identity()

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """float32[N] values before the sampled tokens, and float32[S] after each last token."""
        values = self.head(self.hidden(batch)).squeeze(-1).float()
        if self.slice is None:
            return values[batch.logit_positions], values[batch.last_positions]
        positions = torch.cat([batch.logit_positions, batch.last_positions])
        mine, own = self.slice.mine(positions, batch.token_ids.shape[1])
        found = self.slice.joined(values[own], mine)
        # Copies: FSDP does not support views as outputs of a forward pass.
        return found[: len(batch.logit_positions)].clone(), found[
            len(batch.logit_positions) :
        ].clone()


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
