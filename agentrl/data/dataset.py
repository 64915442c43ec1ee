"""Questions from the rows of a data set, and what is wrong with them."""

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
from agentrl.data.image_loading import PictureError
from agentrl.data.prompt_templates import names_in, parsed
from agentrl.data.tables import BadRow, Row, Table
from agentrl.data.tasks import Task, row_of
from agentrl.errors import ConfigError, told
from agentrl.text import did_you_mean, quoted
from agentrl.types import IMAGE, Image, words_of

log = logging.getLogger(__name__)

KEYS = {
    "problem": ("problem", "question", "prompt"),
    "answer": ("answer", "solution", "label"),
    "images": ("images", "image"),
    "options": ("options", "choices"),
    "messages": ("messages", "message", "conversations"),
}
"""What a column may be called where nothing is said."""
_NAMED = 5
"""Bad rows that an error names."""
_THREADS = 8
_LOOKED_AT = 20
"""Rows in which columns of pictures are looked for."""
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
"""Pictures that are held at once while they are examined."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Asked:
    """A row's words, its pictures still where they are."""

    problem: str
    accepted: tuple[str, ...]
    images: tuple[Any, ...]
    options: tuple[str, ...]


class Dataset:
    """The good rows of a table as questions; see `Source`.

    Args:
        table: of rows.
        name: of the data, for messages.
        keys: columns by what they hold, where they are called otherwise than `KEYS` says.
        template: Jinja2 for a question's words; None takes the problem as it stands.
        image_root: the folder that pictures' paths must stay in; None for the table's own.
        on_bad: `refuse` or `skip`.
        shuffle: names the order of the rows; None keeps it.
        part: (`train` or `eval`, the share that `eval` has); None takes all rows.
        grade: the rule of its answers; a row that nobody could be right about is bad.

    Raises:
        ConfigError: a column is not there, the template is broken, rows are bad and not to be
            skipped, or none is left.
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
            None if template is None else parsed(template, f"template={template!r:.80}")
        )
        bad, shares = self._examined(shared=part is not None)
        self.bad: Mapping[str, str] = {table.name(place): why for place, why in bad.items()}
        """Why a row cannot be used, by its name; whichever part it would belong to."""
        good = [place for place in shares if place not in bad]
        if part is not None:
            split, share = part
            good = [place for place in good if (shares[place] < share) == (split == "eval")]
        self._kept = np.array(good, np.int64)
        self._loaded: WeakValueDictionary[tuple[int, int], np.ndarray] = WeakValueDictionary()
        self._refuse(on_bad)
        if not good:
            self._tell_empty(part, len(shares.keys() - bad.keys()))
        self.guesses = self._usual_answers()
        self._tell_unused(set() if template is None else names_in(template))

    def __len__(self) -> int:
        return len(self._kept)

    def task(self, seed: int) -> Task:
        """The question of a seed.

        Raises:
            BadRow: its row has become bad since it was examined.
        """
        place = int(self._kept[row_of(seed, len(self._kept), self._shuffle)])
        name = f"{self._name} {self._table.name(place)}"
        try:
            asked = self._asked(self._table.row(place))
            shown = tuple(
                self._picture(place, number, image) for number, image in enumerate(asked.images)
            )
        except (BadRow, PictureError) as error:
            raise BadRow(f"{name}: {error}") from error
        return Task(
            name=name,
            problem=asked.problem,
            accepted=asked.accepted,
            images=shown,
            options=asked.options,
            guesses=self.guesses,
        )

    def _picture(self, place: int, number: int, image: Any) -> Image:
        """A picture of a row; siblings, who are asked the same at once, are shown the same one."""
        known = self._loaded.get((place, number))
        if known is None:
            known = image_loading.load(image, self._root).view()
            known.flags.writeable = False
            self._loaded[place, number] = known
        return known

    def _examined(self, *, shared: bool) -> tuple[dict[int, str], dict[int, float]]:
        """Why rows are bad; where those that can be read fall in [0, 1), if they are `shared`."""
        bad: dict[int, str] = {}
        shares: dict[int, float] = {}
        for place in range(len(self._table)):
            try:
                asked = self._asked(self._table.row(place))
                shares[place] = _share(asked) if shared else 0.0
            except BadRow as error:
                bad[place] = str(error)
        broken = image_cache.examine(lambda: self._cells(list(shares)), self._root, self._broken)
        return dict(sorted((bad | broken).items())), shares

    def _cells(self, places: Sequence[int]) -> Iterator[image_cache.Cell]:
        """The pictures of some rows as they stand there, which may be all their bytes."""
        for place in places:
            for image in self._asked(self._table.row(place)).images:
                yield place, image

    def _broken(self, cells: Iterator[image_cache.Cell]) -> dict[int, str]:
        """Which of these pictures cannot be shown; decoding lets other threads run."""

        def look(cell: image_cache.Cell) -> tuple[int, str] | None:
            try:
                image_loading.load(cell[1], self._root)
            except PictureError as error:
                return cell[0], str(error)
            return None

        found: dict[int, str] = {}
        with ThreadPoolExecutor(_THREADS) as pool:
            while some := list(itertools.islice(cells, _AT_ONCE)):
                found |= dict(bad for bad in pool.map(look, some) if bad is not None)
        return found

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
            raise ConfigError(f"{what}. Mend them, or leave them out with on_bad=skip")
        if len(self.bad) == rows:
            raise ConfigError(what)
        _tell_once(f"{what}. They are skipped (on_bad=skip)")

    def _tell_empty(self, part: tuple[str, float] | None, rows: int) -> None:
        if part is None:
            raise ConfigError(f"data={self._name}: there is no row in it")
        split, share = part
        raise ConfigError(
            f"hold_out={share}: of the {rows} rows of {self._name} none is {split}; choose another "
            "share, or split the data yourself with data={train: ..., eval: ...}"
        )

    def _usual_answers(self) -> tuple[str, ...]:
        """A few of the answers that the rows have, for players who guess."""
        places = self._kept[:: max(1, len(self._kept) // 50)].tolist()
        answers = (self._asked(self._table.row(place)).accepted[0] for place in places)
        return tuple(sorted(dict.fromkeys(answers))[:10])

    def _tell_unused(self, rendered: set[str]) -> None:
        """Name the columns that nobody is shown, and above all those that hold pictures."""
        used = {*self._keys.values(), *rendered}
        unused = [column for column in self._table.columns if column not in used]
        if not unused:
            return
        words = f"data={self._name}: columns that are not used: {', '.join(map(quoted, unused))}"
        some = [self._table.row(int(place)) for place in self._kept[:_LOOKED_AT]]
        if "images" not in self._keys and not any(self._asked(row).images for row in some):
            shown = [name for name in unused if _seems_pictures(name, some)]
            if shown:
                words += (
                    f". The questions have no pictures, and {quoted(shown[0])} seems to hold some: "
                    f"say keys={{images: {shown[0]}}} if it does"
                )
        _tell_once(words)

    def _asked(self, row: Row) -> Asked:
        said = self._said(row)
        images = _list(row.get(self._keys.get("images", "")))
        own = [image for image in said.images if image is not None]
        if own and images:
            raise BadRow("it has pictures in its messages and in a column of their own")
        images = own or images
        problem = self._rendered(row, said.problem)
        places = problem.count(IMAGE)
        if not places:
            problem = IMAGE * len(images) + problem
        elif places != len(images):
            raise BadRow(f"{IMAGE} stands {places} times in it, for {len(images)} pictures")
        if not words_of(problem) and not images:
            raise BadRow("it asks nothing")
        if not problem.isascii():
            _check_unicode(problem)
        options = _options(row.get(self._keys.get("options", "")))
        if (option := grading.misplaced(options)) is not None:
            raise BadRow(f"its option {quoted(option)} is the letter of another one")
        accepted = _accepted(self._answer(row, said), options)
        if (why := grading.hopeless(self._grade, accepted, options)) is not None:
            raise BadRow(why)
        return Asked(
            problem=problem,
            accepted=accepted,
            images=tuple(images),
            options=options,
        )

    def _said(self, row: Row) -> Question:
        if "messages" in self._keys:
            return read_messages(row.get(self._keys["messages"]))
        problem = row.get(self._keys["problem"])
        if not isinstance(problem, str):
            raise BadRow(f"{self._keys['problem']} is {_kind(problem)}, not text")
        return Question(problem=problem, images=(), answer=None)

    def _answer(self, row: Row, said: Question) -> Any:
        if "answer" not in self._keys:
            return said.answer
        return row.get(self._keys["answer"])

    def _rendered(self, row: Row, problem: str) -> str:
        if self._template is None:
            return problem
        try:
            return str(self._template.render({**row, "problem": problem})).strip()
        except Exception as error:  # a template computes: it can fail in as many ways as a program
            raise BadRow(f"the template fails: {told(error)}") from error


def _columns(table: Table, name: str, keys: dict[str, str]) -> dict[str, str]:
    """The column of each thing that there is one for."""
    if not len(table):
        raise ConfigError(f"data={name}: there is no row in it")
    have = list(table.columns)
    for thing, column in keys.items():
        if thing not in KEYS:
            raise ConfigError(f"keys.{thing}: must be one of {', '.join(KEYS)}")
        if column not in have:
            raise ConfigError(
                f"keys.{thing}={column}: {name} has no such column{did_you_mean(column, have)}. "
                f"It has: {', '.join(have)}"
            )
    found = {
        thing: keys.get(thing) or next((n for n in names if n in have), None)
        for thing, names in KEYS.items()
    }
    columns = {thing: column for thing, column in found.items() if column is not None}
    if "problem" in columns and "messages" in columns:
        # A column that is named counts; of two that are guessed, the plain words.
        del columns["problem" if "messages" in keys and "problem" not in keys else "messages"]
    if "problem" not in columns and "messages" not in columns:
        raise ConfigError(
            f"data={name}: no column is called {_any_of('problem', 'messages')}; say which holds "
            f"the question, as keys={{problem: ...}}. It has: {', '.join(have)}"
        )
    if "answer" not in columns and "messages" not in columns:
        raise ConfigError(
            f"data={name}: no column is called {_any_of('answer')}; say which holds it, as "
            f"keys={{answer: ...}}. It has: {', '.join(have)}"
        )
    return columns


def _any_of(*things: str) -> str:
    names = [name for thing in things for name in KEYS[thing]]
    return f"{', '.join(names[:-1])} or {names[-1]}"


@lru_cache
def _tell_once(words: str) -> None:
    log.warning("%s", words)


def _seems_pictures(column: str, rows: Sequence[Row]) -> bool:
    """Whether a column is called as one of pictures, or names files of pictures."""
    if _PICTURES.fullmatch(column):
        return True
    cells = (row.get(column) for row in rows)
    firsts = (cell[0] if isinstance(cell, list) and cell else cell for cell in cells)
    return any(isinstance(one, str) and _PICTURE_FILE.search(one) for one in firsts)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half of a character, which JSON can hold
        raise BadRow(f"its words are no Unicode: {error}") from None


def _list(value: Any) -> list[Any]:
    """The values of a cell: none, one, or several; a list may be written as JSON."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadRow(f"{quoted(value)} is no list in JSON") from None
    return list(value) if isinstance(value, list | tuple) else [value]


