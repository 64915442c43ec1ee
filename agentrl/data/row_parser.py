"""Parse the rows of a data set: find the columns, and read question, answer, options and images."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jinja2 import Template

from agentrl.data import grading
from agentrl.data.chat_messages import Question, read_messages
from agentrl.data.prompt_templates import parse_template, template_variables
from agentrl.data.question_columns import (
    check_can_be_shown,
    find_columns,
    question_text,
    system_message,
)
from agentrl.data.row_columns import cell, numbered_image_columns
from agentrl.data.tables import BadRow, Row, Table
from agentrl.errors import describe_error
from agentrl.text import quoted
from agentrl.types import IMAGE, without_placeholders

_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_WHOLE = re.compile(r"-?\d{1,9}(\.0)?", re.ASCII)
_NUMBERED = re.compile(r"<image\s+(\d{1,3})>", re.ASCII)
_TEXT_LIST = re.compile(r"""\[(['"]).*\1\]$""", re.DOTALL)
"""Several accepted texts in one; an interval or a set of numbers has no quotes."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ParsedRow:
    """A parsed row whose images are not loaded yet."""

    problem: str
    accepted: tuple[str, ...]
    """Empty if the data has no answers."""
    images: tuple[Any, ...]
    options: tuple[str, ...]
    system: str | None = None
    """See `Task.system`."""
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
        self._template = None if template is None else open_template(template)
        self._keys = keys = keys or {}
        self.columns = find_columns(
            table,
            name,
            keys,
            needs_answer=grade != "none",
            rendered=set() if template is None else template_variables(template),
            takes_numbered=True,
        )
        """Column names by content."""
        self.numbered: Mapping[int, str] = {}
        """The columns `image_1`, `image_2`, ... by number, if they hold the images."""
        if "images" not in self.columns and "images" not in keys:
            self.numbered = numbered_image_columns(table)
        self._grade = grade

    def parse(self, row: Row) -> ParsedRow:
        """Parse a row.

        Raises:
            BadRow: it cannot be used.
        """
        question = self._question(row)
        check_can_be_shown(row, self.columns, self._keys, question.problem)
        numbered = {n: row[column] for n, column in self.numbered.items() if row.get(column)}
        images = [*numbered.values(), *as_list(self._cell(row, "images"))]
        in_messages = [image for image in question.images if image is not None]
        if in_messages and images:
            raise BadRow(
                "it has images both in its messages and in a separate column, which "
                "keys={images: null} leaves out"
            )
        images = in_messages or images
        options = _options(self._cell(row, "options"))
        problem = self._rendered(row, question.problem, images, options)
        if self.numbered:
            problem, images = _place_numbered(problem, numbered)
        placeholders = problem.count(IMAGE)
        if not placeholders:
            problem = IMAGE * len(images) + problem
        elif placeholders != len(images):
            raise BadRow(f"it has {placeholders} {IMAGE} placeholders for {len(images)} images")
        if not without_placeholders(problem) and not images:
            raise BadRow("the question is empty")
        _check_unicode(problem)
        answer = self._answer(row, question)
        accepted = self._accepted(answer, options)
        mixed = "options" in self.columns
        why = grading.why_ungradable(self._grade, accepted, options, mixed=mixed)
        if why is not None:
            raise BadRow(why)
        return ParsedRow(
            problem=problem,
            accepted=accepted,
            images=tuple(images),
            options=options,
            system=self._system(row, question),
            ground_truth=answer if isinstance(answer, Mapping) else None,
        )

    def has_worked_solution(self, row: Row) -> bool:
        """Whether a row's answer is a solution whose final answer alone could be graded."""
        text = _as_text(self._cell(row, "answer"))
        is_solution = grading.final_answer(text) != text
        return is_solution and grading.why_ungradable(self._grade, (text,), ()) is not None

    def _cell(self, row: Row, content: str) -> Any:
        return cell(row, self.columns[content]) if content in self.columns else None

    def _question(self, row: Row) -> Question:
        if "messages" in self.columns:
            return read_messages(self._cell(row, "messages"))
        problem = question_text(row, self.columns)
        if isinstance(problem, list | tuple):
            return read_messages(problem)
        if not isinstance(problem, str):
            raise BadRow(f"{self.columns['problem']} is {_kind(problem)}, not text")
        return Question(problem=problem, images=(), answer=None)

    def _system(self, row: Row, question: Question) -> str | None:
        system = system_message(row, self.columns, question.system)
        _check_unicode(system or "")
        return "" if system is None and self._template is not None else system

    def _answer(self, row: Row, question: Question) -> Any:
        return self._cell(row, "answer") if "answer" in self.columns else question.answer

    def _accepted(self, answer: Any, options: Sequence[str]) -> tuple[str, ...]:
        if self._grade == "none" and isinstance(answer, Mapping):
            return (json.dumps(answer, default=str),)
        if self._grade == "none" and answer is None and "answer" not in self.columns:
            return ()
        return _accepted(answer, options)

    def _rendered(
        self, row: Row, problem: str, images: Sequence[Any], options: Sequence[str]
    ) -> str:
        if self._template is None:
            return problem
        column = self.columns.get("options")
        if isinstance(row.get(column or ""), str):  # a list as text, which no template can iterate
            row = {**row, str(column): list(options)}
        return render(self._template, row, problem, images)


def open_template(template: str) -> Template:
    """Parse the template of a question, without the white space around it.

    Raises:
        ConfigError: it has a syntax error.
    """
    return parse_template(template.strip(), f"template={template!r:.80}")


def render(template: Template, row: Row, problem: str, images: Sequence[Any]) -> str:
    """A question's text, from a template with the row's columns.

    Raises:
        BadRow: the template fails.
    """
    # `content`, `prompt` and `images` are the names in other trainers' templates.
    names = {"content": problem, **row, "images": images, "problem": problem}
    if not isinstance(names.get("prompt"), str):
        names["prompt"] = problem
    try:
        return str(template.render(names))
    except Exception as error:  # a template is code and may raise anything
        raise BadRow(f"the template fails: {describe_error(error)}") from error


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # a lone surrogate, which JSON can hold
        raise BadRow(f"its text is not valid Unicode: {error}") from None


def as_list(value: Any) -> list[Any]:
    """The values of a cell: zero, one or several; a list may be text, in JSON or as Python's repr.

    Raises:
        BadRow: it begins like a list, but is none.
    """
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
    raise BadRow(f"{quoted(text)} is not a list, in JSON or Python")


def _options(value: Any) -> tuple[str, ...]:
    """The options in a cell, A first: a list, or a mapping from letters."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadRow(f"its options {quoted(value)} are not valid JSON") from None
    if isinstance(value, Mapping):
        value = _in_order(value)
    options = as_list(value)
    if len(options) == 1 and options[0] is value:
        raise BadRow(f"its options are {quoted(value)}; they must be a list, or {{A: ..., B: ...}}")
    for option in options:
        if not isinstance(option, str | int | float):
            raise BadRow(f"an option is {_kind(option)}, not text")
    return tuple(map(str, options))


def _in_order(options: Mapping[Any, Any]) -> list[Any]:
    """The options of a mapping from letters; Parquet has null for those that a row lacks."""
    given = {str(key).upper(): value for key, value in options.items() if value is not None}
    letters = [chr(ord("A") + index) for index in range(len(given))]
    if sorted(given) != letters:
        raise BadRow(f"its options have the keys {', '.join(map(str, options))}, not A, B, ...")
    return [given[letter] for letter in letters]


def _place_numbered(text: str, images: Mapping[int, Any]) -> tuple[str, list[Any]]:
    """Put each image where the text mentions it as `<image 2>`, and the others before the text."""
    mentioned = [int(number) for number in _NUMBERED.findall(text)]
    if missing := set(mentioned) - images.keys():
        raise BadRow(f"it mentions <image {min(missing)}>, and image_{min(missing)} is empty")
    others = [number for number in images if number not in mentioned]
    placed = IMAGE * len(others) + _NUMBERED.sub(IMAGE, text)
    return placed, [images[number] for number in (*others, *mentioned)]


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
    tagged = _TAGGED.search(str(value))
    return (tagged[1] if tagged else str(value)).strip()


def _kind(value: Any) -> str:
    return "missing" if value is None else type(value).__name__
