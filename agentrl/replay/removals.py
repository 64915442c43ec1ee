"""The list of episodes that pruning removed."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any


class Removals:
    """Removed recordings by episode id.

    A resumed job may have recorded the same id again since, which `holds` takes into account.
    """

    def __init__(self) -> None:
        self._recorded: dict[str, float] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._recorded)

    def take(self, entry: Mapping[str, Any]) -> tuple[str, float]:
        """Add one line; return the episode id and the recording time of what was removed.

        An invalid line removes nothing: its time is minus infinity.
        """
        id, recorded = str(entry.get("id")), -math.inf
        with suppress(OverflowError):
            if isinstance(value := entry.get("recorded"), int | float):
                recorded = float(value)
        self.note(id, recorded)
        return id, recorded

    def note(self, id: str, recorded: float) -> None:
        """Add the removal of the recording made at a time, in seconds since 1970."""
        self._recorded[id] = max(recorded, self._recorded.get(id, recorded))

    def holds(self, id: str, recorded: float) -> bool:
        """Whether the recording made at this time was removed."""
        return recorded <= self._recorded.get(id, -math.inf)

    def clear(self) -> None:
        """Forget everything."""
        self._recorded.clear()
