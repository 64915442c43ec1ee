"""Rows for supervised learning and for preferences: conversations, and answers compared."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

from agentrl.data.chat_messages import ChatMessage, read_conversation
from agentrl.data.dataset import report_bad_rows
from agentrl.data.image_loading import ImageError, load_image
from agentrl.data.row_columns import cell, check_has_rows, has_column
from agentrl.data.tables import BadRow, Row, Table
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean, list_names
from agentrl.types import IMAGE

_ROLES = ("system", "user", "assistant", "tool")
_MESSAGES = ("messages", "conversations", "conversation", "message")
_IMAGES = ("images", "image")


@dataclass(slots=True, kw_only=True, frozen=True)
class ConversationRow:
    """A conversation to learn from: the replies of the assistant."""

    messages: tuple[ChatMessage, ...]
    images: tuple[Any, ...]
    """One for each `<image>` in the messages, in order."""


@dataclass(slots=True, kw_only=True, frozen=True)
class LabeledRow(ConversationRow):
    """A conversation with a label for each reply of the assistant."""

    labels: tuple[float, ...]
    """From 0 (bad) to 1 (good)."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Preference:
    """Two answers to one prompt, of which the first is better."""

    prompt: tuple[ChatMessage, ...]
    """Empty if both conversations differ from the start."""
    chosen: tuple[ChatMessage, ...]
    """May go on with what the user says to a reply, and so on."""
    rejected: tuple[ChatMessage, ...]
    images: tuple[Any, ...]
    """One for each `<image>` in the prompt, in order."""
    chosen_images: tuple[Any, ...]
    """Of messages after the prompt."""
    rejected_images: tuple[Any, ...]


T_co = TypeVar("T_co", bound=ConversationRow | Preference, covariant=True)


class ChatRows(Generic[T_co]):
    """The valid rows of a table, with decoded images; every row and image is checked first.

    Args:
        table: of rows.
        name: of the data, for messages; kept as `title`.
        parse: `read_chat`, `read_labeled` or `read_preference`.
        image_root: the folder that must contain all image paths; None for the table's own.
        on_bad: `refuse` or `skip`.

    Raises:
        ConfigError: a column is missing, rows are bad and may not be skipped, or none is left.
    """

    def __init__(
        self,
        table: Table,
        name: str,
        parse: Callable[[Row], T_co],
        *,
        image_root: Path | None = None,
        on_bad: str = "refuse",
    ) -> None:
        _check_columns(table, name, parse)
        self.title = name
        self._table = table
        self._parse: Callable[[Row], T_co] = parse
        self._root = (image_root or table.root).absolute()
        bad: dict[str, str] = {}
        self._kept: list[int] = []
        for index in range(len(table)):
            try:
                self._read(index)
                self._kept.append(index)
            except (BadRow, ImageError) as error:
                bad[table.name(index)] = str(error)
        report_bad_rows(name, bad, len(table), on_bad)

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: int) -> T_co:
        return self._read(self._kept[index])

    def __iter__(self) -> Iterator[T_co]:
        return map(self._read, self._kept)

    def name(self, index: int) -> str:
        """Where a user would look for a row, such as `line 3`."""
        return self._table.name(self._kept[index])

    def _read(self, index: int) -> T_co:
        row = self._parse(self._table.row(index))
        loaded: dict[str, Any] = {
            name: tuple(load_image(image, self._root) for image in getattr(row, name))
            for name in ("images", "chosen_images", "rejected_images")
            if hasattr(row, name)
        }
        return replace(row, **loaded)


def _check_columns(table: Table, name: str, parse: Callable[[Row], Any]) -> None:
    check_has_rows(table, name)
    have = list(table.columns)
    needed: list[tuple[str, ...]] = [_MESSAGES]
    if parse is read_preference:
        needed = [("chosen",), ("rejected",)]
    elif parse is read_labeled:
        needed = [_MESSAGES, ("labels",)]
    for names in needed:
        if not any(has_column(table, known) for known in names):
            near = (hint for known in names if (hint := did_you_mean(known, have)))
            raise ConfigError(
                f"data={name}: no column is named {' or '.join(names)}{next(near, '')}. "
                f"It has: {list_names(have)}"
            )


def read_chat(row: Row) -> ConversationRow:
    """A row with `messages` (TRL, ms-swift, LLaMA-Factory), or ShareGPT's `conversations`.

    Raises:
        BadRow: it is not a conversation, there is no answer, or images are missing.
    """
    messages = read_conversation(_first(row, _MESSAGES))
    check_roles(messages)
    if all(message.role != "assistant" for message in messages):
        raise BadRow("it has no assistant message to train on")
    return ConversationRow(**with_images(messages, _column_images(row)))


