"""Read long files in a thread while pages show the progress."""

import threading
from collections.abc import Callable

from agentrl.errors import AgentRLError

_PATIENCE_S = 0.5
"""Seconds a request waits before it reports progress instead."""


class StillReading(AgentRLError):
    """A request needs files that are still being read."""

    def __init__(self, what: str, share: float) -> None:
        super().__init__(f"still reading the {what} ({share:.0%})")
        self.what, self.share = what, min(max(share, 0.0), 1.0)


class BackgroundReading:
    """First reading of some files, in a thread that starts when the files are first needed.

    Args:
        what: plural noun for the content, for messages.
        read: reads and caches everything; further calls must be quick.
        share: returns the fraction read so far; called from other threads.
    """

    def __init__(self, what: str, read: Callable[[], object], share: Callable[[], float]) -> None:
        self._what, self._read, self._share = what, read, share
        self._error: AgentRLError | None = None
        self._is_read = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def require(self) -> None:
        """Return once everything has been read.

        Raises:
            StillReading: reading takes longer than a moment.
            AgentRLError: reading failed; the next call tries again.
        """
        with self._lock:
            if self._thread is None:
                self._is_read.clear()
                self._thread = threading.Thread(target=self._run, name="reading", daemon=True)
                self._thread.start()
        if not self._is_read.wait(_PATIENCE_S):
            raise StillReading(self._what, self._share())
        if (error := self._error) is not None:
            self._error = self._thread = None
            raise error

    def _run(self) -> None:
        try:
            self._read()
        except AgentRLError as error:
            self._error = error
        finally:
            self._is_read.set()
