"""Results of the checks of `agentrl doctor`, `devices doctor` and `agentrl check`."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "wrong"]
"""`note` is worth knowing; `wrong` must be fixed before use."""


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
