"""Errors of the package, and the ends of their messages."""

import difflib
from collections.abc import Collection


class PhoneError(Exception):
    """Base class of all errors that the package raises on purpose."""


class SettingError(PhoneError):
    """A user's mistake: the message names the value and what is accepted."""


class StartError(PhoneError):
    """The process of the phones ended before they were ready."""


class StartTimeout(StartError):
    """The phones were not ready in time."""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """`" (did you mean 'x'?)"` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
