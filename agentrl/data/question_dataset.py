"""Read questions and answers from the rows of a data set, and report unusable rows."""

import contextlib
import hashlib
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from agentrl.data import grading, image_loading
from agentrl.data.image_loading import ImageError
from agentrl.data.question import Question
from agentrl.data.question_columns import system_message
from agentrl.data.question_reader import QuestionReader, as_list
from agentrl.data.row_columns import columns_for_rewards, report_bad_rows
from agentrl.data.seed_to_row import row_of
from agentrl.data.tables import BadRow, Row, Table
from agentrl.errors import ConfigError
from agentrl.types import Image, Message

# Maximum number of bad rows to search for worked solutions.
_ROWS_SEARCHED = 100
_THREADS = 8
# Number of images in memory at a time during the check.
_IMAGES_AT_ONCE = 256
_WHOLE = re.compile(r"-?\d{1,9}(\.0)?", re.ASCII)
# A list of accepted answers as text; the quotes distinguish it from intervals and sets of numbers.
_TEXT_LIST = re.compile(r"""\[(['"]).*\1\]$""", re.DOTALL)


@dataclass(slots=True, kw_only=True, frozen=True)
class ParsedRow:
    """A row parsed into the fields of a `Question`, with its images not loaded yet."""

    problem: str
    accepted: tuple[str, ...]
    images: tuple[Any, ...]
    options: tuple[str, ...]
    system: str | None
    preceding: tuple[Message, ...]
    ground_truth: Any


