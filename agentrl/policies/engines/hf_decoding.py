"""Batched generation with a transformers model and its key-value cache.

Each reply depends only on its own seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agentrl.errors import EngineError
from agentrl.policies.engines.engine import Sampling, most_probable
from agentrl.policies.models import ModelAdapter
from agentrl.types import Prompt, TopLogprobs


@dataclass(slots=True, kw_only=True)
class SampledReply:
    """A reply during generation."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[TopLogprobs] = field(default_factory=list)
    """Most probable tokens of each position; empty if not requested."""
    is_finished: bool = False


@torch.inference_mode()
def generate_batch(
    model: nn.Module,
    model_adapter: ModelAdapter,
    prompts: Sequence[Prompt],
    samplings: Sequence[Sampling],
    eos_token_ids: Sequence[int],
    digests: Sequence[bytes] | None = None,
    report: Callable[[tuple[int, ...]], None] | None = None,
) -> list[SampledReply]:
    """Sample one reply per prompt. Equal prompts, as at the start of a group, are prefilled once.

    Args:
        model: transformers model in evaluation mode.
        model_adapter: adapter of the model.
        prompts: B prompts.
        samplings: sampling parameters of each prompt.
        eos_token_ids: tokens that end a reply.
        digests: digests of the prompts, if known; see `prompt_digest`.
        report: called with the first reply's tokens after each new token. If it raises, the whole
            batch ends.
    """
    device = next(model.parameters()).device
    replies = [SampledReply() for _ in prompts]
    sampler = TokenSampler(samplings, device)
    rows = torch.arange(len(prompts), device=device)
    # Keys and values of equal prompts are computed once, then copied.
    names = digests or list(map(prompt_digest, prompts))
    distinct = dict(zip(names, prompts, strict=True))
    out, mask, position = _prefill(model, model_adapter, [*distinct.values()], device)
    logits = out.logits[:, -1]
    if len(distinct) < len(prompts):
        places = {name: place for place, name in enumerate(distinct)}
        which = torch.tensor([places[name] for name in names], device=device)
        out.past_key_values.batch_select_indices(which)
        logits, mask, position = logits[which], mask[which], position[..., which, :]
    while True:
        tokens, logprobs, top = sampler.draw(logits, model_adapter.banned_token_ids, rows)
        open_rows = _append_tokens(replies, samplings, eos_token_ids, rows, tokens, logprobs, top)
        if report:
            report(tuple(replies[0].token_ids))
        if not open_rows:
            return replies
        # Selecting rows copies the cache, so drop finished replies only once they make up half of
        # the batch.
        if 2 * len(open_rows) <= len(rows):
            keep = torch.tensor(open_rows, device=device)
            out.past_key_values.batch_select_indices(keep)
            rows, tokens, mask, position = (
                rows[keep], tokens[keep], mask[keep], position[..., keep, :],
            )  # fmt: skip
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        out = model(
            input_ids=tokens.unsqueeze(-1),
            attention_mask=mask.long(),
            position_ids=position,
            past_key_values=out.past_key_values,
            use_cache=True,
        )
        logits, position = out.logits[:, -1], position + 1


def prompt_digest(prompt: Prompt) -> bytes:
    """Hash a prompt's tokens and images."""
    digest = blake2b(repr(prompt.token_ids).encode(), digest_size=16)
    for image in prompt.images:
        digest.update(repr(image.shape).encode() + image.tobytes())
    return digest.digest()


def _prefill(
    model: nn.Module, model_adapter: ModelAdapter, prompts: Sequence[Prompt], device: torch.device
) -> tuple[Any, Tensor, Tensor]:
    """Run the model on prompts padded on the left.

    Return its output, the mask bool[B, P] (False on padding), and the position of each reply's
    first token, int64[B, 1] or int64[axes, B, 1].
    """
    longest = max(len(prompt.token_ids) for prompt in prompts)
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros(len(prompts), longest, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt.token_ids) :] = torch.tensor(prompt.token_ids)
        mask[row, longest - len(prompt.token_ids) :] = True
    ids, mask = ids.to(device), mask.to(device)
    images = [image for prompt in prompts for image in prompt.images]
    inputs: dict[str, Any] = dict(model_adapter.forward_inputs(ids, mask, images))
    axes = model_adapter.position_axes if images else 1
    # With several axes, the model computes the positions from its inputs, including images.
    if axes == 1:
        inputs["position_ids"] = (mask.long().cumsum(-1) - 1).clamp(min=0)
    inputs = {name: value.to(device) for name, value in inputs.items()}
    out = model(**inputs, use_cache=True, logits_to_keep=1)
    # Don't use the number of tokens, because an image can take fewer positions than tokens.
    ends = [model_adapter.positions(p.token_ids, p.images).max() + 1 for p in prompts]
    position = torch.tensor(ends, device=device).unsqueeze(-1)
    return out, mask, position if axes == 1 else position.unsqueeze(0).expand(axes, -1, -1)


