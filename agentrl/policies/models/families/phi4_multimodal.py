"""Adapter for Phi-4-multimodal in transformers' format, which encodes tiles and an overview.

The decoder accepts only pixels; the decoders of other families also accept encoded images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from agentrl.policies.models.processor_adapter import ProcessorAdapter
from agentrl.types import Image

if TYPE_CHECKING:
    from torch import Tensor, nn


class Phi4Multimodal(ProcessorAdapter):
    """Adapter for a Phi-4-multimodal model, whose audio encoder is neither used nor trained."""

    model_types: ClassVar[tuple[str, ...]] = ("phi4_multimodal",)
    vision_modules: ClassVar[tuple[str, ...]] = ("image_embed",)
    joins_images = True
    # vLLM supported this model before version 0.12.
    runs_in_vllm = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.banned_token_ids = (*self.banned_token_ids, int(self._processor.audio_token_id))

    def _expanded(self, image: Image) -> str:
        return self.image_text * int(self._process([image])["num_img_tokens"][0])

    def pixels(self, images: Sequence[Image]) -> dict[str, Tensor]:
        """Return the processor's tensors, including num_img_tokens int64[images]."""
        return dict(self._process(images)) if images else {}

    def select_images(
        self, pixels: Mapping[str, Tensor], numbers: Sequence[int]
    ) -> dict[str, Tensor]:
        """Select the rows of some of the images; all tensors have one row per image."""
        return {name: value[list(numbers)] for name, value in pixels.items()}

    def encode_images(self, model: Any, pixels: Mapping[str, Tensor]) -> Any:
        """Return the features of images, which the model's own code inserts at their tokens."""
        import torch

        given = dict(pixels)
        counts = given.pop("num_img_tokens").tolist()
        embed = model.embed_tokens_extend.image_embed
        blank = embed.img_projection_down.bias.new_zeros(1, sum(counts), model.config.hidden_size)
        ids = torch.full(blank.shape[:2], self.image_token_id, device=blank.device)
        return SimpleNamespace(pooler_output=embed(ids, blank, **given)[0].split(counts))

    def forward_inputs(
        self, token_ids: Tensor, attention_mask: Tensor, images: Sequence[Image]
    ) -> dict[str, Tensor]:
        """Return ids, mask and the processor's tensors."""
        inputs = super().forward_inputs(token_ids, attention_mask, images)
        inputs.pop("num_img_tokens", None)
        return inputs

    def prepare(self, model: Any) -> None:
        """Make the decoder accept encoded images, as the decoders of other families do."""
        model.base_model.embed_tokens_extend.audio_embed.requires_grad_(False)
        model.base_model.register_forward_pre_hook(self._place_images, with_kwargs=True)

    def _place_images(
        self, decoder: nn.Module, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        encoded = kwargs.pop("mm_encoder_outputs", None)
        if encoded is not None:
            ids = kwargs.pop("input_ids")
            embedded = decoder.get_input_embeddings()(ids)  # type: ignore[operator]
            places = (ids == self.image_token_id).unsqueeze(-1)
            features = encoded["image"].pooler_output.to(embedded.dtype)
            kwargs["inputs_embeds"] = embedded.masked_scatter(places, features)
        return args, kwargs