class Dataset:
    """Valid rows of a table as questions; see `QuestionSource`.

    Args:
        table: table with the rows.
        name: name of the data, for messages.
        keys: column names by content, see `find_columns`.
        template: Jinja2 template for the question's text; None uses the problem unchanged.
        image_root: folder that must contain all image paths; None uses the table's root.
        on_bad: `refuse` or `skip`.
        shuffle: seed for shuffling the rows; None keeps their order.
        part: (`train` or `eval`, fraction held out for `eval`); None uses all rows.
        grade: how answers are graded; a row that no answer could satisfy is bad. With `none`, rows
            need no answer.
        skip_rows: indices of rows to leave out, for example because they are too long for the
            model.

    Raises:
        ConfigError: a column is missing, the template is invalid, rows are bad and may not be
            skipped, or no row is left.
    """

    def __init__(
        self,
        table: Table,
        name: str,
        *,
        keys: Mapping[str, str | None] | None = None,
        template: str | None = None,
        image_root: Path | None = None,
        on_bad: str = "refuse",
        shuffle: int | None = 0,
        part: tuple[str, float] | None = None,
        grade: str = "none",
        skip_rows: Collection[int] = (),
    ) -> None:
        self._table, self._name, self._shuffle = table, name, shuffle
        self._root = (image_root or table.root).absolute()
        self._grade, self._has_template = grade, template is not None
        needs_answer = grade != "none"
        self._reader = QuestionReader(table, name, keys or {}, template, needs_answer=needs_answer)
        column = self._reader.columns.get("images")
        self._image_column = column if column in table.columns else None
        bad, shares = self._examine(has_parts=part is not None)
        self.bad: Mapping[str, str] = {table.name(index): why for index, why in bad.items()}
        """Maps the names of unusable rows in all parts to the reason."""
        good = [index for index in shares if index not in bad and index not in skip_rows]
        if part is not None:
            split, share = part
            good = [index for index in good if (shares[index] < share) == (split == "eval")]
        self._kept = np.array(good, np.int64)
        self._loaded: WeakValueDictionary[tuple[int, int], np.ndarray] = WeakValueDictionary()
        report_bad_rows(name, self.bad, len(table), on_bad, remedy=self._remedy(list(bad)))
        if not good:
            self._raise_empty(part, len(shares.keys() - bad.keys()))
        # Scripted players guess among the answers of a sample of rows.
        indices = self._kept[:: max(1, len(good) // 50)].tolist()
        rows = (self._parse(table.row(index)) for index in indices)
        self.guesses = tuple(sorted({answer for row in rows for answer in row.accepted[:1]})[:10])

    def __len__(self) -> int:
        return len(self._kept)

    def question(self, seed: int) -> Question:
        """Return the question for a seed.

        Raises:
            BadRow: the row has become unreadable since the check.
        """
        return self._question(int(self._kept[row_of(seed, len(self._kept), self._shuffle)]))

    def questions(self) -> Iterator[tuple[int, Question]]:
        """Yield each row's index and question, in row order."""
        for index in self._kept.tolist():
            yield index, self._question(index)

    def _question(self, index: int) -> Question:
        name = f"{self._name} {self._table.name(index)}"
        try:
            columns = self._table.row(index)
            row = self._parse(columns)
            images = tuple(
                self._image(index, number, image) for number, image in enumerate(row.images)
            )
        except (BadRow, ImageError) as error:
            raise BadRow(f"{name}: {error}") from error
        return Question(
            name=name,
            problem=row.problem,
            accepted=row.accepted,
            images=images,
            system=row.system,
            preceding=row.preceding,
            options=row.options,
            guesses=self.guesses,
            ground_truth=row.ground_truth,
            row=columns_for_rewards(columns, self._image_column),
            image_column=self._image_column,
        )

    def _image(self, index: int, number: int, image: Any) -> Image:
        # Concurrent episodes of the same question share one array.
        loaded = self._loaded.get((index, number))
        if loaded is None:
            loaded = image_loading.load_image(image, self._root).view()
            loaded.flags.writeable = False
            self._loaded[index, number] = loaded
        return loaded

    def _parse(self, row: Row) -> ParsedRow:
        question = self._reader.read(row)
        *preceding, asked = question.turns
        if asked.role != "user":
            raise BadRow(
                f"its last message must be a user's question, but its role is {asked.role}"
            )
        _check_unicode("".join(message.text for message in question.turns))
        has_column = "answer" in self._reader.columns
        answer = self._reader.cell(row, "answer") if has_column else question.answer
        accepted: tuple[str, ...]
        # Without grading, the answer is optional and only reward functions read it.
        if self._grade == "none" and isinstance(answer, Mapping):
            accepted = (json.dumps(answer, default=str),)
        elif self._grade == "none" and answer is None and not has_column:
            accepted = ()
        else:
            accepted = _accepted(answer, question.options)
        mixed = "options" in self._reader.columns
        why = grading.why_ungradable(self._grade, accepted, question.options, mixed=mixed)
        if why is not None:
            raise BadRow(why)
        system = system_message(row, self._reader.columns, question.system)
        _check_unicode(system or "")
        return ParsedRow(
            problem=asked.text,
            accepted=accepted,
            images=question.images,
            options=question.options,
            system="" if system is None and self._has_template else system,
            preceding=tuple(Message(role=one.role, text=one.text) for one in preceding),
            ground_truth=answer if isinstance(answer, Mapping) else None,
        )

    def _examine(self, *, has_parts: bool) -> tuple[dict[int, str], dict[int, float]]:
        """Return why rows are bad, and the split positions in [0, 1) of good rows (0: unsplit)."""
        bad: dict[int, str] = {}
        shares: dict[int, float] = {}
        with_images: list[int] = []
        for index in range(len(self._table)):
            try:
                row = self._parse(self._table.row(index))
                shares[index] = _share(row) if has_parts else 0.0
                if row.images:
                    with_images.append(index)
            except BadRow as error:
                bad[index] = str(error)

        # Yield one image at a time, since even undecoded images may contain all their bytes.
        def cells() -> Iterator[image_loading.Cell]:
            for index in with_images:
                for image in self._parse(self._table.row(index)).images:
                    yield index, image

        broken = image_loading.find_broken(cells, self._root, self._broken)
        return dict(sorted((bad | broken).items())), shares

    def _broken(self, cells: Iterator[image_loading.Cell]) -> dict[int, str]:
        """Decode images in threads; return, by row, why an image is broken."""

        def check(cell: image_loading.Cell) -> tuple[int, str] | None:
            try:
                image_loading.load_image(cell[1], self._root)
            except ImageError as error:
                return cell[0], str(error)
            return None

        broken: dict[int, str] = {}
        with ThreadPoolExecutor(_THREADS) as pool:
            while some := list(itertools.islice(cells, _IMAGES_AT_ONCE)):
                broken |= dict(bad for bad in pool.map(check, some) if bad is not None)
        return broken

    def _raise_empty(self, part: tuple[str, float] | None, rows: int) -> None:
        if part is None:
            raise ConfigError(f"data={self._name}: has no rows")
        split, share = part
        raise ConfigError(
            f"hold_out={share}: none of the {rows} rows of {self._name} are left for {split}; "
            "change the fraction, or split the data yourself with data={train: ..., eval: ...}"
        )

    def _remedy(self, bad: Sequence[int]) -> str:
        """Suggest how to grade answers that are worked solutions; empty if no bad row has one."""
        for index in bad[:_ROWS_SEARCHED]:
            with contextlib.suppress(BadRow):
                text = _as_text(self._reader.cell(self._table.row(index), "answer"))
                is_solution = grading.final_answer(text) != text
                if is_solution and grading.why_ungradable(self._grade, (text,), ()) is not None:
                    return (
                        ". To grade worked solutions by their final answers, set grade=none and "
                        "the reward agentrl.rewards.maths:Accuracy"
                    )
        return ""


def _check_unicode(text: str) -> None:
    # JSON can contain lone surrogates, but tokenizers reject them.
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRow(f"its text is not valid Unicode: {error}") from None


def _accepted(answer: Any, options: Sequence[str]) -> tuple[str, ...]:
    """Return all accepted answers in a cell; an index becomes the text of its option."""
    if isinstance(answer, str) and _TEXT_LIST.match(answer):
        answer = as_list(answer)
    values = answer if isinstance(answer, list | tuple) else [answer]
    if len(values) == 1 and (index := _option_index(values[0], options)) is not None:
        if not 0 <= index < len(options):
            raise BadRow(
                f"its answer {index} is not an index of its {len(options)} options (from 0)"
            )
        text = str(index)
        if text in map(grading.normalize, options) and grading.normalize(options[index]) != text:
            raise BadRow(
                f"its answer {index} is both the index of one option and the text of another"
            )
        values = [options[index]]
    texts = tuple(_as_text(value) for value in values)
    if not texts or not all(texts):
        raise BadRow(f"it has no answer: {answer!r:.40}")
    return texts


def _option_index(answer: Any, options: Sequence[str]) -> int | None:
    """Return the index of the option that an answer refers to; None for a text answer.

    An integer is an index, even if the file format stores it as `1.0` or as text. But text equal to
    an option means that option.
    """
    # Not isinstance, because a bool counts as text.
    if not options or type(answer) is int:
        return answer if options else None
    text = _as_text(answer)
    if not _WHOLE.fullmatch(text) or grading.normalize(text) in map(grading.normalize, options):
        return None
    return int(float(text))


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return str(value).lower() if isinstance(value, bool) else ""
    if isinstance(value, float) and not np.isfinite(value):
        return ""
    text = str(value)
    answer, is_closed, _ = text.partition("<answer>")[2].partition("</answer>")
    return (answer if is_closed else text).strip()


def _share(row: ParsedRow) -> float:
    """Hash a row's content to a position in [0, 1), so that equal questions share a part."""
    texts = [*(message.text for message in row.preceding), row.problem, *row.accepted]
    digest = hashlib.blake2b("\0".join(texts).encode(errors="replace"), digest_size=8)
    for image in row.images:
        held = image.get("bytes") or image.get("path") if isinstance(image, Mapping) else image
        digest.update(
            held if isinstance(held, bytes) else str(held)[:10_000].encode(errors="replace")
        )
    return int.from_bytes(digest.digest(), "big") / 2**64
