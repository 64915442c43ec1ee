"""Read questions from the rows of a data set: messages or text, options and images."""

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Template

from agentrl.data.chat_messages import (
    ChatMessage,
    alternating,
    check_roles,
    read_conversation,
    with_images,
)
from agentrl.data.image_loading import Cell, digest_images, load_image
from agentrl.data.offline_rows import ConversationRow
from agentrl.data.prompt_templates import parse_template, template_variables
from agentrl.data.question_columns import (
    check_can_be_shown,
    check_unfilled,
    find_columns,
    is_conversation,
    question_text,
    system_message,
    unfilled_columns,
)
from agentrl.data.row_columns import cell, numbered_image_columns
from agentrl.data.tables import BadRow, Row, Table
from agentrl.errors import ConfigError, describe_error
from agentrl.text.formatting import quoted
from agentrl.types import IMAGE

_PROMPT_KEYS = ("problem", "messages", "images", "options", "system", "videos", "audios")
# Maximum number of bad rows that an error lists.
_MAX_LISTED = 5
_NUMBERED = re.compile(r"<image\s+(\d{1,3})>", re.ASCII)


@dataclass(slots=True, kw_only=True, frozen=True)
class QuestionRow:
    """The question in a row, with its images not loaded yet."""

    turns: tuple[ChatMessage, ...]
    """Alternating questions and replies, ending with the question; excludes the system message."""
    images: tuple[Any, ...]
    """Images, one for each `<image>` in the turns, in order."""
    options: tuple[str, ...]
    answer: str | None
    """The assistant's message after the question, if there is one."""
    system: str | None
    """System message in the messages, possibly empty; None if the row has text instead."""


class QuestionReader:
    """Reads the questions of one table."""

    def __init__(
        self,
        table: Table,
        name: str,
        keys: Mapping[str, str | None],
        template: str | None,
        *,
        needs_answer: bool,
    ) -> None:
        self._keys = keys
        self._template: Template | None = None
        rendered: set[str] = set()
        if template is not None:
            self._template = parse_template(template.strip(), f"template={template!r:.80}")
            rendered = template_variables(template)
        self.columns = find_columns(table, name, keys, needs_answer=needs_answer, rendered=rendered)
        """Column names by content."""
        self._unfilled = unfilled_columns(table, self.columns, rendered)
        self._numbered: Mapping[int, str] = {}
        if "images" not in self.columns and "images" not in keys:
            self._numbered = numbered_image_columns(table)

    def read(self, row: Row) -> QuestionRow:
        """Read the question of a row.

        Raises:
            BadRow: the row has no question, its images do not fit, or the template fails.
        """
        check_unfilled(row, self._unfilled, self._keys, self.columns)
        messages, has_messages = self._messages(row)
        check_roles(messages)
        roles, answers = [message.role for message in messages], list[str]()
        while messages and messages[-1].role == "assistant":
            answers.insert(0, messages.pop().text)
        if any(message.tool_calls for message in messages):
            raise BadRow("its messages have tool calls; write them as text in the messages")
        for message in messages:
            check_can_be_shown(row, self.columns, self._keys, message.text)
        numbered = {n: row[column] for n, column in self._numbered.items() if row.get(column)}
        beside = [*numbered.values(), *as_list(self.cell(row, "images"))]
        inside = [image for message in messages for image in message.images if image is not None]
        if inside and beside:
            raise BadRow(
                "it has images both in its messages and in a separate column; set "
                "keys={images: null} to ignore the column"
            )
        options = _options(self.cell(row, "options"))
        if self._template is not None:
            beside = inside or beside
            messages = self._rendered(row, messages, beside, options)
        if self._numbered:
            messages, placed = _place_numbered(messages, numbered)
            beside = placed or beside
        shown = with_images(messages, beside)
        system, turns = alternating(shown["messages"])
        if any(message.results for message in turns):
            raise BadRow("its messages have consecutive tool results; join them into one")
        if IMAGE in system:
            raise BadRow("its system message has an image, which models do not support")
        if not turns:
            raise BadRow(
                f"its messages have the roles {roles}, so none is a question. If the question is "
                "in a different column, set keys={problem: ...}"
            )
        if not turns[-1].text.strip():
            raise BadRow("its question is empty")
        return QuestionRow(
            turns=tuple(turns),
            images=shown["images"],
            options=options,
            answer="\n\n".join(answers).strip() if answers else None,
            system=system if has_messages else None,
        )

    def cell(self, row: Row, content: str) -> Any:
        """Return a row's cell with some content; None if no column has this content."""
        return cell(row, self.columns[content]) if content in self.columns else None

    def _messages(self, row: Row) -> tuple[list[ChatMessage], bool]:
        """Return a row's messages, and whether it has messages rather than text."""
        if "messages" in self.columns:
            value = self.cell(row, "messages")
        else:
            value = question_text(row, self.columns)
            if isinstance(value, str) and not is_conversation(value):
                return read_conversation([{"role": "user", "content": value}]), False
            if not isinstance(value, str | list | tuple):
                column = self.columns["problem"]
                if value is None:
                    raise BadRow(f"{column} is missing")
                raise BadRow(f"{column} must be text, not {type(value).__name__}")
        return read_conversation(value), True

    def _rendered(
        self,
        row: Row,
        messages: Sequence[ChatMessage],
        images: Sequence[Any],
        options: Sequence[str],
    ) -> list[ChatMessage]:
        """Return the messages, with the text of the only question rendered by the template."""
        asked = [number for number, message in enumerate(messages) if message.role == "user"]
        if len(asked) != 1:
            raise BadRow(f"its messages have {len(asked)} questions, but the template is for one")
        (at,) = asked
        column = self.columns.get("options")
        # Parse a list that is stored as text, because a template could not iterate over it.
        if isinstance(row.get(column or ""), str):
            row = {**row, str(column): list(options)}
        assert self._template is not None
        text = _render(self._template, row, messages[at].text, images)
        marks = (None,) * text.count(IMAGE)
        return [*messages[:at], replace(messages[at], text=text, images=marks), *messages[at + 1 :]]


