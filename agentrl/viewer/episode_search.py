"""Find episodes by the words in them."""

import logging
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence

from agentrl.errors import ConfigError
from agentrl.replay import Run, Summary
from agentrl.text import encodable
from agentrl.types import Episode

log = logging.getLogger(__name__)

_BATCH = 200
"""Episodes between two commits."""
_WANTED = re.compile(r'"([^"]*)"?|([^\s"]+)')
"""Words in quotation marks, or a word."""
_FROM, _TO = "\x02", "\x03"
"""Around what was found."""
_APART = "\x04"
"""Between characters, where no space tells words apart; never shown."""
_UNSPACED = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Chinese
    "\uac00-\ud7a3"  # Korean has spaces, and words within words
)
_GAP = re.compile(rf"(?<=[{_UNSPACED}])(?=\w)|(?<=\w)(?=[{_UNSPACED}])")
_EXCERPT_TOKENS = 24
_EXCERPT = 240
"""Characters of an excerpt; a token may have any number."""
_BEFORE = 80
"""Of them, those in front of the first that was found."""
_MOST_EXCERPTS = 100

_UNMARKED = str.maketrans(_FROM + _TO + _APART, "   ")

Excerpt = list[tuple[str, bool]]
"""Words from an episode, piece by piece, and whether each was looked for."""


class Search:
    """An index of all words that were shown, said or complained of; made when first asked for.

    Args:
        run: the recorded run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._words: sqlite3.Connection | None = None
        self._known: dict[str, tuple[float, int]] = {}
        """When what was read had been recorded, and the row that it has, by id."""
        self._last_row = 0
        self._reading: threading.Thread | None = None
        self._closing = threading.Event()
        self._lock = threading.Lock()

    def find(self, text: str) -> set[str]:
        """The ids of the episodes that have all of these words, wherever.

        Each may be the beginning of a word; those in quotation marks stand one after the other.
        Episodes that have not been read yet are left out; `progress` tells how many were.
        """
        found = self._asked("SELECT id FROM words WHERE words MATCH ?", text)
        ids = {str(id) for (id,) in found}
        return {s.id for s in self._run.episodes() if s.id in ids and self._has_read(s)}

    def excerpts(self, text: str, ids: Sequence[str]) -> dict[str, Excerpt]:
        """Of the first of these episodes the place where the words are."""
        rows = [self._known.get(id, (0.0, 0))[1] for id in ids[:_MOST_EXCERPTS]]
        query = (
            f"SELECT id, snippet(words, 1, ?, ?, '…', {_EXCERPT_TOKENS}) FROM words "
            f"WHERE words MATCH ? AND rowid IN ({', '.join('?' * len(rows))})"
        )
        return {id: _parts(said) for id, said in self._asked(query, text, _FROM, _TO, rows=rows)}

    def _asked(
        self, query: str, text: str, *before: str, rows: Sequence[int] = ()
    ) -> list[tuple[str, ...]]:
        """What the index says of these words; nothing of words that nothing can hold."""
        database = self._read_on()
        if not (wanted := _wanted(text)):
            return []
        with self._lock:
            try:
                return database.execute(query, (*before, wanted, *rows)).fetchall()
            except sqlite3.OperationalError as error:
                log.info("a search for %r: %s", text, error)  # more words than it takes, say
                return []

    def progress(self) -> tuple[int, int]:
        """Episodes that were read, and that there are."""
        there = self._run.episodes()
        return sum(map(self._has_read, there)), len(there)

    def close(self) -> None:
        """Read no more."""
        self._closing.set()
        with self._lock:
            reading = self._reading
        if reading is not None:
            reading.join()

    def _read_on(self) -> sqlite3.Connection:
        """Have what is new read, in a thread of its own."""
        with self._lock:
            if self._words is None:
                # Without a name it is a file that nobody else sees, and that no end, not even a
                # kill, leaves behind: https://sqlite.org/inmemorydb.html#temp_db
                self._words = sqlite3.connect("", check_same_thread=False)
                # With an index of beginnings one letter is found as quickly as a word.
                self._words.execute(
                    "CREATE VIRTUAL TABLE words USING fts5(id UNINDEXED, said, prefix='1 2 3')"
                )
            if self._reading is None or not self._reading.is_alive():
                self._reading = threading.Thread(
                    target=self._read, args=(self._words,), name="search", daemon=True
                )
                self._reading.start()
            return self._words

    def _has_read(self, summary: Summary) -> bool:
        """Not where the same id was recorded again since, as where another run took its place."""
        time, _ = self._known.get(summary.id, (None, 0))
        return time == summary.time

    def _read(self, database: sqlite3.Connection) -> None:
        there = self._run.episodes()
        self._forget(database, self._known.keys() - {s.id for s in there if self._has_read(s)})
        new = [summary for summary in there if not self._has_read(summary)]
        for first in range(0, len(new), _BATCH):
            if self._closing.is_set():
                return
            some = new[first : first + _BATCH]
            rows = list(self._rows(some))
            with self._lock, database:
                database.executemany("INSERT INTO words (rowid, id, said) VALUES (?, ?, ?)", rows)
            placed = {id: row for row, id, _ in rows}
            self._known |= {s.id: (s.time, placed.get(s.id, 0)) for s in some}

    def _forget(self, database: sqlite3.Connection, ids: Iterable[str]) -> None:
        rows = [(self._known.pop(id)[1],) for id in list(ids)]
        with self._lock, database:
            database.executemany("DELETE FROM words WHERE rowid = ?", rows)

    def _rows(self, some: Iterable[Summary]) -> Iterator[tuple[int, str, str]]:
        for summary in some:
            if self._closing.is_set():
                return
            try:
                said = "\n".join(_words(self._run.episode(summary.id).episode))
            except ConfigError as error:
                log.info("not searched: %s", error)
                continue
            self._last_row += 1
            yield self._last_row, summary.id, _apart(encodable(said).translate(_UNMARKED))


def _wanted(text: str) -> str:
    """A query for all words: a part of it without any letter or digit would find nothing."""
    parts = (quoted or bare for quoted, bare in _WANTED.findall(encodable(text)))
    return " ".join(f'"{_apart(part)}"*' for part in parts if any(map(str.isalnum, part)))


def _apart(text: str) -> str:
    """The same with each character a word of its own in scripts that write words without spaces.

    What is looked for in them is then a row of such words: the index has no dictionary, and would
    take a whole sentence for one word.
    """
    return text if text.isascii() else _GAP.sub(_APART, text)


def _parts(said: str) -> Excerpt:
    """A marked text cut into its parts, no longer than a line or two."""
    before, *others = re.split(f"[{_FROM}{_TO}]", re.sub(r"\s+", " ", said.replace(_APART, "")))
    if len(before) > _BEFORE:
        before = f"…{before[-_BEFORE:]}"
    room = _EXCERPT
    found: Excerpt = []
    for number, part in enumerate([before, *others]):
        if part and room > 0:
            found.append((part if len(part) <= room else f"{part[:room]}…", number % 2 == 1))
        room -= len(part)
    return found


def _words(episode: Episode) -> Iterator[str]:
    yield episode.id
    yield episode.error or ""
    for turn in episode.turns:
        yield turn.shown
        yield turn.reply
        yield turn.parse_error or ""
    yield episode.final_shown
