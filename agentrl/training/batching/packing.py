"""From episodes to token sequences, and these into micro-batches under a token budget.

Token ids are taken as they were sampled, never re-encoded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl.training.batching import prefix_tree
from agentrl.training.batching.prefix_tree import PrefixTree, Tokens
from agentrl.types import Episode, Image, TokenSequence, Turn


def split_into_sequences(episode: Episode, index: int = 0) -> list[TokenSequence]:
    """Split an episode into runs of turns whose prompts extend each other.

    With the history layout `concat` an episode is one sequence; with a window of turns, one per
    turn. Together the sequences contain each sampled token of the episode once, in order.

    Args:
        episode: of any number of turns.
        index: of the episode in its training step.

    Returns:
        In the order of the turns; empty for a void episode. Runs without sampled tokens are
        skipped.
    """
    if episode.outcome.void:
        return []
    runs: list[list[int]] = []
    for number, turn in enumerate(episode.turns):
        if runs and _extends(episode.turns[runs[-1][-1]], turn):
            runs[-1].append(number)
        else:
            runs.append([number])
    return [
        _sequence(episode, run, index)
        for run in runs
        if any(episode.turns[number].reply_ids for number in run)
    ]


def _extends(previous: Turn, turn: Turn) -> bool:
    prefix = previous.prompt_ids + previous.reply_ids
    return (
        len(turn.prompt_ids) >= len(prefix)
        and turn.prompt_ids[: len(prefix)] == prefix
        and len(turn.images) >= len(previous.images)
    )


def _sequence(episode: Episode, run: Sequence[int], index: int) -> TokenSequence:
    turns = [episode.turns[number] for number in run]
    for turn in turns:
        assert len(turn.reply_ids) == len(turn.reply_logprobs), "one log-probability per token"
    return TokenSequence(
        token_ids=turns[-1].prompt_ids + turns[-1].reply_ids,
        sampled_positions=tuple(
            len(turn.prompt_ids) + offset for turn in turns for offset in range(len(turn.reply_ids))
        ),
        logprobs=tuple(logprob for turn in turns for logprob in turn.reply_logprobs),
        versions=tuple(version for turn in turns for version in turn.reply_versions),
        turns=tuple(
            number for number, turn in zip(run, turns, strict=True) for _ in turn.reply_ids
        ),
        images=turns[-1].images,
        episode=index,
    )


@dataclass(slots=True, kw_only=True, frozen=True)
class Packing:
    """How sequences are laid out for one forward pass."""

    max_tokens: int
    """Of a micro-batch, including padding; a longer sequence is packed alone."""
    attention_break_even: float
    """Row length at which attention costs as much as everything else; see
    `prefix_tree.build_trees`."""
    share_prefixes: bool = True
    """Whether common prefixes are computed once."""
    attention_masks: bool = True
    """Whether the attention supports masks. Without, a micro-batch is a single row of whole
    sequences, separated by their lengths, and no prefix is shared."""
    read_last_tokens: bool = True
    """Whether a sequence's last token is an input if it was sampled. A policy does not need what
    comes after it; a critic values that state."""


def pack_micro_batches(
    sequences: Sequence[TokenSequence], packing: Packing, image_token_id: int | None
) -> list[list[list[PrefixTree]]]:
    """[micro-batches][rows][trees]; see `pack_rows` and `pack_single_rows` in `prefix_tree`."""
    keys = _keys(sequences, image_token_id)
    if not packing.read_last_tokens:
        keys = [
            key[:-1] if sequence.sampled_positions[-1:] == (len(key) - 1,) else key
            for sequence, key in zip(sequences, keys, strict=True)
        ]
    if packing.share_prefixes and packing.attention_masks:
        trees = prefix_tree.build_trees(keys, packing.max_tokens, packing.attention_break_even)
    else:
        trees = [prefix_tree.single_sequence(index, len(key)) for index, key in enumerate(keys)]
    if packing.attention_masks:
        return prefix_tree.pack_rows(trees, packing.max_tokens)
    return prefix_tree.pack_single_rows(trees, packing.max_tokens)


def _keys(sequences: Sequence[TokenSequence], image_token_id: int | None) -> list[Tokens]:
    """Each sequence's token ids, with image tokens replaced by a number that names the image."""
    images = DistinctImages()
    keys = []
    for sequence in sequences:
        key = np.array(sequence.token_ids, dtype=np.int64)
        if sequence.images:
            is_image = key == image_token_id
            first = is_image & ~np.concatenate([[False], is_image[:-1]])
            names = np.array([-1 - images.index(image) for image in sequence.images])
            key = np.where(is_image, names[np.maximum(np.cumsum(first) - 1, 0)], key)
        keys.append(key)
    return keys


class DistinctImages:
    """Images without duplicates, in the order of their first occurrence."""

    def __init__(self) -> None:
        self.images: list[Image] = []
        self._indices: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._by_object: dict[int, tuple[Image, int]] = {}

    def index(self, image: Image) -> int:
        """The index of an equal image in `images`; it is added if it is new."""
        # Turns of one conversation share objects. They are kept here, so that ids stay unique.
        if (known := self._by_object.get(id(image))) is not None:
            return known[1]
        index = self._indices.setdefault((image.shape, image.tobytes()), len(self._indices))
        if index == len(self.images):
            self.images.append(image)
        self._by_object[id(image)] = image, index
        return index
