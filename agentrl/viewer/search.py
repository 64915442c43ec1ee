"""Find episodes by the words in them."""

import logging
import shutil
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

from agentrl.errors import ConfigError
from agentrl.replay import Run
from agentrl.text import encodable
from agentrl.types import Episode

log = logging.getLogger(__name__)

_BATCH = 200
"""Episodes between two commits."""


class Search:
    """An index of all words that were shown, said or complained of; made when first asked for.

    Args:
        run: the recorded run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._folder: Path | None = None
        self._known: set[str] = set()
        self._reading: threading.Thread | None = None
        self._lock = threading.Lock()

    def find(self, text: str) -> set[str]:
        """The ids of the episodes that have these words, one after the other.

        The last word may be the beginning of one. Episodes that have not been read yet are left
        out; `progress` tells how many were.
        """
        self._read_on()
        words = text.replace('"', " ").split()
        if not words:
            return set()
        phrase = f'"{" ".join(words)}"*'
        with self._open() as database:
            try:
                found = database.execute("SELECT id FROM words WHERE words MATCH ?", (phrase,))
                return {str(row[0]) for row in found}
            except sqlite3.OperationalError as error:
                log.info("a search for %r: %s", text, error)  # nothing but signs, say
                return set()

    def progress(self) -> tuple[int, int]:
        """Episodes that were read, and that there are."""
        return len(self._known), len(self._run.episodes())

    def _open(self) -> "_Database":
        assert self._folder is not None, "nothing was asked for"
        return _Database(self._folder / "words.sqlite")

    def _read_on(self) -> None:
        """Have what is new read, in a thread of its own."""
        with self._lock:
            if self._folder is None:
                self._folder = Path(mkdtemp(prefix="agentrl-search-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
                with self._open() as database:
                    database.execute("PRAGMA journal_mode=WAL")
                    database.execute("CREATE VIRTUAL TABLE words USING fts5(id UNINDEXED, said)")
            if self._reading is None or not self._reading.is_alive():
                self._reading = threading.Thread(target=self._read, name="search", daemon=True)
                self._reading.start()

    def _read(self) -> None:
        new = [s.id for s in self._run.episodes() if s.id not in self._known]
        for first in range(0, len(new), _BATCH):
            some = new[first : first + _BATCH]
            with self._open() as database:
                database.executemany("INSERT INTO words VALUES (?, ?)", self._rows(some))
            self._known.update(some)

    def _rows(self, ids: list[str]) -> Iterator[tuple[str, str]]:
        for id in ids:
            try:
                yield id, encodable("\n".join(_words(self._run.episode(id).episode)))
            except ConfigError as error:
                log.info("not searched: %s", error)


class _Database:
    """A connection for one thread and one piece of work, which is committed."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=30)

    def __enter__(self) -> sqlite3.Connection:
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.commit()
        self._connection.close()


def _words(episode: Episode) -> Iterator[str]:
    yield episode.id
    yield episode.error or ""
    for turn in episode.turns:
        yield turn.shown
        yield turn.reply
        yield turn.parse_error or ""
    yield episode.final_shown
