"""From episodes to tensors: samples, micro-batches under a token budget, padded batches.

Token ids are taken as they were sampled, never re-encoded; one picture in the ids is one picture
in the pixels.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from agentrl.types import Batch, Episode, Image, Sample, Turn

if TYPE_CHECKING:
    from agentrl.policies.kits import Kit


def to_samples(episode: Episode, advantages: Sequence[float]) -> list[Sample]:
    """One sample per run of turns whose prompts extend each other.

    With the history layout `concat` an episode is one sample; with a window of turns, one per turn.

    Args:
        episode: with T turns.
        advantages: [T], given to every token of the turn's reply.

    Returns:
        In the order of the turns; none for a void episode.
    """
    assert len(advantages) == len(episode.turns), (len(advantages), len(episode.turns))
    if episode.outcome.void:
        return []
    runs: list[list[tuple[Turn, float]]] = []
    for turn, advantage in zip(episode.turns, advantages, strict=True):
        if runs and _extends(runs[-1][-1][0], turn):
            runs[-1].append((turn, advantage))
        else:
            runs.append([(turn, advantage)])
    return [_sample(run) for run in runs]


def _extends(previous: Turn, turn: Turn) -> bool:
    told = previous.prompt_ids + previous.reply_ids
    shared = len(previous.images)
    return (
        len(turn.prompt_ids) >= len(told)
        and turn.prompt_ids[: len(told)] == told
        and len(turn.images) >= shared
    )


def _sample(run: Sequence[tuple[Turn, float]]) -> Sample:
    last = run[-1][0]
    token_ids = last.prompt_ids + last.reply_ids
    mask = [False] * len(token_ids)
    logprobs = [0.0] * len(token_ids)
    credit = [0.0] * len(token_ids)
    for turn, advantage in run:
        assert len(turn.reply_ids) == len(turn.reply_logprobs)
        for place, logprob in enumerate(turn.reply_logprobs, start=len(turn.prompt_ids)):
            mask[place], logprobs[place], credit[place] = True, logprob, advantage
    return Sample(
        token_ids=token_ids,
        loss_mask=tuple(mask),
        logprobs=tuple(logprobs),
        advantages=tuple(credit),
        images=last.images,
    )


def teaches(sample: Sample) -> bool:
    """True where some sampled token has an advantage: without a KL term the others are idle."""
    return any(sample.advantages)


def num_sampled(sample: Sample) -> int:
    """How many tokens the policy sampled."""
    return sum(sample.loss_mask)


def micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group samples of like length so that each padded rectangle keeps within a budget.

    Args:
        lengths: [S] tokens of each sample.
        max_tokens: padded tokens (rows times the longest row) of one micro-batch, at most. A
            sample that is longer goes alone.

    Returns:
        Indices of the samples, longest first: a job that runs out of memory does so at once. The
        same lengths always give the same split.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def to_batch(samples: Sequence[Sample], kit: "Kit", device: torch.device | str = "cpu") -> Batch:
    """Pad samples on the right and let the model family turn their pictures into tensors.

    Args:
        samples: B of them; the longest has L tokens.
        kit: the model family's.
        device: where the tensors go.

    Returns:
        Tensors of shape [B, L], and the pictures in the order of their tokens. Pictures that
        siblings share are there once; `pixels["image_index"]`, int64[pictures of all rows], then
        says which one each row's is.
    """
    width = max(len(sample.token_ids) for sample in samples)
    token_ids = _padded((s.token_ids for s in samples), width, torch.int64)
    lengths = torch.tensor([len(s.token_ids) for s in samples])
    attention_mask = torch.arange(width)[None, :] < lengths[:, None]
    images, index = _distinct([image for sample in samples for image in sample.images])
    inputs = kit.forward_inputs(token_ids, attention_mask, images)
    if len(images) < len(index):
        inputs["image_index"] = torch.tensor(index)
    pixels = {n: t for n, t in inputs.items() if n not in ("input_ids", "attention_mask")}
    return Batch(
        token_ids=token_ids.to(device),
        attention_mask=attention_mask.to(device),
        loss_mask=_padded((s.loss_mask for s in samples), width, torch.bool).to(device),
        logprobs=_padded((s.logprobs for s in samples), width, torch.float32).to(device),
        advantages=_padded((s.advantages for s in samples), width, torch.float32).to(device),
        pixels={name: tensor.to(device) for name, tensor in pixels.items()},
    )


def _distinct(images: Sequence[Image]) -> tuple[list[Image], list[int]]:
    """Pictures without repetitions, and for each given one its place among them."""
    places: dict[tuple[tuple[int, ...], bytes], int] = {}
    index = [places.setdefault((image.shape, image.tobytes()), len(places)) for image in images]
    first = dict(zip(reversed(index), reversed(images), strict=True))
    return [first[place] for place in range(len(places))], index


def _padded(rows: Iterable[Sequence[float]], width: int, dtype: torch.dtype) -> Tensor:
    padded = [list(row) + [0] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=dtype)
