"""Which recordings pruning has removed."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any


class Removals:
    """What the lines of a run's removals say, by the episode's id.

    The same id may have been recorded again since, by a job that went on: `holds` tells apart.
    """

    def __init__(self) -> None:
        self._recorded: dict[str, float] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._recorded)

    def take(self, entry: Mapping[str, Any]) -> tuple[str, float]:
        """Count one line; its episode's id, and when what was removed had been recorded.

        A line that says no such thing removes nothing: its time is minus infinity.
        """
        id, recorded = str(entry.get("id")), -math.inf
        with suppress(OverflowError):
            if isinstance(said := entry.get("recorded"), int | float):
                recorded = float(said)
        self.note(id, recorded)
        return id, recorded

    def note(self, id: str, recorded: float) -> None:
        """Count the removal of what was recorded at a time, in seconds since 1970."""
        self._recorded[id] = max(recorded, self._recorded.get(id, recorded))

    def holds(self, id: str, recorded: float) -> bool:
        """Whether what was recorded at a time is removed."""
        return recorded <= self._recorded.get(id, -math.inf)

    def clear(self) -> None:
        """Forget all."""
        self._recorded.clear()
