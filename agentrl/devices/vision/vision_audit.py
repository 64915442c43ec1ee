"""What was read on a screen against the truth, where there is one."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.types import Image

UNREAD = "unread"
"""Stands for a fact that shows on the screen and could not be read: it agrees with nothing."""
_Z = 1.959964
"""Of a normal distribution, 95% lie within so many standard deviations of its mean."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Disagreement:
    """One fact that was not read as it is."""

    field: str
    read: Any
    true: Any
    frame: Image | None
    """The screen, uint8[H, W, 3], where it was given."""


@dataclass(slots=True, kw_only=True)
class Agreement:
    """How often a fact was read as it is."""

    agreed: int = 0
    of: int = 0

    @property
    def share(self) -> float:
        """In [0, 1]."""
        return self.agreed / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Where the share lies with 95% confidence."""
        return wilson(self.agreed, self.of)


@dataclass(slots=True)
class Audit:
    """Counts agreement and keeps what was misread.

    Args:
        keep: is given each disagreement, with its frame, as it is found.
    """

    keep: Callable[[Disagreement], None] | None = None
    fields: dict[str, Agreement] = field(default_factory=dict)

    def add(self, name: str, read: Any, true: Any, frame: Image | None = None) -> bool:
        """Count one fact; whether it was read as it is.

        Args:
            name: of the fact.
            read: from the screen; UNREAD where that could not be done.
            true: of the game.
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
        """Count every fact that was read; a fact without a truth is left out.

        Returns:
            What `take` counts elsewhere, as plain values: `agreed`, the names of the facts that
            were read as they are, and `differs`, what was `read` and what is `true` of the others.
        """
        known = [name for name in read if name in true]
        agreed = [name for name in known if self.add(name, read[name], true[name], frame)]
        others = [name for name in known if name not in agreed]
        differs = {name: {"read": read[name], "true": true[name]} for name in others}
        return {"agreed": agreed, "differs": differs}

    def take(self, found: Mapping[str, Any]) -> None:
        """Count what `compare` has told, for instance as an environment's `info["audit"]`."""
        for name in found["agreed"]:
            self._count(name, True)
        for name in found["differs"]:
            self._count(name, False)

    def table(self) -> str:
        """See `table_of`."""
        return table_of(self.summary())

    def summary(self) -> dict[str, dict[str, float]]:
        """The same as plain numbers: `agreed`, `of`, `low` and `high` for each fact."""
        told = {}
        for name, found in self.fields.items():
            low, high = (round(end, 4) for end in found.interval)
            told[name] = {"agreed": found.agreed, "of": found.of, "low": low, "high": high}
        return told

    def _count(self, name: str, right: bool) -> None:
        found = self.fields.setdefault(name, Agreement())
        found.agreed += right
        found.of += 1


def table_of(summary: Mapping[str, Mapping[str, float]]) -> str:
    """A line for each fact: how often it was read as it is, and the 95% interval of that.

    Args:
        summary: as `Audit.summary` gives it.
    """
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
    """Whether both are the same; numbers to a millionth, lists and tuples item by item."""
    if isinstance(read, bool) or isinstance(true, bool):
        return read is true
    if isinstance(read, int | float) and isinstance(true, int | float):
        return math.isclose(read, true, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(read, Mapping) and isinstance(true, Mapping):
        return read.keys() == true.keys() and all(agrees(read[k], true[k]) for k in read)
    if _is_list(read) and _is_list(true):
        return len(read) == len(true) and all(map(agrees, read, true))
    return bool(read == true)


def wilson(successes: int, of: int) -> tuple[float, float]:
    """The 95% interval of a share (E. B. Wilson, 1927): honest for few trials, and near 0 and 1.

    Raises:
        ValueError: no trial, or more successes than trials.
    """
    if not 0 <= successes <= of or of < 1:
        raise ValueError(f"{successes} successes of {of} trials")
    share, z2 = successes / of, _Z * _Z
    middle = share + z2 / (2 * of)
    reach = _Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    low, high = ((middle + sign * reach) / (1 + z2 / of) for sign in (-1, 1))
    return max(low, 0.0), min(high, 1.0)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
