"""Read rows with replies to learn or answers to compare; all are checked before training."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from agentrl.data.chat_messages import (
    ChatMessage,
    check_roles,
    history_messages,
    read_conversation,
    with_images,
)
from agentrl.data.image_loading import ImageError, load_image
from agentrl.data.row_columns import (
    cell,
    check_column,
    check_has_rows,
    has_column,
    report_bad_rows,
)
from agentrl.data.tables import BadRow, Row, Table
from agentrl.errors import ConfigError
from agentrl.text.formatting import quoted
from agentrl.text.name_suggestions import did_you_mean, list_names

_NO_KEYS: Mapping[str, str] = {}
CHAT_KEYS = {
    "messages": ("messages", "conversations", "conversation", "message"),
    "system": ("system",),
    "tools": ("tools",),
    "images": ("images", "image"),
    "prompt": ("prompt", "instruction", "question", "problem", "input"),
    "context": ("input",),
    "history": ("history",),
    "completion": ("completion", "output", "response", "answer", "solution"),
    "thinking": ("thinking",),
    "text": ("text",),
    "labels": ("labels",),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "margin": ("margin",),
}
"""Default columns by content; the first one that is not empty in a row is used. `a.b` is the key b
of the objects in column a. By default, `context` is read only with an `instruction` (Alpaca)."""
# Columns that rate single answers in LLaMA-Factory and TRL.
_UNPAIRED = ("kto_tag", "label")


@dataclass(slots=True, kw_only=True, frozen=True)
class ConversationRow:
    """A conversation whose assistant replies are learned."""

    messages: tuple[ChatMessage, ...]
    images: tuple[Any, ...]
    """Images, one for each `<image>` in the messages, in order."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Definitions of functions, for the system message."""
    prompt_length: int = 0
    """Number of messages at the start whose replies are not learned."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TextRow:
    """A text that is learned as a whole, such as a conversation with its special tokens."""

    text: str


@dataclass(slots=True, kw_only=True, frozen=True)
class LabeledRow(ConversationRow):
    """A conversation with a label for each assistant reply."""

    labels: tuple[float, ...]
    """Labels from 0 (bad) to 1 (good)."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Preference:
    """Two answers to a prompt: the chosen, better answer and the rejected one."""

    prompt: tuple[ChatMessage, ...]
    """Common start of both conversations; empty if they differ from the first message."""
    chosen: tuple[ChatMessage, ...]
    """The better answer; may continue with further user messages and replies."""
    rejected: tuple[ChatMessage, ...]
    images: tuple[Any, ...]
    """Images, one for each `<image>` in the prompt, in order."""
    chosen_images: tuple[Any, ...]
    """Images of the messages after the prompt."""
    rejected_images: tuple[Any, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Definitions of functions, for the system message."""
    margin: float = 0.0
    """Margin by which the better answer's reward should exceed the other's."""


OfflineRow = ConversationRow | TextRow | Preference
T_co = TypeVar("T_co", bound=OfflineRow, covariant=True)


class ReadRow(Protocol[T_co]):
    """`read_chat`, `read_labeled` or `read_preference`."""

    def __call__(self, row: Row, keys: Mapping[str, str] = ...) -> T_co:
        """Read a row. `keys` maps contents to column names that differ from `CHAT_KEYS`.

        Raises:
            BadRow: the row is incomplete or invalid.
        """


def read_chat(row: Row, keys: Mapping[str, str] = _NO_KEYS) -> ConversationRow | TextRow:
    """Read a row whose replies are learned: messages, a prompt and its completion, or a text.

    Messages may be in the format of TRL, ms-swift and LLaMA-Factory (`messages`) or ShareGPT
    (`conversations`). A prompt and a completion, as text or messages, may be in the format of TRL,
    OpenRLHF (`input`, `output`), Alpaca (`instruction`, `input`, `output`, `history`) or R1-V
    (`problem`, `thinking`, `solution`). Replies in a `prompt` are not learned.

    Raises:
        BadRow: the row has none of these, there is no answer, or images are missing.
    """
    asked: list[ChatMessage] = []
    if (value := _cell(row, keys, "messages")) is not None:
        answer = _with_system(read_conversation(value), row, keys)
    elif (value := _cell(row, keys, "completion")) is not None:
        # Join thinking and solution as R1-V does.
        if isinstance(value, str) and (thinking := _cell(row, keys, "thinking")):
            value = f"{thinking}\n\n{value}"
        answer = _as_messages(value, "assistant")
        asked = _read_prompt(row, keys)
        if pairs := _cell(row, keys, "history"):
            history = read_conversation(history_messages(pairs))
            asked, answer = [], [*asked[:-1], *history, *asked[-1:], *answer]
    elif (value := _cell(row, keys, "text")) is not None:
        if not isinstance(value, str) or not value.strip():
            raise BadRow(f"its text must be a string that is not empty, not {quoted(value)}")
        return TextRow(text=value)
    else:
        raise BadRow("it has no messages, no prompt with a completion, and no text")
    messages = [*asked, *answer]
    check_roles(messages)
    if all(message.role != "assistant" for message in answer):
        raise BadRow("it has no assistant message to train on")
    return ConversationRow(
        **with_images(messages, _as_list(_cell(row, keys, "images"))),
        tools=_read_tools(row, keys),
        prompt_length=len(asked),
    )


def read_labeled(row: Row, keys: Mapping[str, str] = _NO_KEYS) -> LabeledRow:
    """Read a conversation as `read_chat` does, with one of the `labels` for each reply.

    Raises:
        BadRow: as in `read_chat`; or labels are missing or not from 0 to 1.
    """
    chat, labels = read_chat(row, keys), _cell(row, keys, "labels")
    if isinstance(chat, TextRow):
        raise BadRow("it has no messages")
    replies = sum(message.role == "assistant" for message in chat.messages)
    if not isinstance(labels, list | tuple) or len(labels) != replies:
        raise BadRow(f"labels={labels!r:.60} must be a list of {replies}, one label per reply")
    if not all(isinstance(label, bool | int | float) and 0 <= label <= 1 for label in labels):
        raise BadRow(f"labels={labels!r:.60} must be true or false, or numbers from 0 to 1")
    return LabeledRow(
        messages=chat.messages,
        images=chat.images,
        tools=chat.tools,
        labels=tuple(map(float, labels)),
    )


def read_preference(row: Row, keys: Mapping[str, str] = _NO_KEYS) -> Preference:
    """Read a row with `chosen` and `rejected`, as text or messages, and optionally a prompt.

    The prompt is text or messages (`prompt`, or LLaMA-Factory's `conversations`). If it is missing,
    the prompt is the messages that both answers begin with. Images of later messages are in
    `chosen_images` and `rejected_images`, or in parts of the messages.

    Raises:
        BadRow: an answer is missing, both answers are equal, or images are missing.
    """
    chosen, rejected = (
        _as_messages(_cell(row, keys, name), "assistant") for name in ("chosen", "rejected")
    )
    value = _cell(row, keys, "messages")
    prompt = [] if value is None else read_conversation(value)
    # Messages that end with a reply contain an answer, so they are not a prompt.
    if prompt and prompt[-1].role != "assistant":
        prompt = _with_system(prompt, row, keys)
    else:
        prompt = _read_prompt(row, keys) if _cell(row, keys, "prompt") else []
    if not prompt:
        shared = 0
        while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
            shared += 1
        prompt, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
    # Data sets such as ultrafeedback_binarized repeat the prompt in both answers.
    elif chosen[: len(prompt)] == rejected[: len(prompt)] == prompt:
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    if not chosen or not rejected or chosen == rejected:
        raise BadRow("chosen and rejected must be two different answers")
    for messages in (prompt, chosen, rejected):
        check_roles(messages)
    asked = with_images(prompt, _as_list(_cell(row, keys, "images")))
    better, worse = (
        with_images(messages, _as_list(row.get(f"{name}_images")))
        for name, messages in (("chosen", chosen), ("rejected", rejected))
    )
    margin = 0.0 if (given := _cell(row, keys, "margin")) is None else given
    # A bool is an int in Python, but not a margin.
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not isfinite(margin):
        raise BadRow(f"its margin must be a number, not {quoted(margin)}")
    return Preference(
        prompt=asked["messages"],
        images=asked["images"],
        chosen=better["messages"],
        chosen_images=better["images"],
        rejected=worse["messages"],
        rejected_images=worse["images"],
        tools=_read_tools(row, keys),
        margin=float(margin),
    )


FORMS: dict[Any, tuple[tuple[str, ...], ...]] = {
    read_chat: (("messages",), ("prompt", "completion"), ("text",)),
    read_labeled: (("messages", "labels"), ("prompt", "completion", "labels")),
    read_preference: (("chosen", "rejected"),),
}
"""Contents that each function needs, for each form of row that it reads."""


class OfflineRows(Generic[T_co]):
    """Valid rows of a table, with decoded images. Every row and image is checked up front.

    Args:
        table: table with the rows.
        name: name of the data, for messages; kept as `title`.
        read: `read_chat`, `read_labeled` or `read_preference`.
        keys: see `ReadRow`.
        image_root: folder that must contain all image paths; None uses the table's root.
        on_bad: `refuse` or `skip`.

    Raises:
        ConfigError: a column is missing, rows are bad and may not be skipped, or no rows are left.
    """

    def __init__(
        self,
        table: Table,
        name: str,
        read: ReadRow[T_co],
        *,
        keys: Mapping[str, str] | None = None,
        image_root: Path | None = None,
        on_bad: str = "refuse",
    ) -> None:
        self.title, self._table, self._read_row = name, table, read
        self._keys, self._root = dict(keys or {}), (image_root or table.root).absolute()
        _check_columns(table, name, read, self._keys)
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

    def has(self, content: str) -> bool:
        """Return whether the table has a column with a content of `CHAT_KEYS`."""
        return _finds(self._table, self._keys, content)

    def name(self, index: int) -> str:
        """Return a row's location in terms that users know, such as `line 3`."""
        return self._table.name(self._kept[index])

    def _read(self, index: int) -> T_co:
        row = self._read_row(self._table.row(index), self._keys)
        loaded: dict[str, Any] = {
            name: tuple(load_image(image, self._root) for image in getattr(row, name))
            for name in ("images", "chosen_images", "rejected_images")
            if hasattr(row, name)
        }
        return replace(row, **loaded)


def _check_columns(table: Table, name: str, read: ReadRow[Any], keys: Mapping[str, str]) -> None:
    """Check that a table has the columns of a form that `read` accepts."""
    check_has_rows(table, name)
    for content, column in keys.items():
        if content not in CHAT_KEYS:
            raise ConfigError(f"keys.{content}: must be one of {', '.join(CHAT_KEYS)}")
        check_column(table, name, f"keys.{content}", column)
    have = list(table.columns)
    forms = FORMS[read]
    if any(all(_finds(table, keys, content) for content in form) for form in forms):
        return
    if read is read_preference and (tag := next(filter(have.count, _UNPAIRED), None)):
        raise ConfigError(
            f"data={name}: column {tag} rates single answers (KTO), but pairs are required: give "
            "a chosen and a rejected answer to each prompt. To learn from single answers with "
            "labels, set reward_model.per_turn=true"
        )
    known = [column for form in forms for content in form for column in CHAT_KEYS[content]]
    near = next((hint for column in known if (hint := did_you_mean(column, have))), "")
    wanted = ", or ".join(
        " and ".join(" or ".join(CHAT_KEYS[content]) for content in form) for form in forms
    )
    raise ConfigError(
        f"data={name}: no column is named {wanted}{near}; set the column names with "
        f"keys={{{forms[0][0]}: ...}}. The data has: {list_names(have)}"
    )


def _finds(table: Table, keys: Mapping[str, str], content: str) -> bool:
    return content in keys or any(has_column(table, name) for name in CHAT_KEYS[content])


def _read_prompt(row: Row, keys: Mapping[str, str]) -> list[ChatMessage]:
    prompt = _cell(row, keys, "prompt")
    context = _cell(row, keys, "context") if "context" in keys or row.get("instruction") else None
    # Append Alpaca's `input` to its `instruction`, as LLaMA-Factory does.
    if isinstance(prompt, str) and isinstance(context, str) and context.strip():
        prompt = f"{prompt}\n{context}"
    if not prompt:
        raise BadRow("its prompt is empty")
    return _with_system(_as_messages(prompt, "user"), row, keys)


def _with_system(
    messages: list[ChatMessage], row: Row, keys: Mapping[str, str]
) -> list[ChatMessage]:
    """Prepend a system message that is in a separate column."""
    text = _cell(row, keys, "system")
    if not text:
        return messages
    system = ChatMessage(role="system", text=str(text), images=())
    if messages and messages[0].role == "system":
        if messages[0].text != system.text:
            raise BadRow("the system message in its messages differs from the one in a column")
        return messages
    return [system, *messages]


def _read_tools(row: Row, keys: Mapping[str, str]) -> tuple[Mapping[str, Any], ...]:
    tools = _cell(row, keys, "tools")
    if isinstance(tools, str) and tools.strip():
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise BadRow(f"its tools are not valid JSON: {error}") from None
    found = _as_list(tools or None)
    if not all(isinstance(tool, Mapping) for tool in found):
        raise BadRow(f"its tools must be a list of objects, not {quoted(tools)}")
    # Convert to OpenAI's format, since LLaMA-Factory's JSON text has only the functions.
    return tuple(
        tool if "function" in tool else {"type": "function", "function": tool} for tool in found
    )


def _cell(row: Row, keys: Mapping[str, str], content: str) -> Any:
    names = (keys[content],) if content in keys else CHAT_KEYS[content]
    return next((value for name in names if (value := cell(row, name)) is not None), None)


def _as_messages(value: Any, role: str) -> list[ChatMessage]:
    """Return messages unchanged; wrap text in a message of the given role."""
    return read_conversation(
        [{"role": role, "content": value}] if isinstance(value, str) else value
    )


def _as_list(held: Any) -> list[Any]:
    if held is None:
        return []
    return list(held) if isinstance(held, list | tuple) else [held]
