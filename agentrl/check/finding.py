"""The result of a check, of whatever kind."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "wrong", "optional", "missing"]
"""`note` is worth knowing; `wrong` must be fixed before use.

Of what can be installed, something `optional` may be absent, and something `missing` may not."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Finding:
    """The result of one check."""

    what: str
    state: State
    detail: str
    fix: str = ""
    """Suggested fix; empty if none is needed."""


def ok(what: str, detail: str) -> Finding:
    """A check that passed."""
    return Finding(what=what, state="ok", detail=detail)


def note(what: str, detail: str, fix: str) -> Finding:
    """A remark that does not prevent use."""
    return Finding(what=what, state="note", detail=detail, fix=fix)


def wrong(what: str, detail: str, fix: str) -> Finding:
    """A problem that must be fixed."""
    return Finding(what=what, state="wrong", detail=detail, fix=fix)
