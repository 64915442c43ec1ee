"""Rows of a data set as prompts for a model; answers are not needed."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentrl.data import image_loading
from agentrl.data.chat_messages import ChatMessage, read_conversation
from agentrl.data.conversations import ConversationRow, alternating, check_roles, with_images
from agentrl.data.prompt_templates import template_variables
from agentrl.data.question_columns import (
    check_can_be_shown,
    find_columns,
    question_text,
    system_message,
)
from agentrl.data.row_columns import cell
from agentrl.data.row_parser import as_list, open_template, render
from agentrl.data.tables import BadRow, Row, Table
from agentrl.errors import ConfigError

_KEYS = ("problem", "messages", "images", "system", "videos", "audios")
_MAX_LISTED = 5
"""Bad rows that an error lists."""


class PromptRows:
    """The rows of a table as conversations that end with a question.

    A row has messages or a text, and images beside them or inside. A last message of the assistant
    is the row's answer, and is left out.

    Args:
        table: of rows.
        name: of the data, for messages.
        keys: see `find_columns`; of the `problem`, `messages`, `images` and `system`.
        template: Jinja2 for a question in a column of text; None uses it unchanged.
        image_root: the folder that must contain all image paths; None for the table's own.
        system: system message of conversations that have none.

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
            if content not in _KEYS:
                raise ConfigError(f"keys.{content}: must be one of {', '.join(_KEYS)}")
        self.table = table
        self._template = None if template is None else open_template(template)
        rendered = set() if template is None else template_variables(template)
        self._keys = keys or {}
        self._columns = find_columns(table, name, self._keys, needs_answer=False, rendered=rendered)
        self._root = (image_root or table.root).absolute()
        self._system = system
        self.bad: dict[int, str] = {}
        """Why rows are no questions, by index; their images are not looked at."""
        self.digest = self._examined()
        """Changes with the rows and their image files."""
        if len(self.bad) == len(table):
            listed = (f"{table.name(i)}: {self.bad[i]}" for i in list(self.bad)[:_MAX_LISTED])
            raise ConfigError(f"data={name}: no row is a question: {'; '.join(listed)}")

    def __len__(self) -> int:
        return len(self.table)

    def load(self, index: int) -> tuple[str, ConversationRow]:
        """The system message of a row, and its other messages with decoded images.

        Raises:
            BadRow: it is not a question.
            ImageError: an image cannot be loaded.
        """
        system, row = self._parse(self.table.row(index))
        images = tuple(image_loading.load_image(image, self._root) for image in row.images)
        return system, replace(row, images=images)

    def _examined(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for index in range(len(self.table)):
            try:
                row = self.table.row(index)
                digest.update(json.dumps(row, default=_as_text).encode())
                self._parse(row)
            except BadRow as error:
                self.bad[index] = str(error)
                digest.update(str(error).encode(errors="replace"))
        images = image_loading.digest_images(self._images(), self._root)
        return f"{digest.hexdigest()}{images}"

    def _images(self) -> Iterator[image_loading.Cell]:
        for index in range(len(self.table)):
            if index not in self.bad:
                for image in self._parse(self.table.row(index))[1].images:
                    yield index, image

    def _parse(self, row: Row) -> tuple[str, ConversationRow]:
        images = as_list(self._cell(row, "images"))
        messages = self._messages(row, images)
        check_roles(messages)
        for message in messages:
            check_can_be_shown(row, self._columns, self._keys, message.text)
        if messages[-1].role == "assistant":
            messages = messages[:-1]
        if any(message.tool_calls for message in messages):
            raise BadRow("its messages have tool calls; write them into the text of the messages")
        placed = with_images(messages, images)
        system, turns = alternating(placed["messages"])
        if not turns or turns[-1].role == "assistant":
            raise BadRow("its messages contain no question")
        given = system_message(row, self._columns, system) or self._system or ""
        return given, ConversationRow(messages=tuple(turns), images=placed["images"])

    def _messages(self, row: Row, images: list[Any]) -> list[ChatMessage]:
        if "messages" in self._columns:
            value = self._cell(row, "messages")
        else:
            value = question_text(row, self._columns)
        if isinstance(value, str) and "messages" not in self._columns:
            if self._template is not None:
                value = render(self._template, row, value, images)
            if not value.strip() and not images:
                raise BadRow("the question is empty")
            value = [{"role": "user", "content": value}]
        elif self._template is not None:
            raise BadRow("it has messages, and the template is for a column of text")
        return read_conversation(value)

    def _cell(self, row: Row, content: str) -> Any:
        return cell(row, self._columns[content]) if content in self._columns else None


def _as_text(value: Any) -> str:
    """What stands for a value that JSON cannot hold, in the digest of its row."""
    if isinstance(value, bytes | bytearray | memoryview):
        return hashlib.blake2b(value, digest_size=16).hexdigest()
    return str(value)
