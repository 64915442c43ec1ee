"""Exceptions of the package, and suggestions for their messages."""

import difflib
from collections.abc import Collection


class PhoneError(Exception):
    """Base class of all exceptions that the package raises deliberately."""


class SettingError(PhoneError):
    """A user's mistake; the message names the value and what is accepted."""


class StartError(PhoneError):
    """The phones' process ended before the phones were ready."""


class StartTimeout(StartError):
    """The phones were not ready in time."""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return `" (did you mean 'x'?)"` for the closest known name, or ''."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
