"""The phone's clock."""

import time

_UPTIME_S = 3600.0
"""A new phone was started an hour ago: programs distrust phones that have just started."""


class DeviceClock:
    """Starts at a given time and runs, independently of this machine's date.

    The status bar shows another time, which only touches advance: frames are reproducible.
    """

    def __init__(self, start_s: float) -> None:
        self._began_s = time.monotonic()
        self._start_s = start_s
        self._booted_s = self._began_s - _UPTIME_S

    def now_s(self) -> float:
        """Seconds since 1970."""
        return self._start_s + time.monotonic() - self._began_s

    def uptime_s(self) -> float:
        """Seconds since the phone was started."""
        return time.monotonic() - self._booted_s

    def restart(self) -> None:
        """Restart the phone; its date goes on."""
        self._booted_s = time.monotonic()