class PromptRows:
    """Rows of a table, as conversations that end with a question.

    A row has messages or a text, with images inside the messages or in a separate column. An
    assistant message after the question is the row's answer and is left out.

    Args:
        table: table with the rows.
        name: name of the data, for messages.
        keys: see `find_columns`; keys for `problem`, `messages`, `images`, `options` and `system`.
        template: Jinja2 template for a question in a text column; None uses the text unchanged.
        image_root: folder that must contain all image paths; None uses the table's root.
        system: system message for conversations without one.

    Raises:
        ConfigError: a column is missing, the template is invalid, or all rows are bad.
    """

    def __init__(
        self,
        table: Table,
        name: str,
        *,
        keys: Mapping[str, str | None] | None = None,
        template: str | None = None,
        image_root: Path | None = None,
        system: str | None = None,
    ) -> None:
        for content in keys or {}:
            if content not in _PROMPT_KEYS:
                raise ConfigError(f"keys.{content}: must be one of {', '.join(_PROMPT_KEYS)}")
        self.table = table
        self._reader = QuestionReader(table, name, keys or {}, template, needs_answer=False)
        self._root = (image_root or table.root).absolute()
        self._system = system
        self.bad: dict[int, str] = {}
        """Maps the indices of rows that are not questions to the reason; images are not checked."""
        self.digest = self._examine()
        """Hash that changes with the rows and their image files."""
        if len(self.bad) == len(table):
            listed = (f"{table.name(i)}: {self.bad[i]}" for i in list(self.bad)[:_MAX_LISTED])
            raise ConfigError(f"data={name}: none of its rows has a question: {'; '.join(listed)}")

    def __len__(self) -> int:
        return len(self.table)

    def load(self, index: int) -> tuple[str, ConversationRow]:
        """Load a row's system message, and its other messages with decoded images.

        Raises:
            BadRow: the row is not a question.
            ImageError: an image cannot be loaded.
        """
        system, row = self._parse(self.table.row(index))
        images = tuple(load_image(image, self._root) for image in row.images)
        return system, replace(row, images=images)

    def _examine(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for index in range(len(self.table)):
            try:
                row = self.table.row(index)
                digest.update(json.dumps(row, default=_digest_text).encode())
                self._parse(row)
            except BadRow as error:
                self.bad[index] = str(error)
                digest.update(str(error).encode(errors="replace"))

        def images() -> Iterator[Cell]:
            for index in range(len(self.table)):
                if index not in self.bad:
                    for image in self._parse(self.table.row(index))[1].images:
                        yield index, image

        return f"{digest.hexdigest()}{digest_images(images(), self._root)}"

    def _parse(self, row: Row) -> tuple[str, ConversationRow]:
        question = self._reader.read(row)
        system = system_message(row, self._reader.columns, question.system) or self._system or ""
        return system, ConversationRow(messages=question.turns, images=question.images)


def _digest_text(value: Any) -> str:
    """Return a text to hash in place of a value that JSON cannot represent."""
    if isinstance(value, bytes | bytearray | memoryview):
        return hashlib.blake2b(value, digest_size=16).hexdigest()
    return str(value)


def _render(template: Template, row: Row, problem: str, images: Sequence[Any]) -> str:
    """Render a question's text from a template with the row's columns."""
    # Other trainers' templates use the names `content`, `prompt` and `images`.
    names = {"content": problem, **row, "images": images, "problem": problem}
    if not isinstance(names.get("prompt"), str):
        names["prompt"] = problem
    try:
        return str(template.render(names))
    # A template is code and may raise anything.
    except Exception as error:
        raise BadRow(f"the template fails: {describe_error(error)}") from error


def as_list(value: Any) -> list[Any]:
    """Return the values in a cell; a list may be stored as text, in JSON or as Python's repr."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _list_in(value)
    return list(value) if isinstance(value, list | tuple) else [value]


def _list_in(text: str) -> list[Any]:
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list):
            return found
    raise BadRow(f"{quoted(text)} is not a list in JSON or Python syntax")


def _options(value: Any) -> tuple[str, ...]:
    """Read the options in a cell, A first: a list, or a mapping from letters."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadRow(f"its options {quoted(value)} are not valid JSON") from None
    if isinstance(value, Mapping):
        value = _in_order(value)
    options = as_list(value)
    if len(options) == 1 and options[0] is value:
        raise BadRow(f"its options must be a list or {{A: ..., B: ...}}, not {quoted(value)}")
    for option in options:
        if option is None:
            raise BadRow("an option is missing")
        if not isinstance(option, str | int | float):
            raise BadRow(f"an option must be text, not {type(option).__name__}")
    return tuple(map(str, options))


def _in_order(options: Mapping[Any, Any]) -> list[Any]:
    """Order the options of a mapping from letters; Parquet stores missing options as null."""
    given = {str(key).upper(): value for key, value in options.items() if value is not None}
    letters = [chr(ord("A") + index) for index in range(len(given))]
    if sorted(given) != letters:
        raise BadRow(
            f"its options must have the keys A, B, ..., not {', '.join(map(str, options))}"
        )
    return [given[letter] for letter in letters]


def _place_numbered(
    messages: Sequence[ChatMessage], images: Mapping[int, Any]
) -> tuple[list[ChatMessage], list[Any]]:
    """Put images where a question mentions them, as `<image 2>`, and the others at the start.

    Returns:
        The messages, and an image for each new placeholder, in order.
    """
    asked = [number for number, message in enumerate(messages) if message.role == "user"]
    texts = {number: messages[number].text for number in asked}
    mentioned = {int(number) for text in texts.values() for number in _NUMBERED.findall(text)}
    if missing := mentioned - images.keys():
        raise BadRow(f"it mentions <image {min(missing)}>, but image_{min(missing)} is empty")
    if asked:
        others = "".join(f"<image {number}>" for number in images if number not in mentioned)
        texts[asked[0]] = f"{others}{texts[asked[0]]}"
    placed, order = list(messages), list[int]()
    for number, text in texts.items():
        found = _NUMBERED.findall(text)
        order += map(int, found)
        marks = (*messages[number].images, *(None for _ in found))
        placed[number] = replace(messages[number], text=_NUMBERED.sub(IMAGE, text), images=marks)
    return placed, [images[number] for number in order]
