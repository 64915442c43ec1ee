"""From episodes to tensors: samples, micro-batches under a token budget, rows of trees.

Token ids are taken as they were sampled, never re-encoded; one picture in the ids is one picture
in the pixels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from agentrl.training.batching import prefix_tree
from agentrl.training.batching.prefix_tree import Tokens, Tree
from agentrl.types import Batch, Episode, Image, Sample, Turn

if TYPE_CHECKING:
    from agentrl.policies.models import ModelAdapter

_PER_TOKEN = (
    "places", "logprobs", "advantages", "turns", "versions", "old_logprobs", "reference_logprobs",
    "values", "returns",
)  # fmt: skip


def to_samples(
    episode: Episode,
    advantages: Sequence[Sequence[float]],
    returns: Sequence[Sequence[float]] | None = None,
    number: int = 0,
) -> list[Sample]:
    """One sample per run of turns whose prompts extend each other.

    With the history layout `concat` an episode is one sample; with a window of turns, one per turn.

    Args:
        episode: with T turns, of R tokens each.
        advantages: [T][R]
        returns: [T][R], what a critic learns; None without one.
        number: names the episode among those of a step.

    Returns:
        In the order of the turns; none for a void episode, and none for turns without tokens.
    """
    assert len(advantages) == len(episode.turns), (len(advantages), len(episode.turns))
    if episode.outcome.void:
        return []
    runs: list[list[int]] = []
    for place, turn in enumerate(episode.turns):
        if runs and _extends(episode.turns[runs[-1][-1]], turn):
            runs[-1].append(place)
        else:
            runs.append([place])
    return [
        _sample(episode, run, advantages, returns, number)
        for run in runs
        if any(episode.turns[place].reply_ids for place in run)
    ]


def evenly(episode: Episode, per_turn: Sequence[float]) -> list[list[float]]:
    """[T][R]: each turn's number for every one of its tokens."""
    return [
        [value] * len(turn.reply_ids) for value, turn in zip(per_turn, episode.turns, strict=True)
    ]


def _extends(previous: Turn, turn: Turn) -> bool:
    told = previous.prompt_ids + previous.reply_ids
    return (
        len(turn.prompt_ids) >= len(told)
        and turn.prompt_ids[: len(told)] == told
        and len(turn.images) >= len(previous.images)
    )


def _sample(
    episode: Episode,
    run: Sequence[int],
    advantages: Sequence[Sequence[float]],
    returns: Sequence[Sequence[float]] | None,
    number: int,
) -> Sample:
    turns = [episode.turns[place] for place in run]
    for place, turn in zip(run, turns, strict=True):
        assert len(turn.reply_ids) == len(turn.reply_logprobs) == len(advantages[place])
    return Sample(
        token_ids=turns[-1].prompt_ids + turns[-1].reply_ids,
        places=tuple(
            len(turn.prompt_ids) + offset for turn in turns for offset in range(len(turn.reply_ids))
        ),
        logprobs=tuple(logprob for turn in turns for logprob in turn.reply_logprobs),
        advantages=tuple(value for place in run for value in advantages[place]),
        images=turns[-1].images,
        turns=tuple(
            place
            for place, turn in zip(run, turns, strict=True)
            for _ in range(len(turn.reply_ids))
        ),
        episode=number,
        versions=tuple(version for turn in turns for version in turn.reply_versions),
        returns=tuple(value for place in run for value in returns[place]) if returns else (),
    )


def only(sample: Sample, kept: Sequence[bool]) -> Sample:
    """The same sample, in which some sampled tokens are read like those of the prompt.

    Args:
        sample: with N sampled tokens.
        kept: [N], True where a token counts as sampled.
    """
    columns: dict[str, Any] = {
        name: tuple(compress(getattr(sample, name), kept)) for name in _PER_TOKEN
    }
    return replace(sample, **columns)


def teaches(sample: Sample) -> bool:
    """True where some sampled token has an advantage: without other terms the others are idle."""
    return any(sample.advantages)


def num_sampled(sample: Sample) -> int:
    """How many tokens the policy sampled."""
    return len(sample.places)


@dataclass(slots=True, kw_only=True, frozen=True)
class Packing:
    """How samples are laid out for one forward pass."""

    max_tokens: int
    """Of a micro-batch with its padding, at most; a sample that is longer goes alone."""
    width: float
    """At how many tokens of a row its attention takes as long as all else; see `forest.grow`."""
    share: bool = True
    """Whether what samples begin with is computed once."""
    masks: bool = True
    """Whether the attention takes masks; without, a micro-batch is one row of whole samples, which
    their lengths keep apart, and nothing is shared."""
    lasts: bool = True
    """Whether a sample's last token is read where it was sampled. Nobody asks a policy what comes
    after it; a critic values that state."""


def micro_batches(
    samples: Sequence[Sample], packing: Packing, image_token_id: int | None
) -> list[list[list[Tree]]]:
    """[micro-batches][rows][trees] of samples; see `forest.rows` and `forest.lines`."""
    keys = _keys(samples, image_token_id)
    if not packing.lasts:
        keys = [
            key[:-1] if sample.places[-1:] == (len(key) - 1,) else key
            for sample, key in zip(samples, keys, strict=True)
        ]
    if packing.share and packing.masks:
        trees = prefix_tree.grow(keys, packing.max_tokens, packing.width)
    else:
        trees = [prefix_tree.alone(index, len(key)) for index, key in enumerate(keys)]
    lay_out = prefix_tree.rows if packing.masks else prefix_tree.lines
    return lay_out(trees, packing.max_tokens)


