"""Full-text search over the episodes of a run."""

import logging
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, takewhile

from agentrl.errors import ConfigError
from agentrl.replay import Run, Summary
from agentrl.text.formatting import encodable
from agentrl.types import Episode

log = logging.getLogger(__name__)

_BATCH = 200
"""Number of episodes per commit."""
_QUERY_PART = re.compile(r'"([^"]*)"?|([^\s"]+)')
"""Matches a quoted phrase or a word."""
_FROM, _TO = "\x02", "\x03"
"""Markers around a match."""
_APART = "\x04"
"""Separates characters in scripts without spaces between words; never shown."""
_UNSPACED = (
    # Thai, Lao, Burmese, Khmer.
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"
    # Japanese.
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"
    # Chinese.
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
    # Korean, which has spaces, but also compounds within words.
    "\uac00-\ud7a3"
)
_GAP = re.compile(rf"(?<=[{_UNSPACED}])(?=\w)|(?<=\w)(?=[{_UNSPACED}])")
_MAX_WORDS = 50
"""Maximum number of different words in a search, whose duration grows with their number."""
_EXCERPT = 240
"""Maximum length of an excerpt, in characters."""
_BEFORE = 80
"""Number of characters in an excerpt before the first match."""
_MAX_EXCERPTS = 100
_MAX_MATCHES = 200
"""Maximum number of matches in a text to consider when choosing an excerpt."""
_STOP_S = 5.0
_WORD = re.compile(r"[^\W_]+")

_UNMARKED = str.maketrans(_FROM + _TO + _APART, "   ")

Excerpt = list[tuple[str, bool]]
"""Pieces of an episode's text, each with whether it is a match."""