def _options(value: Any) -> tuple[str, ...]:
    """The choices of a cell, A first: a list, or a mapping from their letters."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadRow(f"its options {quoted(value)} are no JSON") from None
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
    """The options of a mapping from their letters; Parquet has null for those that a row lacks."""
    given = {str(key).upper(): value for key, value in options.items() if value is not None}
    letters = [chr(ord("A") + place) for place in range(len(given))]
    if sorted(given) != letters:
        raise BadRow(f"its options are under {', '.join(map(str, options))}, not under A, B, ...")
    return [given[letter] for letter in letters]


def _accepted(answer: Any, options: Sequence[str]) -> tuple[str, ...]:
    values = answer if isinstance(answer, list | tuple) else [answer]
    if len(values) == 1 and (place := _place(values[0], options)) is not None:
        values = [_option_at(place, options)]
    texts = tuple(_words(value) for value in values)
    if not texts or not all(texts):
        raise BadRow(f"it has no answer: {answer!r:.40}")
    return texts


def _place(answer: Any, options: Sequence[str]) -> int | None:
    """The place among the options that an answer is; None for one that is words.

    A whole number is one, also where its format has no such type and makes it `1.0` or text; but
    the words of an option are that option.
    """
    if not options or type(answer) is int:  # a bool is a word
        return answer if options else None
    words = _words(answer)
    if not _WHOLE.fullmatch(words) or grading.plain(words) in map(grading.plain, options):
        return None
    return int(float(words))


def _option_at(place: int, options: Sequence[str]) -> str:
    if not 0 <= place < len(options):
        raise BadRow(f"its answer {place} is no place of {len(options)} options, counted from 0")
    text = str(place)
    if text in map(grading.plain, options) and grading.plain(options[place]) != text:
        raise BadRow(f"its answer {place} is the place of an option and the text of another one")
    return options[place]


def _words(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return str(value).lower() if isinstance(value, bool) else ""
    if isinstance(value, float) and not np.isfinite(value):
        return ""
    return str(value).strip()


def _kind(value: Any) -> str:
    return "missing" if value is None else type(value).__name__


def _share(asked: Asked) -> float:
    """Where a row falls in [0, 1), told by what it asks: equal questions stay together."""
    words = [asked.problem, *asked.accepted]
    digest = hashlib.blake2b("\0".join(words).encode(errors="replace"), digest_size=8)
    for image in asked.images:
        held = image.get("bytes") or image.get("path") if isinstance(image, Mapping) else image
        digest.update(
            held if isinstance(held, bytes) else str(held)[:10_000].encode(errors="replace")
        )
    return int.from_bytes(digest.digest(), "big") / 2**64
