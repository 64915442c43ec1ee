"""Find the columns that make up a question, and check that none is ignored by mistake."""

import contextlib
import io
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import PIL.Image

from agentrl.data.chat_messages import history_messages
from agentrl.data.image_loading import is_data_uri
from agentrl.data.row_columns import (
    cell,
    check_column,
    check_has_rows,
    first_rows,
    has_column,
    numbered_image_columns,
)
from agentrl.data.tables import BadRow, Row, Table
from agentrl.errors import ConfigError
from agentrl.text.formatting import quoted
from agentrl.text.name_suggestions import did_you_mean, list_names

KEYS = {
    "problem": ("problem", "question", "prompt", "instruction", "input"),
    "answer": (
        "reward_model.ground_truth",
        "answer",
        "solution",
        "label",
        "ground_truth",
        "output",
    ),
    "images": ("images", "image"),
    "options": ("options", "choices"),
    "messages": ("messages", "message", "conversations"),
    "system": ("system", "system_prompt"),
    "videos": ("videos", "video"),
    "audios": ("audios", "audio"),
}
"""Default column names; `a.b` is the key b of the objects in column a."""
_ALPACA = ("instruction", "input", "history")
# Kinds of content that are never shown to a model.
_UNSEEN = ("videos", "audios")
_FILES = {
    "images": re.compile(r"[^\n]{1,500}\.(png|jpe?g|webp|gif|bmp|tiff?)", re.ASCII | re.IGNORECASE),
    "videos": re.compile(r"[^\n]{1,500}\.(mp4|avi|mov|mkv|webm)", re.ASCII | re.IGNORECASE),
    "audios": re.compile(r"[^\n]{1,500}\.(wav|mp3|flac|ogg|m4a)", re.ASCII | re.IGNORECASE),
}
# The start of PNG, JPEG, GIF and WEBP files in base64.
_BASE64_IMAGES = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
# Minimum characters of an image in base64.
_LONG = 100


def find_columns(
    table: Table,
    name: str,
    keys: Mapping[str, str | None],
    *,
    needs_answer: bool = True,
    rendered: Collection[str] = (),
) -> dict[str, str]:
    """Find the column for each kind of content in the table.

    Messages take precedence over a text, unless `keys` names only the text. If there is no other
    column for images, they are in `image_1`, `image_2`, ...

    Args:
        table: table with the rows.
        name: name of the data, for messages.
        keys: column names by content, where they differ from `KEYS`; None for no column.
        needs_answer: whether rows must have answers.
        rendered: columns that a template writes into the question.

    Raises:
        ConfigError: a column is missing, or a column with images, messages, videos or sound would
            be ignored.
    """
    check_has_rows(table, name)
    _check_keys(table, name, keys)
    rows = list(first_rows(table))
    columns: dict[str, str] = {}
    for content, names in KEYS.items():
        there = [name for name in names if has_column(table, name)]
        # `images` and `image` may both exist, with one of them empty in every row.
        if content == "images":
            there.sort(key=lambda n: all(_is_empty(row.get(n)) for row in rows))
        found = keys[content] if content in keys else next(iter(there), None)
        if found is not None:
            columns[content] = found
    if "problem" in columns and "messages" in columns:
        wins = _has_conversation(columns["messages"], keys, rows)
        del columns["problem" if wins else "messages"]
    if "system" not in keys and columns.get("system") in rendered:
        del columns["system"]
    have = list(table.columns)
    if "problem" not in columns and "messages" not in columns:
        raise _missing(name, "question", "problem", _any_of("problem", "messages"), have)
    if needs_answer and "answer" not in columns and "messages" not in columns:
        raise _missing(name, "answer", "answer", _any_of("answer"), have)
    for column in _unused(table, columns, rendered):
        if lost := _what_is_lost(column, (row.get(column) for row in rows), keys, columns):
            raise ConfigError(f"data={name}: {lost}")
    return columns


def unfilled_columns(
    table: Table, columns: Mapping[str, str], rendered: Collection[str]
) -> tuple[str, ...]:
    """Return unused columns that are empty in the first rows; see `check_unfilled`."""
    rows = list(first_rows(table))
    unused = _unused(table, columns, rendered)
    return tuple(name for name in unused if all(_is_empty(row.get(name)) for row in rows))


def check_unfilled(
    row: Row, unfilled: Collection[str], keys: Mapping[str, str | None], columns: Mapping[str, str]
) -> None:
    """Check that a question does not ignore content in one of `unfilled_columns`."""
    for column in unfilled:
        if lost := _what_is_lost(column, [row.get(column)], keys, columns):
            raise BadRow(lost)


def _check_keys(table: Table, name: str, keys: Mapping[str, str | None]) -> None:
    for content, column in keys.items():
        if content not in KEYS:
            raise ConfigError(f"keys.{content}: must be one of {', '.join(KEYS)}")
        if column is not None:
            check_column(table, name, f"keys.{content}", column)
    if keys.get("problem") and keys.get("messages"):
        raise ConfigError(
            f"keys.problem={keys['problem']} and keys.messages={keys['messages']} exclude each "
            "other, since a question is either text or messages; remove one of them"
        )


def _has_conversation(column: str, keys: Mapping[str, str | None], rows: Iterable[Row]) -> bool:
    """Return whether the question is in a column of messages rather than a column of text."""
    if keys.get("messages") or keys.get("problem"):
        return bool(keys.get("messages"))
    return _content(cell(row, column) for row in rows) == "messages"