class EpisodeSearch:
    """Full-text index of shown texts, replies and errors, built in a thread on first use."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._words: sqlite3.Connection | None = None
        self._known: dict[str, tuple[float, int]] = {}
        """Recording time and index row of each episode read so far, by id."""
        self._last_row = 0
        self._reading: threading.Thread | None = None
        self._closing = threading.Event()
        self._lock = threading.Lock()

    def find(self, text: str) -> set[str]:
        """Return the ids of episodes that contain all of these words.

        Each word matches as a prefix; a quoted phrase matches consecutive words. Episodes that have
        not been read yet are not found; `progress` counts them.

        Raises:
            ConfigError: there are too many words.
        """
        expression = " ".join(f'"{part}"*' for part in _search_terms(text))
        rows = self._query("SELECT id FROM words WHERE words MATCH ?", [expression])
        ids = {id for (id,) in rows}
        return {s.id for s in self._run.episodes() if s.id in ids and self._has_read(s)}

    def excerpts(self, text: str, ids: Sequence[str]) -> dict[str, Excerpt]:
        """Return the text around the matches, for the first few of these episodes.

        Raises:
            ConfigError: there are too many words.
        """
        rows = [self._known.get(id, (0.0, 0))[1] for id in ids[:_MAX_EXCERPTS]]
        chosen = f"rowid IN ({', '.join('?' * len(rows))})"
        texts = self._query(f"SELECT id, content FROM words WHERE {chosen}", rows)
        pattern = _pattern(_search_terms(text))
        return {id: _parts(_snippet(content, pattern)) for id, content in texts}

    def _query(self, query: str, values: Sequence[str | int]) -> list[tuple[str, ...]]:
        """Run a query; return no results without values or on failure."""
        database = self._start_reading()
        if not any(values):
            return []
        with self._lock:
            try:
                return database.execute(query, values).fetchall()
            # The disk may be full, for example.
            except sqlite3.OperationalError as error:
                log.info("search for %r failed: %s", values, error)
                return []

    def progress(self) -> tuple[int, int]:
        """Return the number of episodes read so far, and their total."""
        episodes = self._run.episodes()
        return sum(map(self._has_read, episodes)), len(episodes)

    def close(self) -> None:
        """Stop reading."""
        self._closing.set()
        # The thread may be waiting for a running search.
        if self._reading is not None:
            self._reading.join(_STOP_S)

    def _start_reading(self) -> sqlite3.Connection:
        """Start a thread that reads new episodes, unless one is running."""
        with self._lock:
            if self._words is None:
                # An empty name creates a private temporary file that disappears even on kill -9:
                # https://sqlite.org/inmemorydb.html#temp_db
                self._words = sqlite3.connect("", check_same_thread=False)
                # The prefix index makes searching for one letter as fast as for a word.
                self._words.execute(
                    "CREATE VIRTUAL TABLE words USING fts5(id UNINDEXED, content, prefix='1 2 3')"
                )
            if self._reading is None or not self._reading.is_alive():
                self._reading = threading.Thread(
                    target=self._read, args=(self._words,), name="search", daemon=True
                )
                self._reading.start()
            return self._words

    def _has_read(self, summary: Summary) -> bool:
        """Return whether this recording was read; its id may have been recorded again later."""
        time, _ = self._known.get(summary.id, (None, 0))
        return time == summary.time

    def _read(self, database: sqlite3.Connection) -> None:
        episodes = self._run.episodes()
        # Episodes that are gone, or recorded again by a resumed job.
        stale = self._known.keys() - {s.id for s in episodes if self._has_read(s)}
        rows_of_stale = [(self._known.pop(id)[1],) for id in stale]
        with self._lock, database:
            database.executemany("DELETE FROM words WHERE rowid = ?", rows_of_stale)
        new = [summary for summary in episodes if not self._has_read(summary)]
        for first in range(0, len(new), _BATCH):
            if self._closing.is_set():
                return
            batch = new[first : first + _BATCH]
            rows = list(self._rows(batch))
            with self._lock, database:
                database.executemany(
                    "INSERT INTO words (rowid, id, content) VALUES (?, ?, ?)", rows
                )
            row_of = {id: row for row, id, _ in rows}
            self._known |= {s.id: (s.time, row_of.get(s.id, 0)) for s in batch}

    def _rows(self, batch: Iterable[Summary]) -> Iterator[tuple[int, str, str]]:
        for summary in batch:
            if self._closing.is_set():
                return
            try:
                text = "\n".join(_texts(self._run.episode(summary.id).episode))
            except ConfigError as error:
                log.info("an episode cannot be searched: %s", error)
                continue
            self._last_row += 1
            yield self._last_row, summary.id, _apart(encodable(text).translate(_UNMARKED))


def _search_terms(text: str) -> list[str]:
    """Return the distinct words and phrases of a search that contain a letter or digit.

    Raises:
        ConfigError: there are too many words.
    """
    parts = (_apart(quoted or bare) for quoted, bare in _QUERY_PART.findall(encodable(text)))
    terms = list({_fold(part): part for part in parts if any(map(str.isalnum, part))}.values())
    count = sum(len(_WORD.findall(term)) for term in terms)
    if count > _MAX_WORDS:
        raise ConfigError(f"a search can have at most {_MAX_WORDS} words, got {count:,}")
    return terms


def _pattern(terms: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern that finds the terms in folded text, with a group for each."""
    ways = (r"[\W_]++".join(_WORD.findall(_fold(term))) for term in terms)
    # Put longer terms first, as a word may start with several terms.
    groups = "|".join(f"({way})" for way in sorted(ways, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{groups})[^\W_]*+")


def _fold(text: str) -> str:
    """Fold a text to lower case without diacritics like FTS5, keeping its length."""
    return text.lower() if text.isascii() else "".join(map(_fold_character, text))


@cache
def _fold_character(character: str) -> str:
    base = unicodedata.normalize("NFD", character)
    return base.lower()[0] if all(map(unicodedata.combining, base[1:])) else character


def _snippet(content: str, pattern: re.Pattern[str]) -> str:
    """Return the part of a text with the most distinct terms, with markers around matches."""
    # FTS5's own snippets would take time quadratic in the number of matches.
    matches = list(islice(pattern.finditer(_fold(content)), _MAX_MATCHES))

    def count(first: int) -> int:
        end = matches[first].start() + _EXCERPT - _BEFORE
        near = takewhile(lambda match: match.start() < end, matches[first:])
        return len({match.lastindex for match in near})

    best = max(range(len(matches)), key=count, default=0)
    start = max(0, matches[best].start() - 2 * _BEFORE) if matches else 0
    end = start + 3 * _EXCERPT
    pieces, at = ["…" if start else ""], start
    for match in matches:
        if start <= match.start() < end:
            found = content[match.start() : min(match.end(), end)]
            pieces += content[at : match.start()], _FROM, found, _TO
            at = match.end()
    return "".join([*pieces, content[at:end]])


def _apart(text: str) -> str:
    """Separate the characters of scripts without spaces between words."""
    # The index has no dictionary and would treat a whole sentence as one word. Once separated, each
    # character is a word, and a search term becomes a phrase of one-character words.
    return text if text.isascii() else _GAP.sub(_APART, text)


def _parts(snippet: str) -> Excerpt:
    """Split a marked snippet at its markers, and shorten it to a line or two."""
    before, *others = re.split(f"[{_FROM}{_TO}]", re.sub(r"\s+", " ", snippet.replace(_APART, "")))
    if len(before) > _BEFORE:
        before = f"…{before[-_BEFORE:]}"
    left = _EXCERPT
    excerpt: Excerpt = []
    for number, part in enumerate([before, *others]):
        if part and left > 0:
            excerpt.append((part if len(part) <= left else f"{part[:left]}…", number % 2 == 1))
        left -= len(part)
    return excerpt


def _texts(episode: Episode) -> Iterator[str]:
    yield episode.id
    yield episode.error or ""
    for message in episode.preceding:
        yield message.text
    for turn in episode.turns:
        yield turn.shown
        yield turn.reply
        yield turn.parse_error or ""
    yield episode.final_shown
