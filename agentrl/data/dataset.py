"""Questions with answers, from the rows of a data set; reports the rows that cannot be used."""

import contextlib
import hashlib
import itertools
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from agentrl.data import image_loading
from agentrl.data.image_loading import ImageError
from agentrl.data.row_columns import columns_for_rewards
from agentrl.data.row_parser import ParsedRow, RowParser
from agentrl.data.tables import BadRow, Table
from agentrl.errors import ConfigError
from agentrl.types import Image, Message

log = logging.getLogger(__name__)

_BLOCK = 1_000_000
"""Seeds of evaluations begin at multiples of a million."""
FIRST_LEARNED_SEED = 100_000_000
"""The first seed of demonstrations and training; those below it are held out."""
SEED_RANGE = 5_000_000
"""Seeds of a run's demonstrations, and of its training: each has a range of its own from there."""
_MAX_LISTED = 5
"""Bad rows that an error lists."""
_ROWS_SEARCHED = 100
"""Bad rows that are searched for worked solutions."""
_THREADS = 8
_IMAGES_AT_ONCE = 256
"""Images held in memory at once while they are checked."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Task:
    """A question, its images, and the accepted answers."""

    name: str
    """Identifies it within its source: a row, or a seed."""
    problem: str
    """The text, with one `<image>` per image of its own."""
    accepted: tuple[str, ...]
    """All accepted answers, the canonical one first; empty if the data has no answers."""
    images: tuple[Image, ...] = ()
    system: str | None = None
    """The system message; empty for none. None if the question is a bare text, without messages,
    template or system message: then the environment explains how to answer."""
    preceding: tuple[Message, ...] = ()
    """Earlier questions and replies of the conversation, in turns, without the system message.
    Their images are the first ones of `images`."""
    options: tuple[str, ...] = ()
    """Choices of a multiple-choice question, A first."""
    guesses: tuple[str, ...] = ()
    """Plausible answers for players that guess without looking."""
    thought: str = ""
    """The reasoning that leads to the answer, for scripted players; may be empty."""
    slip: tuple[str, str] | None = None
    """A typical mistake, for scripted players: the reasoning and the wrong answer."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Ground truth behind the question, recorded and never shown."""
    ground_truth: Any = None
    """The answer as an object, which only a reward function can grade; None for a text."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The columns of its row, for reward functions; see `columns_for_rewards`."""
    image_column: str | None = None
    """The column that held the images."""

    @property
    def answer(self) -> str:
        """The canonical answer."""
        return self.accepted[0]


class TaskSource(Protocol):
    """Provides questions; the same seed always gives the same question."""

    def task(self, seed: int) -> Task:
        """The question of a seed."""


def row_of(seed: int, count: int, shuffle: int | None) -> int:
    """The row for a seed.

    Consecutive seeds visit all rows in a new order each epoch: within the range of a run's
    training, or within a million held-out seeds, each epoch of `count` seeds visits every row once.

    Args:
        seed: not negative.
        count: number of rows.
        shuffle: seed of the orders; None keeps the order of the rows.

    Returns:
        In [0, count).
    """
    size = _BLOCK if seed < FIRST_LEARNED_SEED else SEED_RANGE
    epoch, position = divmod(seed % size, count)
    if shuffle is None:
        return position
    block = (seed - seed % size) // _BLOCK
    return int(_order(count, shuffle, block, epoch)[position])