def _append_tokens(
    replies: list[SampledReply],
    samplings: Sequence[Sampling],
    eos_token_ids: Sequence[int],
    rows: Tensor,
    tokens: Tensor,
    logprobs: Tensor,
    top: Sequence[TopLogprobs],
) -> list[int]:
    """Append the sampled tokens and return the batch indices of replies that continue."""
    still_open = []
    drawn = zip(rows.tolist(), tokens.tolist(), logprobs.tolist(), strict=True)
    for index, (row, token, logprob) in enumerate(drawn):
        reply, sampling = replies[row], samplings[row]
        # Finished replies may still have rows in the batch.
        if reply.is_finished:
            continue
        reply.token_ids.append(token)
        reply.logprobs.append(logprob)
        if count := sampling.top_logprobs:
            reply.top_logprobs.append(top[index][:count])
        has_ended = token in (*eos_token_ids, *sampling.stop_token_ids)
        reply.is_finished = has_ended or len(reply.token_ids) >= sampling.max_new_tokens
        if not reply.is_finished:
            still_open.append(index)
    return still_open


def processed_logprobs(logits: Tensor, temperature: Tensor, banned: Sequence[int]) -> Tensor:
    """Compute the log-probabilities to sample from. The learner must use the same function.

    Args:
        logits: float[..., V].
        temperature: float[...], above 0.
        banned: ids that cannot be sampled.

    Returns:
        float32[..., V]; -inf where banned.
    """
    logits = logits.float()
    if banned:
        logits[..., list(banned)] = -torch.inf
    return torch.log_softmax(logits / temperature.unsqueeze(-1), dim=-1)


def nucleus(logprobs: Tensor, top_p: Tensor) -> Tensor:
    """Keep the log-probabilities of the most probable tokens that together reach `top_p`.

    Args:
        logprobs: float32[..., V].
        top_p: float64[...], in (0, 1].

    Returns:
        float32[..., V]; -inf for all other tokens.
    """
    ordered, tokens = logprobs.sort(dim=-1)
    is_rare = ordered.softmax(-1).cumsum(-1) <= (1 - top_p).to(ordered).unsqueeze(-1)
    # Rounding must not remove the most probable token.
    is_rare[..., -1] = False
    rare = is_rare.scatter(-1, tokens, is_rare)
    return torch.log_softmax(logprobs.masked_fill(rare, -torch.inf), dim=-1)


class TokenSampler:
    """Samples the tokens of a batch, with one random stream per request."""

    def __init__(self, requests: Sequence[Sampling], device: torch.device) -> None:
        self._streams = [np.random.default_rng(request.seed) for request in requests]
        self._greedy = torch.tensor([r.temperature <= 0 for r in requests], device=device)
        self._temperature = torch.tensor(
            [r.temperature if r.temperature > 0 else 1.0 for r in requests], device=device
        )
        self._top_p = torch.tensor(
            [request.top_p for request in requests], dtype=torch.float64, device=device
        )
        self._is_cut = any(request.top_p < 1 for request in requests)
        self._top = max(request.top_logprobs for request in requests)

    def draw(
        self, logits: Tensor, banned: Sequence[int], rows: Tensor
    ) -> tuple[Tensor, Tensor, list[TopLogprobs]]:
        """Sample one token for each unfinished row.

        Args:
            logits: float[B, V].
            banned: ids that cannot be sampled.
            rows: int64[B], index of the request that each row of the logits belongs to.

        Returns:
            Tokens int64[B], their log-probabilities float32[B], and the most probable tokens [B],
            as many as the largest number that a request asks for.

        Raises:
            EngineError: the logits are not finite.
        """
        logprobs = processed_logprobs(logits, self._temperature[rows], banned)
        if self._is_cut:
            logprobs = nucleus(logprobs, self._top_p[rows])
        # Draw from each row's own stream, so that a reply does not depend on the rest of the batch.
        uniform = [self._streams[row].random(dtype=np.float32) for row in rows.tolist()]
        mass = logprobs.double().exp().cumsum(-1)
        if not torch.isfinite(mass[:, -1]).all():
            raise EngineError(
                "the model's logits are not finite because its weights have diverged; the learning "
                "rate may be far too high"
            )
        point = torch.tensor(uniform, dtype=torch.float64, device=logits.device) * mass[:, -1]
        sampled = torch.searchsorted(mass, point.unsqueeze(-1), right=True).squeeze(-1)
        tokens = torch.where(self._greedy[rows], logprobs.argmax(-1), sampled)
        drawn = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        if not self._top:
            return tokens, drawn, []
        values, ids = logprobs.topk(min(self._top, logprobs.shape[-1]))
        pairs = zip(ids.tolist(), values.tolist(), strict=True)
        return tokens, drawn, [most_probable(zip(*row, strict=True), self._top) for row in pairs]
