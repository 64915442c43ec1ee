"""Turn the rows of a data set into questions, and report the rows that cannot be used."""

import hashlib
import itertools
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from agentrl.data import grading, image_cache, image_loading
from agentrl.data.chat_messages import Question, read_messages
from agentrl.data.image_loading import ImageError
from agentrl.data.prompt_templates import parse_template, template_variables
from agentrl.data.tables import BadRow, Row, Table
from agentrl.data.tasks import Task, row_of
from agentrl.errors import ConfigError, describe_error
from agentrl.text import did_you_mean, quoted
from agentrl.types import IMAGE, Image, without_placeholders

log = logging.getLogger(__name__)

KEYS = {
    "problem": ("problem", "question", "prompt"),
    "answer": ("answer", "solution", "label"),
    "images": ("images", "image"),
    "options": ("options", "choices"),
    "messages": ("messages", "message", "conversations"),
}
"""Default column names."""
_NAMED = 5
"""Bad rows that an error lists."""
_THREADS = 8
_LOOKED_AT = 20
"""Rows that are searched for columns of images."""
_PICTURES = re.compile(
    r"(img|image|pic|picture|photo|figure|screenshot)s?"
    r"([ _-]?(path|file|name|filename|bytes|data|base64|b64|url|uri)s?)*",
    re.IGNORECASE,
)
_PICTURE_FILE = re.compile(
    r"^(data:image/.*|[^\n]{1,500}\.(png|jpe?g|webp|gif|bmp|tiff?))$", re.ASCII | re.IGNORECASE
)
_WHOLE = re.compile(r"-?\d{1,9}(\.0)?", re.ASCII)
_AT_ONCE = 256
"""Images held in memory at once while they are checked."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ParsedRow:
    """A parsed row whose images are not loaded yet."""

    problem: str
    accepted: tuple[str, ...]
    images: tuple[Any, ...]
    options: tuple[str, ...]


class Dataset:
    """The valid rows of a table as questions; see `Source`.

    Args:
        table: of rows.
        name: of the data, for messages.
        keys: column names by content, where they differ from `KEYS`.
        template: Jinja2 for the question's text; None uses the problem unchanged.
        image_root: the folder that must contain all image paths; None for the table's own.
        on_bad: `refuse` or `skip`.
        shuffle: seed of the order of the rows; None keeps it.
        part: (`train` or `eval`, the fraction held out for `eval`); None takes all rows.
        grade: how answers are graded; a row that no answer could satisfy is bad.

    Raises:
        ConfigError: a column is missing, the template is invalid, rows are bad and may not be
            skipped, or no row is left.
    """

    def __init__(
        self,
        table: Table,
        name: str,
        *,
        keys: Mapping[str, str] | None = None,
        template: str | None = None,
        image_root: Path | None = None,
        on_bad: str = "refuse",
        shuffle: int | None = 0,
        part: tuple[str, float] | None = None,
        grade: str = "none",
    ) -> None:
        self._table, self._name, self._shuffle, self._grade = table, name, shuffle, grade
        self._root = (image_root or table.root).absolute()
        self._keys = _columns(table, name, dict(keys or {}))
        self._template = (
            None if template is None else parse_template(template, f"template={template!r:.80}")
        )
        bad, shares = self._examined(shared=part is not None)
        self.bad: Mapping[str, str] = {table.name(index): why for index, why in bad.items()}
        """Why rows cannot be used, by row name, in all parts."""
        good = [index for index in shares if index not in bad]
        if part is not None:
            split, share = part
            good = [index for index in good if (shares[index] < share) == (split == "eval")]
        self._kept = np.array(good, np.int64)
        self._loaded: WeakValueDictionary[tuple[int, int], np.ndarray] = WeakValueDictionary()
        self._refuse(on_bad)
        if not good:
            self._raise_empty(part, len(shares.keys() - bad.keys()))
        self.guesses = self._common_answers()
        self._warn_unused(set() if template is None else template_variables(template))

    def __len__(self) -> int:
        return len(self._kept)

    def task(self, seed: int) -> Task:
        """The question of a seed.

        Raises:
            BadRow: its row has become unreadable since the check.
        """
        index = int(self._kept[row_of(seed, len(self._kept), self._shuffle)])
        name = f"{self._name} {self._table.name(index)}"
        try:
            row = self._parse(self._table.row(index))
            images = tuple(
                self._image(index, number, image) for number, image in enumerate(row.images)
            )
        except (BadRow, ImageError) as error:
            raise BadRow(f"{name}: {error}") from error
        return Task(
            name=name,
            problem=row.problem,
            accepted=row.accepted,
            images=images,
            options=row.options,
            guesses=self.guesses,
        )

    def _image(self, index: int, number: int, image: Any) -> Image:
        """An image of a row; concurrent episodes of the same question share one array."""
        loaded = self._loaded.get((index, number))
        if loaded is None:
            loaded = image_loading.load_image(image, self._root).view()
            loaded.flags.writeable = False
            self._loaded[index, number] = loaded
        return loaded

    def _examined(self, *, shared: bool) -> tuple[dict[int, str], dict[int, float]]:
        """Why rows are bad; and, if `shared`, the split position in [0, 1) of each other row."""
        bad: dict[int, str] = {}
        shares: dict[int, float] = {}
        for index in range(len(self._table)):
            try:
                row = self._parse(self._table.row(index))
                shares[index] = _share(row) if shared else 0.0
            except BadRow as error:
                bad[index] = str(error)
        broken = image_cache.find_broken(
            lambda: self._cells(list(shares)), self._root, self._broken
        )
        return dict(sorted((bad | broken).items())), shares

    def _cells(self, indices: Sequence[int]) -> Iterator[image_cache.Cell]:
        """The undecoded images of some rows, one by one: they may hold all their bytes."""
        for index in indices:
            for image in self._parse(self._table.row(index)).images:
                yield index, image

    def _broken(self, cells: Iterator[image_cache.Cell]) -> dict[int, str]:
        """By row, why an image cannot be decoded; in threads, as decoding releases the GIL."""

        def check(cell: image_cache.Cell) -> tuple[int, str] | None:
            try:
                image_loading.load_image(cell[1], self._root)
            except ImageError as error:
                return cell[0], str(error)
            return None

        broken: dict[int, str] = {}
        with ThreadPoolExecutor(_THREADS) as pool:
            while some := list(itertools.islice(cells, _AT_ONCE)):
                broken |= dict(bad for bad in pool.map(check, some) if bad is not None)
        return broken

    def _refuse(self, on_bad: str) -> None:
        if on_bad not in ("refuse", "skip"):
            raise ConfigError(f"on_bad={on_bad!r}: must be refuse or skip")
        if not self.bad:
            return
        named = "; ".join(f"{row}: {why}" for row, why in list(self.bad.items())[:_NAMED])
        more = f"; and {len(self.bad) - _NAMED} more" if len(self.bad) > _NAMED else ""
        rows = len(self._table)
        what = f"data={self._name}: {len(self.bad)} of {rows} rows are bad: {named}{more}"
        if on_bad == "refuse":
            raise ConfigError(f"{what}. Fix them, or leave them out with on_bad=skip")
        if len(self.bad) == rows:
            raise ConfigError(what)
        _warn_once(f"{what}. They are skipped (on_bad=skip)")

    def _raise_empty(self, part: tuple[str, float] | None, rows: int) -> None:
        if part is None:
            raise ConfigError(f"data={self._name}: it has no rows")
        split, share = part
        raise ConfigError(
            f"hold_out={share}: none of the {rows} rows of {self._name} is left for {split}; "
            "choose another fraction, or split the data yourself with data={train: ..., eval: ...}"
        )

    def _common_answers(self) -> tuple[str, ...]:
        """A few answers of the rows, for scripted players that guess."""
        indices = self._kept[:: max(1, len(self._kept) // 50)].tolist()
        answers = (self._parse(self._table.row(index)).accepted[0] for index in indices)
        return tuple(sorted(dict.fromkeys(answers))[:10])

    def _warn_unused(self, rendered: set[str]) -> None:
        """Warn about columns that are not used, above all those that seem to hold images."""
        used = {*self._keys.values(), *rendered}
        unused = [column for column in self._table.columns if column not in used]
        if not unused:
            return
        warning = f"data={self._name}: unused columns: {', '.join(map(quoted, unused))}"
        some = [self._table.row(int(index)) for index in self._kept[:_LOOKED_AT]]
        if "images" not in self._keys and not any(self._parse(row).images for row in some):
            likely = [name for name in unused if _seems_pictures(name, some)]
            if likely:
                warning += (
                    f". The questions have no images, but {quoted(likely[0])} seems to hold some: "
                    f"if so, set keys={{images: {likely[0]}}}"
                )
        _warn_once(warning)

    def _parse(self, row: Row) -> ParsedRow:
        question = self._question(row)
        images = _list(row.get(self._keys.get("images", "")))
        in_messages = [image for image in question.images if image is not None]
        if in_messages and images:
            raise BadRow("it has images both in its messages and in a separate column")
        images = in_messages or images
        problem = self._rendered(row, question.problem)
        placeholders = problem.count(IMAGE)
        if not placeholders:
            problem = IMAGE * len(images) + problem
        elif placeholders != len(images):
            raise BadRow(f"it has {placeholders} {IMAGE} placeholders for {len(images)} images")
        if not without_placeholders(problem) and not images:
            raise BadRow("the question is empty")
        if not problem.isascii():
            _check_unicode(problem)
        options = _options(row.get(self._keys.get("options", "")))
        if (option := grading.ambiguous_option(options)) is not None:
            raise BadRow(f"its option {quoted(option)} is also the letter of another option")
        accepted = _accepted(self._answer(row, question), options)
        if (why := grading.why_ungradable(self._grade, accepted, options)) is not None:
            raise BadRow(why)
        return ParsedRow(
            problem=problem,
            accepted=accepted,
            images=tuple(images),
            options=options,
        )

    def _question(self, row: Row) -> Question:
        if "messages" in self._keys:
            return read_messages(row.get(self._keys["messages"]))
        problem = row.get(self._keys["problem"])
        if not isinstance(problem, str):
            raise BadRow(f"{self._keys['problem']} is {_kind(problem)}, not text")
        return Question(problem=problem, images=(), answer=None)

    def _answer(self, row: Row, question: Question) -> Any:
        if "answer" not in self._keys:
            return question.answer
        return row.get(self._keys["answer"])

    def _rendered(self, row: Row, problem: str) -> str:
        if self._template is None:
            return problem
        try:
            return str(self._template.render({**row, "problem": problem})).strip()
        except Exception as error:  # a template is code and may raise anything
            raise BadRow(f"the template fails: {describe_error(error)}") from error


def _columns(table: Table, name: str, keys: dict[str, str]) -> dict[str, str]:
    """The column of each content that the table has."""
    if not len(table):
        raise ConfigError(f"data={name}: it has no rows")
    have = list(table.columns)
    for content, column in keys.items():
        if content not in KEYS:
            raise ConfigError(f"keys.{content}: must be one of {', '.join(KEYS)}")
        if column not in have:
            raise ConfigError(
                f"keys.{content}={column}: {name} has no such column{did_you_mean(column, have)}. "
                f"It has: {', '.join(have)}"
            )
    found = {
        content: keys.get(content) or next((n for n in names if n in have), None)
        for content, names in KEYS.items()
    }
    columns = {content: column for content, column in found.items() if column is not None}
    if "problem" in columns and "messages" in columns:
        # A column named in `keys` wins; between two defaults, the plain text does.
        del columns["problem" if "messages" in keys and "problem" not in keys else "messages"]
    if "problem" not in columns and "messages" not in columns:
        raise ConfigError(
            f"data={name}: no column is named {_any_of('problem', 'messages')}; set the one with "
            f"the question, as keys={{problem: ...}}. It has: {', '.join(have)}"
        )
    if "answer" not in columns and "messages" not in columns:
        raise ConfigError(
            f"data={name}: no column is named {_any_of('answer')}; set the one with the answer, as "
            f"keys={{answer: ...}}. It has: {', '.join(have)}"
        )
    return columns


def _any_of(*contents: str) -> str:
    names = [name for content in contents for name in KEYS[content]]
    return f"{', '.join(names[:-1])} or {names[-1]}"


@lru_cache
def _warn_once(message: str) -> None:
    log.warning("%s", message)


def _seems_pictures(column: str, rows: Sequence[Row]) -> bool:
    """Whether a column is named like one of images, or holds names of image files."""
    if _PICTURES.fullmatch(column):
        return True
    cells = (row.get(column) for row in rows)
    firsts = (cell[0] if isinstance(cell, list) and cell else cell for cell in cells)
    return any(isinstance(cell, str) and _PICTURE_FILE.search(cell) for cell in firsts)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # a lone surrogate, which JSON can hold
        raise BadRow(f"its text is not valid Unicode: {error}") from None


def _list(value: Any) -> list[Any]:
    """The values of a cell: zero, one or several; a list may be JSON text."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadRow(f"{quoted(value)} is not a JSON list") from None
    return list(value) if isinstance(value, list | tuple) else [value]


def _options(value: Any) -> tuple[str, ...]:
    """The options in a cell, A first: a list, or a mapping from letters."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadRow(f"its options {quoted(value)} are not valid JSON") from None
    if isinstance(value, Mapping):
        value = _in_order(value)
    options = _list(value)
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


def _accepted(answer: Any, options: Sequence[str]) -> tuple[str, ...]:
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
    return str(value).strip()


def _kind(value: Any) -> str:
    return "missing" if value is None else type(value).__name__


def _share(row: ParsedRow) -> float:
    """A row's position in [0, 1), hashed from its content, so that equal questions share a part."""
    texts = [row.problem, *row.accepted]
    digest = hashlib.blake2b("\0".join(texts).encode(errors="replace"), digest_size=8)
    for image in row.images:
        held = image.get("bytes") or image.get("path") if isinstance(image, Mapping) else image
        digest.update(
            held if isinstance(held, bytes) else str(held)[:10_000].encode(errors="replace")
        )
    return int.from_bytes(digest.digest(), "big") / 2**64