@lru_cache(maxsize=16)
def _order(count: int, shuffle: int, block: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng([shuffle, block, epoch]).permutation(count)


class Dataset:
    """The valid rows of a table as questions; see `TaskSource`.

    Args:
        table: of rows.
        name: of the data, for messages.
        keys: column names by content, see `find_columns`.
        template: Jinja2 for the question's text; None uses the problem unchanged.
        image_root: the folder that must contain all image paths; None for the table's own.
        on_bad: `refuse` or `skip`.
        shuffle: seed of the order of the rows; None keeps it.
        part: (`train` or `eval`, the fraction held out for `eval`); None takes all rows.
        grade: how answers are graded; a row that no answer could satisfy is bad.
        skip_rows: indices of rows that are left out, such as those that are too long for a model.

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
        self._parser = RowParser(table, name, keys, template, grade)
        column = self._parser.columns.get("images")
        self._image_column = column if column in table.columns else None
        bad, shares = self._examined(shared=part is not None)
        self.bad: Mapping[str, str] = {table.name(index): why for index, why in bad.items()}
        """Why rows cannot be used, by row name, in all parts."""
        good = [index for index in shares if index not in bad and index not in skip_rows]
        if part is not None:
            split, share = part
            good = [index for index in good if (shares[index] < share) == (split == "eval")]
        self._kept = np.array(good, np.int64)
        self._loaded: WeakValueDictionary[tuple[int, int], np.ndarray] = WeakValueDictionary()
        report_bad_rows(name, self.bad, len(table), on_bad, remedy=self._remedy(list(bad)))
        if not good:
            self._raise_empty(part, len(shares.keys() - bad.keys()))
        self.guesses = self._common_answers()

    def __len__(self) -> int:
        return len(self._kept)

    def task(self, seed: int) -> Task:
        """The question of a seed.

        Raises:
            BadRow: its row has become unreadable since the check.
        """
        return self._task(int(self._kept[row_of(seed, len(self._kept), self._shuffle)]))

    def tasks(self) -> Iterator[tuple[int, Task]]:
        """Each row's index and question, in the order of the rows.

        Raises:
            BadRow: as `task`.
        """
        for index in self._kept.tolist():
            yield index, self._task(index)

    def _task(self, index: int) -> Task:
        name = f"{self._name} {self._table.name(index)}"
        try:
            columns = self._table.row(index)
            row = self._parser.parse(columns)
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
            system=row.system,
            preceding=row.preceding,
            options=row.options,
            guesses=self.guesses,
            ground_truth=row.ground_truth,
            row=columns_for_rewards(columns, self._image_column),
            image_column=self._image_column,
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
        with_images: list[int] = []
        for index in range(len(self._table)):
            try:
                row = self._parser.parse(self._table.row(index))
                shares[index] = _share(row) if shared else 0.0
                if row.images:
                    with_images.append(index)
            except BadRow as error:
                bad[index] = str(error)
        broken = image_loading.find_broken(
            lambda: self._cells(with_images), self._root, self._broken
        )
        return dict(sorted((bad | broken).items())), shares

    def _cells(self, indices: Sequence[int]) -> Iterator[image_loading.Cell]:
        """The undecoded images of some rows, one by one: they may hold all their bytes."""
        for index in indices:
            for image in self._parser.parse(self._table.row(index)).images:
                yield index, image

    def _broken(self, cells: Iterator[image_loading.Cell]) -> dict[int, str]:
        """Find images that cannot be decoded, in threads: return the reason by row."""

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
            raise ConfigError(f"data={self._name}: it has no rows")
        split, share = part
        raise ConfigError(
            f"hold_out={share}: none of the {rows} rows of {self._name} is left for {split}; "
            "choose another fraction, or split the data yourself with data={train: ..., eval: ...}"
        )

    def _remedy(self, bad: Sequence[int]) -> str:
        """How to grade bad rows whose answers are worked solutions; empty if there are none."""
        for index in bad[:_ROWS_SEARCHED]:
            with contextlib.suppress(BadRow):
                if self._parser.has_worked_solution(self._table.row(index)):
                    return (
                        ". To grade worked solutions by their final answers, set grade=none and "
                        "the reward agentrl.rewards.maths:Accuracy"
                    )
        return ""

    def _common_answers(self) -> tuple[str, ...]:
        """A few answers of the rows, for scripted players that guess."""
        indices = self._kept[:: max(1, len(self._kept) // 50)].tolist()
        rows = (self._parser.parse(self._table.row(index)) for index in indices)
        return tuple(sorted({answer for row in rows for answer in row.accepted[:1]})[:10])


def report_bad_rows(
    name: str,
    bad: Mapping[str, str],
    rows: int,
    on_bad: str,
    setting: str = "on_bad",
    remedy: str = "",
) -> None:
    """Refuse a data set with bad rows, or warn that they are skipped.

    Args:
        name: of the data.
        bad: why rows cannot be used, by row name.
        rows: number of all rows.
        on_bad: `refuse` or `skip`.
        setting: that says so.
        remedy: a sentence that is added to the error.

    Raises:
        ConfigError: rows are bad and may not be skipped, or all rows are.
    """
    if on_bad not in ("refuse", "skip"):
        raise ConfigError(f"{setting}={on_bad!r}: must be refuse or skip")
    if not bad:
        return
    named = "; ".join(f"{row}: {why}" for row, why in list(bad.items())[:_MAX_LISTED])
    more = f"; and {len(bad) - _MAX_LISTED} more" if len(bad) > _MAX_LISTED else ""
    what = f"data={name}: {len(bad)} of {rows} rows are bad: {named}{more}"
    if on_bad == "refuse":
        raise ConfigError(f"{what}. Fix them, or leave them out with {setting}=skip{remedy}")
    if len(bad) == rows:
        raise ConfigError(f"{what}{remedy}")
    _warn_once(f"{what}. They are skipped ({setting}=skip)")


@lru_cache
def _warn_once(message: str) -> None:
    log.warning("%s", message)


def _share(row: ParsedRow) -> float:
    """A row's position in [0, 1), hashed from its content, so that equal questions share a part."""
    texts = [*(message.text for message in row.preceding), row.problem, *row.accepted]
    digest = hashlib.blake2b("\0".join(texts).encode(errors="replace"), digest_size=8)
    for image in row.images:
        held = image.get("bytes") or image.get("path") if isinstance(image, Mapping) else image
        digest.update(
            held if isinstance(held, bytes) else str(held)[:10_000].encode(errors="replace")
        )
    return int.from_bytes(digest.digest(), "big") / 2**64
