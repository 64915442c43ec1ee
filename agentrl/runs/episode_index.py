"""In-memory index of a run's episodes, updated as the files on disk grow."""

import logging
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.runs.episode_summary import Summary, summary_of
from agentrl.runs.jsonl import JsonlTails
from agentrl.runs.run_paths import FORMAT, episodes_folder, notes_file, removals_file

log = logging.getLogger(__name__)

_SCORES, _INDEX = "scores-*.jsonl", "index-*.jsonl"


class EpisodeIndex:
    """Summaries of all episodes, ordered by end time.

    Each call reads only the lines appended since the previous one.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._tails = JsonlTails(episodes_folder(run))
        self._entries: dict[str, dict[str, Any]] = {}
        self._scores: dict[str, dict[str, Any]] = {}
        self._notes: dict[str, dict[str, Any]] = {}
        self._removals = Removals()
        self._by_id: dict[str, Summary] = {}
        self._in_order: list[Summary] = []
        self._refused: ConfigError | None = None
        self.version = 0
        """Number of changes so far."""

    def all(self) -> list[Summary]:
        """Return all episodes recorded so far; callers must not modify the list.

        Raises:
            ConfigError: the run has an unsupported format, or cannot be read.
        """
        with self._lock:
            self._catch_up()
            return self._in_order

    def get(self, episode_id: str) -> Summary | None:
        """Return the episode with this id, or None if it does not exist."""
        with self._lock:
            self._catch_up()
            return self._by_id.get(episode_id)

    def share(self) -> float:
        """Return the fraction of the files read so far, even while being read."""
        return self._tails.share((_SCORES, _INDEX))

    def _start_over(self) -> None:
        """Forget everything, because the run was deleted or replaced."""
        self._tails.clear()
        for known in (self._entries, self._scores, self._notes, self._removals, self._by_id):
            known.clear()
        self._in_order = []
        self._refused = None
        self.version += 1

    def _catch_up(self) -> None:
        if self._tails.are_replaced():
            self._start_over()
        if self._refused is not None:
            raise self._refused
        # Read scores first, as a writer appends them before the episode's line in the index.
        changed: set[str] = set()
        for entry in self._tails.new(_SCORES):
            if isinstance(id := entry.get("id"), str) and not _is_older(entry, self._scores):
                self._scores.setdefault(id, {}).update(entry)
                changed.add(id)
        for entry in self._tails.new(_INDEX):
            if (refused := _other_format(self._run, entry)) is not None:
                # The line is not read again, but every later call must raise the same error.
                self._refused = refused
                raise refused
            if isinstance(id := entry.get("id"), str) and not _is_older(entry, self._entries):
                self._entries[id] = entry
                changed.add(id)
        for entry in self._tails.new(removals_file(self._run).name):
            changed.add(self._removals.take(entry)[0])
        for entry in self._tails.new(notes_file(self._run).name):
            if isinstance(id := entry.get("id"), str):
                self._notes.setdefault(id, {}).update(entry)
                changed.add(id)
        updated = {id: self._joined(id) for id in changed & self._entries.keys()}
        if not updated:
            return
        self._by_id |= {id: summary for id, summary in updated.items() if summary is not None}
        # Make a new list, because a caller may still be iterating over the old list.
        self._in_order = sorted(self._by_id.values(), key=lambda s: (s.time, s.id))
        self.version += 1

    def _joined(self, id: str) -> Summary | None:
        """Return the summary of an episode, without its scores if their line is invalid."""
        entry, score = self._entries[id], self._scores.get(id, {})
        for usable_score in (score, {}) if score else ({},):
            try:
                return summary_of(
                    entry, usable_score, self._notes.get(id, {}),
                    removed=self._removals.holds(id, float(entry["time"])),
                )  # fmt: skip
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                log.warning("%s: invalid index or score line: %r", self._run, error)
        return None


def readable_episodes(run: Path) -> list[Summary]:
    """Return a run's episodes; none if its index cannot be read."""
    with suppress(ConfigError):
        return EpisodeIndex(run).all()
    return []


class Removals:
    """Removed recordings by episode id.

    A resumed job may later have recorded the same id again, which `holds` takes into account.
    """

    def __init__(self) -> None:
        self._recorded: dict[str, float] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._recorded)

    def take(self, entry: Mapping[str, Any]) -> tuple[str, float]:
        """Add one line; return the episode id and recording time of the removed recording.

        An invalid line removes nothing, as its time becomes minus infinity.
        """
        id, recorded = str(entry.get("id")), -math.inf
        with suppress(OverflowError):
            if isinstance(value := entry.get("recorded"), int | float):
                recorded = float(value)
        self.note(id, recorded)
        return id, recorded

    def note(self, id: str, recorded: float) -> None:
        """Add the removal of a recording made at this time, in seconds since 1970."""
        self._recorded[id] = max(recorded, self._recorded.get(id, recorded))

    def holds(self, id: str, recorded: float) -> bool:
        """Return whether the recording made at this time was removed."""
        return recorded <= self._recorded.get(id, -math.inf)

    def clear(self) -> None:
        """Forget everything."""
        self._recorded.clear()


def _is_older(entry: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a line belongs to an earlier recording of its episode than the known one.

    A resumed job may play an episode again. The second recording may come from another writer, so
    the order of the lines does not matter.
    """
    time, last = entry.get("time"), known.get(entry["id"], {}).get("time")
    return isinstance(time, int | float) and isinstance(last, int | float) and time < last


def _other_format(run: Path, entry: Mapping[str, Any]) -> ConfigError | None:
    """Return the error for an index line in a different version's format."""
    written = entry.get("format")
    if not isinstance(written, int) or written == FORMAT:
        return None
    remedy = "upgrade agentrl" if written > FORMAT else "record it again"
    return ConfigError(
        f"{run}: recorded in format {written}, but this agentrl reads format {FORMAT}; {remedy}"
    )