def _keys(samples: Sequence[Sample], image_token_id: int | None) -> list[Tokens]:
    """The ids of each sample, where those of a picture name the picture."""
    seen = Pictures()
    keys = []
    for sample in samples:
        key = np.array(sample.token_ids, dtype=np.int64)
        if sample.images:
            is_image = key == image_token_id
            first = is_image & ~np.concatenate([[False], is_image[:-1]])
            names = np.array([-1 - seen.place(image) for image in sample.images])
            key = np.where(is_image, names[np.maximum(np.cumsum(first) - 1, 0)], key)
        keys.append(key)
    return keys


class Pictures:
    """Pictures without repetitions, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.distinct: list[Image] = []
        self._places: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._by_object: dict[int, tuple[Image, int]] = {}

    def place(self, image: Image) -> int:
        """Where an equal picture stands among the distinct ones."""
        # Turns of one conversation hold the same objects; they are kept, so that ids stay theirs.
        if (known := self._by_object.get(id(image))) is not None:
            return known[1]
        place = self._places.setdefault((image.shape, image.tobytes()), len(self._places))
        if place == len(self.distinct):
            self.distinct.append(image)
        self._by_object[id(image)] = image, place
        return place


def to_batch(
    samples: Sequence[Sample],
    rows: Sequence[Sequence[Tree]],
    model_adapter: "ModelAdapter",
    *,
    weights: Sequence[float] | None = None,
    device: torch.device | str = "cpu",
) -> Batch:
    """Lay trees out in rows and let the model family turn their pictures into tensors.

    Args:
        samples: all those that the trees were grown from.
        rows: B rows of trees; the longest has L tokens.
        model_adapter: the model family's.
        weights: what a token of each sample weighs in the loss; None for 1.
        device: where the tensors go.

    Returns:
        See `Batch`. Pictures that several samples share are there once; `pixels["image_index"]`,
        int64[pictures of all rows], then says which one each is.
    """
    width = max(sum(tree.length for tree in row) for row in rows)
    ids = np.zeros((len(rows), width), dtype=np.int64)
    ends = np.tile(np.arange(1, width + 1), (len(rows), 1))
    positions: np.ndarray | None = None
    places: dict[int, Tokens] = {}
    pictures, index = Pictures(), []
    for number, row in enumerate(rows):
        start = 0
        for tree in row:
            own = slice(start, start + tree.length)
            ends[number, own] = tree.ends() + start
            for sample_index, shared in tree.tokens:
                sample = samples[sample_index]
                path = tree.paths[sample_index]
                there = path[shared:] + start
                ids[number, there] = sample.token_ids[shared : len(path)]
                counted = model_adapter.positions(sample.token_ids, sample.images)
                if positions is None:
                    positions = np.tile(np.arange(width), (*counted.shape[:-1], len(rows), 1))
                positions[..., number, there] = counted[..., shared : len(path)]
                index += [
                    pictures.place(image)
                    for image in _images_from(sample, shared, model_adapter.image_token_id)
                ]
                places[sample_index] = number * width + start + path
            start += tree.length
    chosen = list(places)
    inputs = model_adapter.pixels(pictures.distinct)
    if len(pictures.distinct) < len(index):
        inputs["image_index"] = torch.tensor(index)
    columns = _columns([samples[i] for i in chosen])
    counts = torch.tensor([len(samples[i].places) for i in chosen])
    told = torch.tensor([1.0 if weights is None else weights[i] for i in chosen])
    columns["weights"] = told.repeat_interleave(counts)
    assert positions is not None
    return Batch(
        token_ids=torch.from_numpy(ids).to(device),
        positions=torch.from_numpy(positions).to(device),
        ends=torch.from_numpy(ends).to(device),
        forked=any(len(row) > 1 or len(row[0].tokens) > 1 for row in rows),
        sources=_joined(places[i][np.array(samples[i].places) - 1] for i in chosen).to(device),
        targets=_joined(np.array(samples[i].token_ids)[list(samples[i].places)] for i in chosen).to(
            device
        ),
        lasts=torch.tensor([int(places[i][-1]) for i in chosen], device=device),
        turns=_turns([samples[i] for i in chosen]).to(device),
        columns={name: tensor.to(device) for name, tensor in columns.items()},
        pixels={name: tensor.to(device) for name, tensor in inputs.items()},
    )


def _images_from(sample: Sample, shared: int, image_token_id: int | None) -> Iterable[Image]:
    """The pictures of a sample that its first `shared` tokens do not show."""
    if not sample.images:
        return ()
    before = np.array(sample.token_ids[:shared]) == image_token_id
    starts = before & ~np.concatenate([[False], before[:-1]]) if shared else before
    return sample.images[int(starts.sum()) :]


def _columns(samples: Sequence[Sample]) -> dict[str, Tensor]:
    def column(name: str) -> Tensor:
        values = [value for sample in samples for value in getattr(sample, name)]
        return torch.tensor(values, dtype=torch.float32)

    columns = {"logprobs": column("logprobs"), "advantages": column("advantages")}
    columns["old_logprobs"] = (
        column("old_logprobs") if samples[0].old_logprobs else columns["logprobs"]
    )
    for name in ("reference_logprobs", "values", "returns"):
        if getattr(samples[0], name):
            columns[name] = column(name)
    return columns


def _turns(samples: Sequence[Sample]) -> Tensor:
    """int64[N], equal for the tokens of one turn of one sample."""
    names: dict[tuple[int, int], int] = {}
    return torch.tensor(
        [
            names.setdefault((place, turn), len(names))
            for place, sample in enumerate(samples)
            for turn in sample.turns
        ]
    )


def _joined(arrays: Iterable[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(list(arrays)))