def read_labeled(row: Row) -> LabeledRow:
    """A conversation as `read_chat` takes it, with `labels`, one for each reply.

    Raises:
        BadRow: see `read_chat`; or labels are missing, or not from 0 to 1.
    """
    chat, labels = read_chat(row), row.get("labels")
    replies = sum(message.role == "assistant" for message in chat.messages)
    if not isinstance(labels, list | tuple) or len(labels) != replies:
        raise BadRow(f"labels={labels!r:.60} must be a list of {replies}, one for each reply")
    if not all(isinstance(label, bool | int | float) and 0 <= label <= 1 for label in labels):
        raise BadRow(f"labels={labels!r:.60} must be true or false, or numbers from 0 to 1")
    return LabeledRow(messages=chat.messages, images=chat.images, labels=tuple(map(float, labels)))


def read_preference(row: Row) -> Preference:
    """A row with `chosen` and `rejected`, as text or messages, and often a `prompt`.

    Without a prompt, the messages that both conversations begin with are the prompt. Images of
    later messages are in `chosen_images` and `rejected_images`, or parts of the messages.

    Raises:
        BadRow: an answer is missing or both are equal, or images are missing.
    """
    prompt = _as_messages(row.get("prompt"), "user") if row.get("prompt") else []
    chosen, rejected = (_as_messages(row.get(name), "assistant") for name in ("chosen", "rejected"))
    if not prompt:
        shared = 0
        while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
            shared += 1
        prompt, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
    elif chosen[: len(prompt)] == rejected[: len(prompt)] == prompt:  # repeated in both
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    if not chosen or not rejected or chosen == rejected:
        raise BadRow("chosen and rejected must be two different answers")
    for messages in (prompt, chosen, rejected):
        check_roles(messages)
    asked = with_images(prompt, _column_images(row))
    better, worse = (
        with_images(messages, _as_list(row.get(f"{name}_images")))
        for name, messages in (("chosen", chosen), ("rejected", rejected))
    )
    return Preference(
        prompt=asked["messages"],
        images=asked["images"],
        chosen=better["messages"],
        chosen_images=better["images"],
        rejected=worse["messages"],
        rejected_images=worse["images"],
    )


def alternating(messages: Sequence[ChatMessage]) -> tuple[str, list[ChatMessage]]:
    """The system message, and the others as questions and replies in turns.

    Messages of the same role that follow each other are joined.

    Raises:
        BadRow: two messages of different roles precede a reply, or none does.
    """
    joined: list[ChatMessage] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = ChatMessage(
                role=message.role,
                text=f"{joined[-1].text}\n\n{message.text}",
                images=(*joined[-1].images, *message.images),
            )
        else:
            joined.append(message)
    system = joined.pop(0).text if joined and joined[0].role == "system" else ""
    roles = [message.role for message in joined]
    if "system" in roles:
        raise BadRow("a system message must come first")
    if roles[:1] == ["assistant"]:
        raise BadRow("it begins with an assistant message")
    for role, following in pairwise(roles):
        if (role == "assistant") == (following == "assistant"):
            raise BadRow(f"a {following} message follows a {role} message")
    if any(message.images for message in joined if message.role == "assistant"):
        raise BadRow("a reply has images, which a model cannot write")
    return system, joined


def _first(row: Row, names: Sequence[str]) -> Any:
    return next((value for name in names if (value := cell(row, name)) is not None), None)


def _as_messages(value: Any, role: str) -> list[ChatMessage]:
    """Messages as they are; text as one message of a role."""
    return read_conversation(
        [{"role": role, "content": value}] if isinstance(value, str) else value
    )


def check_roles(messages: Sequence[ChatMessage]) -> None:
    """Raise `BadRow` at the first message of an unknown role."""
    for message in messages:
        if message.role not in _ROLES:
            raise BadRow(f"a message has the role {message.role!r}; known: {', '.join(_ROLES)}")


def _column_images(row: Row) -> list[Any]:
    return _as_list(_first(row, _IMAGES))


def _as_list(held: Any) -> list[Any]:
    if held is None:
        return []
    return list(held) if isinstance(held, list | tuple) else [held]


def with_images(messages: Sequence[ChatMessage], column: Sequence[Any]) -> dict[str, Any]:
    """The messages with all images: those inside of parts, else those of the column.

    If the text has no `<image>`, the column's images come first in the first user message.
    """
    inside = [image for message in messages for image in message.images]
    given = [image for image in inside if image is not None]
    if given and column:
        raise BadRow("it has images both in its messages and in a separate column")
    images = given or list(column)
    if not inside and images:
        first = next((n for n, message in enumerate(messages) if message.role == "user"), 0)
        marked = replace(
            messages[first],
            text=IMAGE * len(images) + messages[first].text,
            images=(None,) * len(images),
        )
        messages = [*messages[:first], marked, *messages[first + 1 :]]
    elif len(inside) != len(images):
        raise BadRow(f"it has {len(inside)} {IMAGE} placeholders for {len(images)} images")
    return {"messages": tuple(messages), "images": tuple(images)}
