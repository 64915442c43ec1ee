"""Encodes examples of data sets: conversations, pairs of answers, labeled replies."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from agentrl.config import DataConfig, FinetuningConfig
from agentrl.data.chat_messages import ChatMessage
from agentrl.data.offline_rows import (
    ConversationRow,
    LabeledRow,
    OfflineRow,
    OfflineRows,
    Preference,
    ReadRow,
    TextRow,
)
from agentrl.data.open_table import Selection, open_table
from agentrl.data.row_columns import report_bad_rows
from agentrl.data.tables import BadRow
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.encode_messages import encode_messages, encode_text
from agentrl.types import LabeledSequence, PreferenceSequence, TokenSequence

Rows = OfflineRows[OfflineRow]
T = TypeVar("T", bound=TokenSequence)
Encode = Callable[[Any, ChatEncoder, int], list[TokenSequence]]
"""Function that takes a row, the model's encoder, and the example's index in its batch."""


def open_rows(
    source: DataConfig,
    read: ReadRow[OfflineRow],
    on_bad: str,
    setting: str,
) -> Rows:
    """Open the rows of a configured data set, checking every row and image.

    Raises:
        ConfigError: the data set does not exist, or has bad rows that may not be skipped.
    """
    selection = Selection(
        split=source.split,
        name=source.name,
        revision=source.revision,
        max_rows=source.max_rows,
    )
    root = None if source.image_root is None else Path(source.image_root).expanduser()
    try:
        table = open_table(source.data, selection)
        return OfflineRows(
            table, source.data, read, keys=source.keys, image_root=root, on_bad=on_bad
        )
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from error


def encode_learned(
    row: ConversationRow | TextRow, encoder: ChatEncoder, index: int
) -> list[TokenSequence]:
    """Encode a conversation or a text; replies, or all tokens of a text, count as sampled.

    Raises:
        BadRow: see `encode_messages` and `encode_text`; or the prompt ends with a reply.
    """
    if isinstance(row, TextRow):
        return [encode_text(row.text, encoder, index)]
    whole = encode_messages(row.messages, row.images, encoder, index, row.tools)
    return [_only_after(row.messages[: row.prompt_length], whole)]


def encode_pair(row: Preference, encoder: ChatEncoder, index: int) -> list[TokenSequence]:
    """Encode both answers of a pair, each with the prompt; only answers count as sampled.

    Raises:
        BadRow: see `encode_messages`; or the prompt ends with a reply, or an answer has no reply.
    """
    found = []
    for answer, images in (
        (row.chosen, row.chosen_images),
        (row.rejected, row.rejected_images),
    ):
        whole = encode_messages(
            (*row.prompt, *answer), (*row.images, *images), encoder, index, row.tools
        )
        found.append(_only_after(row.prompt, whole))
    if found[0].token_ids == found[1].token_ids:
        raise BadRow("both answers have the same tokens")
    return [_with_fields(PreferenceSequence, one, margin=row.margin) for one in found]


def _only_after(prompt: Sequence[ChatMessage], whole: TokenSequence) -> TokenSequence:
    """Return a conversation's tokens; only replies after the prompt count as sampled."""
    if prompt and prompt[-1].role == "assistant":
        raise BadRow("the prompt ends with a reply")
    # Consecutive replies are joined.
    asked = sum(role == "assistant" for role, _ in groupby(one.role for one in prompt))
    if asked not in whole.turns:
        raise BadRow("an answer has no assistant message")
    first = whole.turns.index(asked)
    return _with_sampled(whole, whole.sampled_positions[first:], whole.turns[first:])


def encode_compared(row: Preference, encoder: ChatEncoder, index: int) -> list[TokenSequence]:
    """Encode a pair for a reward model, like `encode_pair`; only last tokens count as sampled."""
    return [
        _with_sampled(one, one.sampled_positions[-1:], one.turns[-1:])
        for one in encode_pair(row, encoder, index)
    ]


