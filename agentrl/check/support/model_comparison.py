"""Compare a model's log-probabilities under an adapter with plain transformers.

transformers is the reference: its processor makes the tensors, and each sequence gets its own
forward pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.training.batching.collate import build_batch, sequence_order
from agentrl.training.batching.packing import Packing, pack_micro_batches
from agentrl.training.learner.attention import flex_attention
from agentrl.training.learner.attention.attention_masks import BLOCK
from agentrl.training.learner.network.logprob_model import LogprobModel
from agentrl.types import IMAGE, Message, Prompt, TrainingSample

_SIBLINGS, _TURNS = 3, 2
REPLY_TOKENS = 6
"""Number of tokens in a reply."""


def episodes(encoder: ChatEncoder) -> list[TrainingSample]:
    """Return conversations with the same first message, and an image per turn if supported."""
    rng = np.random.default_rng(0)
    sees = encoder.model_adapter.image_token_id is not None
    found = []
    for member in range(_SIBLINGS):
        talk, places = Conversation(encoder, "Play the game."), list[int]()
        for turn in range(_TURNS):
            # All members have the same first message, so they share it as a prefix.
            screen = np.random.default_rng(turn if turn == 0 else 10 * member + turn)
            image = screen.integers(0, 255, (140, 84 + 28 * turn, 3), np.uint8)
            images = (image,) if sees else ()
            # Turn markers in a text must stay text.
            text = f"Turn {turn}:\n{IMAGE * len(images)}\nWhat now? <eos><|im_end|>"
            prompt = talk.observe(Message(role="user", text=text, images=images))
            reply = rng.integers(33, 200, REPLY_TOKENS).tolist()
            places += range(len(prompt.token_ids), len(prompt.token_ids) + REPLY_TOKENS)
            talk.answer(reply)
        found.append(reply_sample(prompt, reply, places, member))
    return found


def reply_sample(
    prompt: Prompt, reply: Sequence[int], places: Sequence[int], member: int
) -> TrainingSample:
    """Return a sample of an episode's last prompt and reply, including the earlier replies.

    Args:
        prompt: the last prompt.
        reply: token ids of the last reply.
        places: positions of the tokens of all replies.
        member: number of the episode; only the first episode has a positive advantage.
    """
    count = len(places)
    return TrainingSample(
        token_ids=(*prompt.token_ids, *reply),
        sampled_positions=tuple(places),
        logprobs=(-5.0,) * count,
        old_logprobs=(-5.0,) * count,
        versions=(0,) * count,
        turns=tuple(k // REPLY_TOKENS for k in range(count)),
        images=prompt.images,
        episode=member,
        advantages=(1.0 if member == 0 else -0.5,) * count,
        reference_logprobs=None,
        values=None,
        returns=None,
        bce_gradient=None,
    )


def packed_logprobs(
    encoder: ChatEncoder,
    model: torch.nn.Module,
    samples: Sequence[TrainingSample],
    attention: str = "auto",
) -> list[list[float]]:
    """Return each sample's log-probabilities, computed with shared prefixes as in the learner."""
    adapter, scorer = encoder.model_adapter, LogprobModel(model, encoder.model_adapter)
    device = next(model.parameters()).device
    scorer.uses_blocks = flex_attention.prepare(model, attention, device)
    packing = Packing(
        max_tokens=10_000,
        # Share prefixes regardless of the length of images.
        attention_break_even=float("inf"),
        share_prefixes=True,
        attention_masks=scorer.supports_masks,
        attention_block=BLOCK if scorer.uses_blocks else None,
        read_last_tokens=False,
    )
    found: list[list[float]] = [[] for _ in samples]
    for rows in pack_micro_batches(samples, packing, adapter.image_token_id):
        batch = build_batch(samples, rows, adapter)
        assert batch.has_branches, "the samples share prefixes"
        with torch.no_grad():
            values = scorer(batch, 1.0).logprobs.tolist()
        for index in sequence_order(rows):
            count = samples[index].num_sampled
            found[index], values = values[:count], values[count:]
    return found


def transformers_logprobs(
    folder: Path, encoder: ChatEncoder, samples: Sequence[TrainingSample]
) -> list[list[float]]:
    """Return transformers' log-probabilities, one sequence at a time, with eager attention."""
    import transformers

    sees = encoder.model_adapter.image_token_id is not None
    loader = "AutoModelForMultimodalLM" if sees else "AutoModelForCausalLM"
    model: Any = getattr(transformers, loader).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", trust_remote_code=False
    )
    processor: Any = None
    if sees:
        processor = transformers.AutoProcessor.from_pretrained(folder, trust_remote_code=False)
    found = []
    for sample in samples:
        ids = torch.tensor([sample.token_ids])
        inputs: dict[str, Any] = {"input_ids": ids}
        if processor is not None:
            arguments = encoder.model_adapter.processor_arguments()
            # Process each image alone, as in a prompt with one image.
            shown = [
                processor.image_processor([image], return_tensors="pt", **arguments)
                for image in sample.images
            ]
            known = inspect.signature(model.forward).parameters
            for name in shown[0]:
                if name in known:
                    inputs[name] = _stacked([own[name] for own in shown])
            # The processor would derive these from text, but here only the ids are given.
            is_image = ids.eq(int(encoder.model_adapter.image_token_id or 0))
            for name in ("mm_token_type_ids", "token_type_ids"):
                if name in known:
                    inputs[name] = is_image.long()
            inputs.pop("batch_num_images", None)
        with torch.no_grad():
            logits = model.eval()(**inputs).logits[0].float()
        # Image placeholders are never sampled: the policy's distribution excludes them.
        logits[:, list(encoder.model_adapter.banned_token_ids)] = -torch.inf
        table = torch.log_softmax(logits, -1)
        at = sample.sampled_positions
        found.append([float(table[place - 1, sample.token_ids[place]]) for place in at])
    return found


def _stacked(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Stack the tensors of several images, padded to the largest number of tiles."""
    if parts[0].dim() < 5:
        return torch.cat(list(parts))
    most = max(part.shape[1] for part in parts)
    padded = [torch.nn.functional.pad(p, (0,) * 6 + (0, most - p.shape[1])) for p in parts]
    return torch.cat(padded)


def difference(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """Return the largest difference between two lists of log-probabilities."""
    assert [len(own) for own in ours] == [len(own) for own in theirs]
    return max(
        abs(a - b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)
    )
