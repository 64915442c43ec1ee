"""Rows of a data set as prompts for a model; answers are not needed."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentrl.data import image_loading
from agentrl.data.conversations import ConversationRow
from agentrl.data.question_columns import system_message
from agentrl.data.question_reader import QuestionReader
from agentrl.data.tables import BadRow, Row, Table
from agentrl.errors import ConfigError

_KEYS = ("problem", "messages", "images", "options", "system", "videos", "audios")
_MAX_LISTED = 5
"""Bad rows that an error lists."""


class PromptRows:
    """The rows of a table as conversations that end with a question.

    A row has messages or a text, and images beside them or inside. The assistant's message after
    the question is the row's answer, and is left out.

    Args:
        table: of rows.
        name: of the data, for messages.
        keys: see `find_columns`; of the `problem`, `messages`, `images`, `options` and `system`.
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
        self._reader = QuestionReader(table, name, keys or {}, template, needs_answer=False)
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
        question = self._reader.read(row)
        system = system_message(row, self._reader.columns, question.system) or self._system or ""
        return system, ConversationRow(messages=question.turns, images=question.images)


def _as_text(value: Any) -> str:
    """Return a text that stands in a row's digest for a value that JSON cannot hold."""
    if isinstance(value, bytes | bytearray | memoryview):
        return hashlib.blake2b(value, digest_size=16).hexdigest()
    return str(value)
