"""What is in front on a phone, as its shell tells."""

import re

WINDOW = ("dumpsys", "window", "windows")
"""The command whose output `package_in` reads."""
_FOCUS = re.compile(
    r"mCurrentFocus=Window\{\S+ (?!(?:u\d+ )?Application (?:Error|Not Responding):)"
    r"(?:u\d+ )?([^\s/}]+)"
)
"""The dialog about a crashed or hung app is no package: nobody went there."""


def package_in(window: str) -> str | None:
    """The package in front, out of the output of `WINDOW`; None if it names none."""
    found = _FOCUS.search(window)
    return None if found is None else found[1]
