"""Standard input, output and error of this process, which foreign code in it may close.

The next file that is opened would get the number of a closed one, and with it all further output.
"""

import fcntl
import os
import sys
import threading

_STREAMS, _NUMBERS = ("stdin", "stdout", "stderr"), (0, 1, 2)
_copies: dict[int, int] = {}
"""Another descriptor of each stream's file, by the stream's number."""
_lock = threading.Lock()


def remember_streams() -> None:
    """Remember where the standard streams lead, before foreign code runs."""
    with _lock:
        for number in _NUMBERS:
            copy = _copies.get(number)
            try:
                if copy is None or not os.path.sameopenfile(number, copy):
                    _copies[number] = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, len(_STREAMS))
                    if copy is not None:
                        os.close(copy)
            except OSError:  # it is closed, as in `agentrl ... 2>&-`
                continue


def reopen_closed_streams() -> list[str]:
    """Open standard streams again that have been closed since they were remembered.

    Returns:
        Their names, such as `stdout`.
    """
    try:  # quickly, as this runs after each step
        for number in _NUMBERS:
            os.get_inheritable(number)
    except OSError:
        return [name for number, name in enumerate(_STREAMS) if _reopened(number, name)]
    return []


def _reopened(number: int, name: str) -> bool:
    try:
        os.get_inheritable(number)
    except OSError:
        with _lock:
            if number not in _copies:
                return False
            os.dup2(_copies[number], number)
            stream = getattr(sys, name)
            if stream is not None and stream.closed:
                setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
            return True
    return False
