"""The numbers that a job has logged, as curves."""

import threading
from pathlib import Path
from typing import Any

from agentrl.replay.tail import Tail

_MOST = 50_000
"""Lines that are held; a job of so many steps is longer than any that we know of."""


class Curves:
    """The lines of `metrics.jsonl`, read as they come.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._tail = Tail(run / "metrics.jsonl")
        self._lines: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def since(self, first: int) -> dict[str, Any]:
        """All lines from one on, and which comes next."""
        with self._lock:
            if self._tail.path.is_file() and len(self._lines) < _MOST:
                self._lines.extend(_numbers(line) for line in self._tail.new())
            return {"lines": self._lines[first:], "next": len(self._lines)}


def _numbers(line: dict[str, Any]) -> dict[str, Any]:
    """What of a line is a number, and which stage it belongs to."""
    kept = {key: value for key, value in line.items() if isinstance(value, int | float)}
    return {**kept, "stage": str(line.get("stage", ""))}
