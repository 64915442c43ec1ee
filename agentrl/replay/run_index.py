"""The index of a run in memory, kept up with files that are still being appended to."""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.replay.episode_summary import Summary, summary_of
from agentrl.replay.jsonl_tail import Tails
from agentrl.replay.removals import Removals
from agentrl.replay.run_layout import FORMAT, episodes_folder, removals_file

log = logging.getLogger(__name__)


class Index:
    """Summaries of all episodes, in the order in which they ended.

    Each call reads what was appended since the last one, and nothing twice.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._tails = Tails(episodes_folder(run))
        self._entries: dict[str, dict[str, Any]] = {}
        self._scores: dict[str, dict[str, Any]] = {}
        self._removals = Removals()
        self._by_id: dict[str, Summary] = {}
        self._in_order: list[Summary] = []
        self._refused: ConfigError | None = None
        self.version = 0
        """Grows whenever something has changed."""

    def all(self) -> list[Summary]:
        """Everything that is recorded by now; not to be changed.

        Raises:
            ConfigError: it was recorded by a newer agentrl, or cannot be read.
        """
        with self._lock:
            self._catch_up()
            return self._in_order

    def get(self, episode_id: str) -> Summary | None:
        """The episode of that id, if there is one.

        Raises:
            ConfigError: as `all`.
        """
        with self._lock:
            self._catch_up()
            return self._by_id.get(episode_id)

    def _start_over(self) -> None:
        """The run was removed, or another has taken its place."""
        self._tails.clear()
        for known in (self._entries, self._scores, self._removals, self._by_id):
            known.clear()
        self._in_order = []
        self._refused = None
        self.version += 1

    def _catch_up(self) -> None:
        if self._tails.are_replaced():
            self._start_over()
        if self._refused is not None:
            raise self._refused
        changed: set[str] = set()
        for entry in self._tails.new("scores-*.jsonl"):
            if isinstance(id := entry.get("id"), str) and not _is_older(entry, self._scores):
                self._scores.setdefault(id, {}).update(entry)
                changed.add(id)
        for entry in self._tails.new("index-*.jsonl"):
            try:
                check_format(self._run, entry)
            except ConfigError as error:
                self._refused = error  # the line is not read again
                raise
            if isinstance(id := entry.get("id"), str) and not _is_older(entry, self._entries):
                self._entries[id] = entry
                changed.add(id)
        for entry in self._tails.new(removals_file(self._run).name):
            changed.add(self._removals.take(entry)[0])
        found = {id: self._joined(id) for id in changed & self._entries.keys()}
        if not found:
            return
        self._by_id |= {id: summary for id, summary in found.items() if summary is not None}
        # A new list: whoever has the old one goes through it undisturbed.
        self._in_order = sorted(self._by_id.values(), key=lambda s: (s.time, s.id))
        self.version += 1

    def _joined(self, id: str) -> Summary | None:
        """Without its score where that is broken: what was played is still there."""
        entry, score = self._entries[id], self._scores.get(id, {})
        for said in (score, {}) if score else ({},):
            try:
                removed = self._removals.holds(id, float(entry["time"]))
                return summary_of(entry, said, removed=removed)
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                log.warning("%s: an index line or its score is none: %r", self._run, error)
        return None


def _is_older(entry: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a line is of an earlier recording: a job that went on has played it again.

    Its writer may be another one, so the order of the lines does not tell.
    """
    time, last = entry.get("time"), known.get(entry["id"], {}).get("time")
    return isinstance(time, int | float) and isinstance(last, int | float) and time < last


def check_format(run: Path, entry: Mapping[str, Any]) -> None:
    """Refuse a line of the index that a newer agentrl has written.

    Raises:
        ConfigError: it is one.
    """
    written = entry.get("format")
    if isinstance(written, int) and written > FORMAT:
        raise ConfigError(
            f"{run}: recorded in format {written}, this agentrl reads up to {FORMAT}; upgrade it"
        )