def _missing(name: str, what: str, content: str, names: str, have: Sequence[str]) -> ConfigError:
    near = (find for known in KEYS[content] if (find := did_you_mean(known, have)))
    without = ", or set grade=none if rewards need no answer" if content == "answer" else ""
    return ConfigError(
        f"data={name}: no column is named {names}{next(near, '')}; name the column with the {what} "
        f"in keys={{{content}: ...}}{without}. The data has: {list_names(have)}"
    )


def _any_of(*contents: str) -> str:
    names = [name for content in contents for name in KEYS[content]]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _unused(table: Table, columns: Mapping[str, str], rendered: Collection[str]) -> tuple[str, ...]:
    """Return the columns that are not part of a question."""
    used = {*columns.values(), *rendered}
    if "images" not in columns:
        used |= set(numbered_image_columns(table).values())
    used |= {column.partition(".")[0] for column in used}
    return tuple(column for column in table.columns if column not in used)


def _what_is_lost(
    column: str, cells: Iterable[Any], keys: Mapping[str, str | None], columns: Mapping[str, str]
) -> str | None:
    """Describe the non-text content of an unused column, unless `keys` decides what to use."""
    content = _content(cells)
    if content is None or content in keys or (content == "messages" and "problem" in keys):
        return None
    if content in _UNSEEN:
        return (
            f"column {column} contains {content}, which cannot be shown to a model. To train "
            f"without them, set keys={{{content}: null}}"
        )
    chosen = "problem" if content == "messages" and "problem" in columns else content
    return (
        f"column {column} contains {content}, but the questions do not use it. Use it with "
        f"keys={{{content}: {column}}}, or ignore it with "
        f"keys={{{chosen}: {columns.get(chosen, 'null')}}}; with agentrl infer, pass "
        f"--key {content}={column}"
    )


def _content(cells: Iterable[Any]) -> str | None:
    """Return the kind of content of all filled cells; None if they differ or have text."""
    found = {_kind(value) for value in cells if not _is_empty(value)}
    return found.pop() if len(found) == 1 else None


def _is_empty(value: Any) -> bool:
    """Return whether a cell has no value; arrays, which have no truth value, count as filled."""
    return value is None or (isinstance(value, str | list | tuple) and value in ("", "[]", [], ()))


def _kind(value: Any) -> str | None:
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    values = value if isinstance(value, list | tuple) else [value]
    if values and all(_is_message(one) for one in values):
        return "messages"
    kinds = {_media(one) for one in values}
    return kinds.pop() if len(kinds) == 1 else None


def is_conversation(text: str) -> bool:
    """Return whether a text is a JSON list of messages."""
    return text.lstrip()[:1] == "[" and _kind(text) == "messages"


def _is_message(value: Any) -> bool:
    forms = ({"role", "content"}, {"from", "value"})
    return isinstance(value, Mapping) and any(form <= value.keys() for form in forms)


def _media(value: Any) -> str | None:
    """Return whether a value is, or names a file with, an image, a video or sound."""
    if isinstance(value, PIL.Image.Image) or is_data_uri(value):
        return "images"
    if isinstance(value, Mapping):
        return _media(value.get("bytes")) or _media(value.get("path"))
    if isinstance(value, bytes):
        # A decoder may raise any exception on arbitrary data.
        with contextlib.suppress(Exception):
            PIL.Image.open(io.BytesIO(value), formats=("PNG", "JPEG", "WEBP", "GIF", "BMP")).close()
            return "images"
        return None
    if not isinstance(value, str):
        return None
    if len(value) > _LONG and value.startswith(_BASE64_IMAGES):
        return "images"
    return next((kind for kind, name in _FILES.items() if name.fullmatch(value)), None)


def question_text(row: Row, columns: Mapping[str, str]) -> Any:
    """Return the cell with a row's question; for Alpaca, the instruction and its input.

    With earlier turns in Alpaca's `history`, the result is a list of messages.
    """
    asked = cell(row, columns["problem"])
    instruction, input, history = _ALPACA
    if columns["problem"] != instruction:
        return asked
    text = "\n".join(part for part in (asked, row.get(input)) if part)
    if not row.get(history):
        return text
    return [*history_messages(row[history]), {"role": "user", "content": text}]


def system_message(
    row: Row, columns: Mapping[str, str], in_messages: str | None = None
) -> str | None:
    """Return a row's system message, from its messages or from a separate column.

    Args:
        row: row of the table.
        columns: see `find_columns`.
        in_messages: system message in the row's messages, possibly empty; None if it has no
            messages.

    Returns:
        The message, possibly empty; None if the row has neither messages nor a system column.
    """
    own = cell(row, columns["system"]) if "system" in columns else None
    if own is None or own == in_messages:
        return in_messages
    if not isinstance(own, str):
        raise BadRow(f"{columns['system']} must be a system message as text, not {quoted(own, 40)}")
    if own and in_messages:
        raise BadRow(
            f"it has a system message both in its messages and in column {columns['system']}"
        )
    return own or in_messages or ""


def check_can_be_shown(
    row: Row, columns: Mapping[str, str], keys: Mapping[str, str | None], text: str
) -> None:
    """Check that a row has no video or sound, unless `keys` rules these contents out."""
    for content in _UNSEEN:
        if content in keys and keys[content] is None:
            continue
        one = content.removesuffix("s")
        if f"<{one}>" in text or (content in columns and cell(row, columns[content])):
            subject = "audio" if one == "audio" else f"a {one}"
            raise BadRow(
                f"it contains {subject} (keys.{content} or <{one}>), which cannot be shown to a "
                "model; put what it shows into an image or text column"
            )
