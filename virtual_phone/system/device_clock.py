"""The phone's clock."""

import time

_UPTIME_S = 3600.0
"""Initial uptime of a new phone, because some programs distrust phones that have just booted."""


class DeviceClock:
    """Runs from a given start time, independently of this machine's date.

    The status bar shows a different time, advanced only by touches, so that frames are
    reproducible.
    """

    def __init__(self, start_s: float) -> None:
        self._began_s = time.monotonic()
        self._start_s = start_s
        self._booted_s = self._began_s - _UPTIME_S

    def now_s(self) -> float:
        """Return the seconds since 1970."""
        return self._start_s + time.monotonic() - self._began_s

    def uptime_s(self) -> float:
        """Return the seconds since the phone booted."""
        return time.monotonic() - self._booted_s

    def restart(self) -> None:
        """Reset the uptime; the date continues."""
        self._booted_s = time.monotonic()
