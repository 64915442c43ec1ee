"""Compares facts read from a screen with the ground truth, if available."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.confidence_intervals import wilson_interval
from agentrl.types import Image

UNREAD = "unread"
"""Value of a fact that is on the screen but could not be read; not equal to any value."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Disagreement:
    """A fact that was misread."""

    field: str
    read: Any
    true: Any
    frame: Image | None
    """The screen, uint8[H, W, 3]; None if not given."""


@dataclass(slots=True, kw_only=True)
class Agreement:
    """How often a fact was read correctly."""

    agreed: int = 0
    of: int = 0

    @property
    def share(self) -> float:
        """Fraction of readings that were correct, in [0, 1]."""
        return self.agreed / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence interval of the share."""
        return wilson_interval(self.agreed, self.of)


@dataclass(slots=True)
class VisionAudit:
    """Counts agreement with the ground truth, and reports disagreements.

    Args:
        keep: called with each disagreement and its frame.
    """

    keep: Callable[[Disagreement], None] | None = None
    fields: dict[str, Agreement] = field(default_factory=dict)

    def add(self, name: str, read: Any, true: Any, frame: Image | None = None) -> bool:
        """Count one fact and return whether it was read correctly.

        Args:
            name: name of the fact.
            read: value from the screen; UNREAD if it could not be read.
            true: value from the game.
            frame: the screen, uint8[H, W, 3].
        """
        right = agrees(read, true)
        self._count(name, right)
        if not right and self.keep is not None:
            self.keep(Disagreement(field=name, read=read, true=true, frame=frame))
        return right

    def compare(
        self, read: Mapping[str, Any], true: Mapping[str, Any], frame: Image | None = None
    ) -> dict[str, Any]:
        """Count every fact that was read; facts without a ground truth are skipped.

        Returns:
            Plain values for `add_comparison` in another process: `agreed`, the names of the facts
            read correctly, and `differs`, the `read` and `true` values of each misread fact.
        """
        known = [name for name in read if name in true]
        agreed = [name for name in known if self.add(name, read[name], true[name], frame)]
        misread = [name for name in known if name not in agreed]
        differs = {name: {"read": read[name], "true": true[name]} for name in misread}
        return {"agreed": agreed, "differs": differs}

    def add_comparison(self, found: Mapping[str, Any]) -> None:
        """Count a result of `compare`, for instance from an environment's `info["audit"]`."""
        for name in found["agreed"]:
            self._count(name, True)
        for name in found["differs"]:
            self._count(name, False)

    def table(self) -> str:
        """See `format_audit`."""
        return format_audit(self.summary())

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the counts of each fact as plain numbers: `agreed`, `of`, `low` and `high`."""
        summary = {}
        for name, found in self.fields.items():
            low, high = (round(end, 4) for end in found.interval)
            summary[name] = {"agreed": found.agreed, "of": found.of, "low": low, "high": high}
        return summary

    def _count(self, name: str, right: bool) -> None:
        found = self.fields.setdefault(name, Agreement())
        found.agreed += right
        found.of += 1


def format_audit(summary: Mapping[str, Mapping[str, float]]) -> str:
    """Format a summary: how often each fact was read correctly, and the 95% interval."""
    rows = [("read", "right", "of", "share", "95% interval")]
    for name, found in summary.items():
        agreed, of = int(found["agreed"]), int(found["of"])
        interval = f"{100 * found['low']:.1f} to {100 * found['high']:.1f}%"
        rows.append((name, str(agreed), str(of), f"{100 * agreed / of:.1f}%", interval))
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return "\n".join(
        "  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in rows
    )


def agrees(read: Any, true: Any) -> bool:
    """Return whether two values are equal; numbers up to 1e-6, lists and tuples item by item."""
    # In Python, True == 1.
    if isinstance(read, bool) or isinstance(true, bool):
        return read is true
    if isinstance(read, int | float) and isinstance(true, int | float):
        return math.isclose(read, true, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(read, Mapping) and isinstance(true, Mapping):
        return read.keys() == true.keys() and all(agrees(read[k], true[k]) for k in read)
    if _is_list(read) and _is_list(true):
        return len(read) == len(true) and all(map(agrees, read, true))
    return bool(read == true)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
