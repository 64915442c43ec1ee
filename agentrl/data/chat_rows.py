"""The rows of a table for supervised learning and for preferences, checked before training."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic

from agentrl.data.conversations import CHAT_KEYS, FORMS, ReadRow, T_co, read_preference
from agentrl.data.dataset import report_bad_rows
from agentrl.data.image_loading import ImageError, load_image
from agentrl.data.row_columns import check_column, check_has_rows, has_column
from agentrl.data.tables import BadRow, Table
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean, list_names

_UNPAIRED = ("kto_tag", "label")
"""Columns that rate single answers: of LLaMA-Factory and of TRL."""


class ChatRows(Generic[T_co]):
    """The valid rows of a table, with decoded images; every row and image is checked first.

    Args:
        table: of rows.
        name: of the data, for messages; kept as `title`.
        read: `read_chat`, `read_labeled` or `read_preference`.
        keys: column names by content, where they differ from `CHAT_KEYS`.
        image_root: the folder that must contain all image paths; None for the table's own.
        on_bad: `refuse` or `skip`.

    Raises:
        ConfigError: a column is missing, rows are bad and may not be skipped, or none is left.
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
        self._keys = dict(keys or {})
        _check_columns(table, name, read, self._keys)
        self.title = name
        self._table = table
        self._read_row = read
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

    def has(self, content: str) -> bool:
        """Whether the table has a column with a content of `CHAT_KEYS`."""
        return _finds(self._table, self._keys, content)

    def name(self, index: int) -> str:
        """Return the place of a row for a user, such as `line 3`."""
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
    """Check that a table has the columns of one of the forms that `read` takes."""
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
            f"data={name}: column {tag} rates single answers (KTO), and pairs of answers are "
            "needed: give two answers to each prompt as chosen and rejected. "
            "reward_model.per_turn=true learns from single answers, with labels"
        )
    known = [column for form in forms for content in form for column in CHAT_KEYS[content]]
    near = next((hint for column in known if (hint := did_you_mean(column, have))), "")
    wanted = ", or ".join(
        " and ".join(" or ".join(CHAT_KEYS[content]) for content in form) for form in forms
    )
    raise ConfigError(
        f"data={name}: no column is named {wanted}{near}; set them as "
        f"keys={{{forms[0][0]}: ...}}. It has: {list_names(have)}"
    )


def _finds(table: Table, keys: Mapping[str, str], content: str) -> bool:
    return content in keys or any(has_column(table, name) for name in CHAT_KEYS[content])