def encode_labeled(row: LabeledRow, encoder: ChatEncoder, index: int) -> list[TokenSequence]:
    """Encode the conversation up to each labeled reply; only its last token counts as sampled.

    Raises:
        BadRow: see `encode_messages`.
    """
    found: list[TokenSequence] = []
    labels, shown = iter(row.labels), 0
    for number, message in enumerate(row.messages):
        shown += len(message.images)
        if message.role != "assistant":
            continue
        read = encode_messages(
            row.messages[: number + 1], row.images[:shown], encoder, index, row.tools
        )
        last = _with_sampled(read, read.sampled_positions[-1:], read.turns[-1:])
        found.append(_with_fields(LabeledSequence, last, label=next(labels)))
    return found


def _with_fields(cls: type[T], sequence: TokenSequence, **more: Any) -> T:
    """Return the same tokens as a sequence of a class with additional fields."""
    fields = {name: getattr(sequence, name) for name in TokenSequence.__dataclass_fields__}
    return cls(**fields, **more)


def _with_sampled(
    sequence: TokenSequence, positions: tuple[int, ...], turns: tuple[int, ...]
) -> TokenSequence:
    """Return the same tokens; only these positions count as sampled."""
    zeros = (0,) * len(positions)
    return replace(
        sequence,
        sampled_positions=positions,
        turns=turns,
        logprobs=tuple(map(float, zeros)),
        versions=zeros,
    )


class OfflineDataset:
    """Examples in a seeded order that differs in each epoch.

    Examples are encoded when they are drawn, because images take memory.

    Args:
        rows: the examples.
        indices: indices of the examples to use.
        encoder: the model's encoder.
        encode: converts an example to token sequences.
        seed: random seed of the order.
    """

    def __init__(
        self, rows: Rows, indices: Sequence[int], encoder: ChatEncoder, encode: Encode, seed: int
    ) -> None:
        self._rows, self._indices, self._seed = rows, indices, seed
        self._encoder, self._encode = encoder, encode

    def __len__(self) -> int:
        return len(self._indices)

    def sequences(self, start: int, end: int) -> list[TokenSequence]:
        """Return the examples in a range of positions; positions continue into later epochs.

        The order depends only on the seed, so a resumed job need not store its position.
        """
        count = len(self)
        chosen = []
        for position in range(start, end):
            epoch, at = divmod(position, count)
            order = np.random.default_rng((self._seed, epoch)).permutation(count)
            chosen.append(self._indices[int(order[at])])
        return self._encoded(chosen)

    def batches(self, size: int) -> Iterator[list[TokenSequence]]:
        """Yield all examples once, in batches."""
        for at in range(0, len(self), size):
            yield self._encoded(self._indices[at : at + size])

    def _encoded(self, chosen: Sequence[int]) -> list[TokenSequence]:
        return [
            sequence
            for number, index in enumerate(chosen)
            for sequence in self._encode(self._rows[index], self._encoder, number)
        ]

    def drop_unusable(self, settings: FinetuningConfig, section: str) -> None:
        """Drop examples that are too long, or that the model's chat format cannot express.

        Raises:
            ConfigError: such examples may not be skipped, or no other examples are left.
        """
        bad, long, limit = dict[str, str](), dict[str, str](), settings.max_tokens
        kept = []
        for index in sorted(self._indices):
            try:
                found = self._encode(self._rows[index], self._encoder, 0)
            except BadRow as error:
                bad[self._rows.name(index)] = str(error)
                continue
            tokens = max(len(sequence.token_ids) for sequence in found)
            if tokens > limit:
                why = f"{tokens} tokens, above {section}.max_tokens={limit}"
                long[self._rows.name(index)] = why
            else:
                kept.append(index)
        title, count, usable = self._rows.title, len(self), {*kept}
        report_bad_rows(title, bad, count, settings.on_bad, f"{section}.on_bad")
        report_bad_rows(title, long, count, settings.on_long, f"{section}.on_long")
        if count and not usable:
            raise ConfigError(f"data={title}: no usable examples are left")
        self._indices = [index for index in self._indices if index in usable]
