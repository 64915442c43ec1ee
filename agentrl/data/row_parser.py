"""Parse the rows of a data set that tasks are made of: one question each, and its answer."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl.data import grading
from agentrl.data.question_columns import system_message
from agentrl.data.question_reader import Question, QuestionReader, as_list
from agentrl.data.tables import BadRow, Row, Table
from agentrl.types import Message

_WHOLE = re.compile(r"-?\d{1,9}(\.0)?", re.ASCII)
_TEXT_LIST = re.compile(r"""\[(['"]).*\1\]$""", re.DOTALL)
"""Several accepted texts in one; an interval or a set of numbers has no quotes."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ParsedRow:
    """A parsed row whose images are not loaded yet."""

    problem: str
    accepted: tuple[str, ...]
    """Accepted answers; empty if the data has none."""
    images: tuple[Any, ...]
    options: tuple[str, ...]
    system: str | None = None
    """See `Task.system`."""
    preceding: tuple[Message, ...] = ()
    """See `Task.preceding`."""
    ground_truth: Any = None
    """The answer as an object, which only a reward function can grade; None for a text."""


class RowParser:
    """Reads the rows of one table.

    Args:
        table: of rows.
        name: of the data, for messages.
        keys: see `find_columns`.
        template: Jinja2 for the question's text; None uses the problem unchanged.
        grade: how answers are graded; a row that no answer could satisfy is bad. Rows need no
            answer if it is `none`.

    Raises:
        ConfigError: a column is missing, or the template is invalid.
    """

    def __init__(
        self,
        table: Table,
        name: str,
        keys: Mapping[str, str | None] | None,
        template: str | None,
        grade: str,
    ) -> None:
        needs_answer = grade != "none"
        self._reader = QuestionReader(table, name, keys or {}, template, needs_answer=needs_answer)
        self.columns = self._reader.columns
        """Column names by content."""
        self._has_template = template is not None
        self._grade = grade

    def parse(self, row: Row) -> ParsedRow:
        """Parse a row.

        Raises:
            BadRow: it cannot be used.
        """
        question = self._reader.read(row)
        *preceding, asked = question.turns
        if asked.role != "user":
            raise BadRow(f"its last message is of the role {asked.role}, not a user's question")
        _check_unicode("".join(message.text for message in question.turns))
        answer = self._answer(row, question)
        accepted = self._accepted(answer, question.options)
        mixed = "options" in self.columns
        why = grading.why_ungradable(self._grade, accepted, question.options, mixed=mixed)
        if why is not None:
            raise BadRow(why)
        return ParsedRow(
            problem=asked.text,
            accepted=accepted,
            images=question.images,
            options=question.options,
            system=self._system(row, question.system),
            preceding=tuple(Message(role=one.role, text=one.text) for one in preceding),
            ground_truth=answer if isinstance(answer, Mapping) else None,
        )

    def has_worked_solution(self, row: Row) -> bool:
        """Whether a row's answer is a solution whose final answer alone could be graded."""
        text = _as_text(self._reader.cell(row, "answer"))
        is_solution = grading.final_answer(text) != text
        return is_solution and grading.why_ungradable(self._grade, (text,), ()) is not None

    def _system(self, row: Row, in_messages: str | None) -> str | None:
        system = system_message(row, self.columns, in_messages)
        _check_unicode(system or "")
        return "" if system is None and self._has_template else system

    def _answer(self, row: Row, question: Question) -> Any:
        if "answer" in self.columns:
            return self._reader.cell(row, "answer")
        return question.answer

    def _accepted(self, answer: Any, options: Sequence[str]) -> tuple[str, ...]:
        if self._grade == "none" and isinstance(answer, Mapping):
            return (json.dumps(answer, default=str),)
        if self._grade == "none" and answer is None and "answer" not in self.columns:
            return ()
        return _accepted(answer, options)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # a lone surrogate, which JSON can hold
        raise BadRow(f"its text is not valid Unicode: {error}") from None


def _accepted(answer: Any, options: Sequence[str]) -> tuple[str, ...]:
    if isinstance(answer, str) and _TEXT_LIST.match(answer):
        answer = as_list(answer)
    values = answer if isinstance(answer, list | tuple) else [answer]
    if len(values) == 1 and (index := _option_index(values[0], options)) is not None:
        values = [_option_at(index, options)]
    texts = tuple(_as_text(value) for value in values)
    if not texts or not all(texts):
        raise BadRow(f"it has no answer: {answer!r:.40}")
    return texts


def _option_index(answer: Any, options: Sequence[str]) -> int | None:
    """The index of the option that an answer gives; None for an answer in text.

    An integer is an index, also where the format lacks integers and stores `1.0` or text. But text
    equal to an option means that option.
    """
    if not options or type(answer) is int:  # a bool is text
        return answer if options else None
    text = _as_text(answer)
    if not _WHOLE.fullmatch(text) or grading.normalize(text) in map(grading.normalize, options):
        return None
    return int(float(text))


def _option_at(index: int, options: Sequence[str]) -> str:
    if not 0 <= index < len(options):
        raise BadRow(f"its answer {index} is not an index of its {len(options)} options (from 0)")
    text = str(index)
    if text in map(grading.normalize, options) and grading.normalize(options[index]) != text:
        raise BadRow(f"its answer {index} is the index of one option and the text of another")
    return options[index]


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return str(value).lower() if isinstance(value, bool) else ""
    if isinstance(value, float) and not np.isfinite(value):
        return ""
    text = str(value)
    answer, is_closed, _ = text.partition("<answer>")[2].partition("</answer>")
    return (answer if is_closed else text).strip()
