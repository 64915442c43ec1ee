"""The result of a check of any kind."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "wrong", "optional", "missing"]
"""`note` is worth knowing but does not prevent use; `wrong` must be fixed before use.

In checks of an installation, `optional` things are absent but not required, and `missing` things
have to be installed."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Finding:
    """The result of one check."""

    what: str
    state: State
    detail: str
    fix: str = ""
    """Suggested fix; empty if none is needed."""


def ok(what: str, detail: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(what=what, state="ok", detail=detail)


def note(what: str, detail: str, fix: str) -> Finding:
    """Return a finding that is worth knowing but does not prevent use."""
    return Finding(what=what, state="note", detail=detail, fix=fix)


def wrong(what: str, detail: str, fix: str) -> Finding:
    """Return a finding about a problem that must be fixed."""
    return Finding(what=what, state="wrong", detail=detail, fix=fix)


def ok_if(fine: object, what: str, detail: str, otherwise: State, fix: str = "") -> Finding:
    """Return a passed check if `fine`, otherwise a finding in state `otherwise` with its fix."""
    return ok(what, detail) if fine else Finding(what=what, state=otherwise, detail=detail, fix=fix)
