"""A model in plain transformers on the CPU, with which engines are compared."""

from collections.abc import Sequence
from pathlib import Path

import torch

from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.hf_decoding import processed_logprobs
from agentrl.policies.models import load_model
from agentrl.types import Prompt, TokenPredictions


class ReferenceModel:
    """Predicts the tokens of replies: one sequence at a time, without padding or cache.

    transformers computes the positions of image tokens itself.

    Args:
        folder: the model's folder.
        encoder: the model's encoder.
        dtype: `float32` or `bfloat16`.

    Raises:
        ConfigError: the model cannot be loaded.
    """

    def __init__(self, folder: Path, encoder: ChatEncoder, dtype: str = "float32") -> None:
        self._adapter = encoder.model_adapter
        # `flex` loads SDPA even if there is a GPU, whose kernels do not run on the CPU.
        model = load_model(folder, model_adapter=self._adapter, dtype=dtype, attention="flex")
        self._model = model.eval().requires_grad_(False)

    @torch.inference_mode()
    def predict(
        self, prompt: Prompt, reply: Sequence[int], temperature: float = 1.0
    ) -> TokenPredictions:
        """Predict the tokens of a reply in one forward pass.

        Args:
            prompt: the prompt.
            reply: ids of the reply's tokens, at least one.
            temperature: sampling temperature.
        """
        ids = torch.tensor([[*prompt.token_ids, *reply]])
        mask = torch.ones_like(ids, dtype=torch.bool)
        inputs = self._adapter.forward_inputs(ids, mask, prompt.images)
        # A token's logits are computed at the position before it.
        logits = self._model(**inputs, logits_to_keep=len(reply) + 1).logits[0, :-1]
        table = processed_logprobs(
            logits, torch.full((len(reply),), temperature), self._adapter.banned_token_ids
        )
        chosen = table.gather(-1, torch.tensor(reply).unsqueeze(-1)).squeeze(-1)
        return TokenPredictions(
            logprobs=tuple(chosen.tolist()), most_probable=tuple(table.argmax(-1).tolist())
        )
