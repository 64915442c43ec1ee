"""Log why episodes are discarded: each failure once, and how often it occurred again."""

import logging
from collections import Counter

from agentrl.text import pluralize
from agentrl.types import Episode

log = logging.getLogger(__name__)


class FailureLog:
    """Logs each failure when it first occurs: a broken reward fails in every episode."""

    def __init__(self) -> None:
        """No failure yet."""
        self._known: set[str] = set()
        self._repeated = Counter[str]()

    def add(self, episode: Episode) -> None:
        """Log the failure of a void episode, or count it if the same one was logged before."""
        if not episode.outcome.void:
            return
        error = episode.error or episode.outcome.value
        if error in self._known:
            self._repeated[error] += 1
            return
        self._known.add(error)
        log.warning("%s discarded after %d turns: %s", episode.id, len(episode.turns), error)

    def log_repeated(self) -> None:
        """Log how many episodes failed for a known reason since the last call."""
        for error, count in self._repeated.items():
            episodes = pluralize(count, "more episode")
            log.warning("%s discarded for the same reason: %s", episodes, error)
        self._repeated.clear()
