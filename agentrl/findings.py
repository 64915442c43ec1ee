"""What a doctor says about a phone or an environment."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "wrong"]
"""`note` is worth knowing, `wrong` is to be mended before anything is played on it."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    detail: str
    mend: str = ""
    """What to do about it; empty where nothing has to be done."""


def ok(what: str, detail: str) -> Finding:
    """All is well."""
    return Finding(what=what, state="ok", detail=detail)


def note(what: str, detail: str, mend: str) -> Finding:
    """Worth knowing."""
    return Finding(what=what, state="note", detail=detail, mend=mend)


def wrong(what: str, detail: str, mend: str) -> Finding:
    """To be mended."""
    return Finding(what=what, state="wrong", detail=detail, mend=mend)
