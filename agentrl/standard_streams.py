"""Standard input, output and error of this process, which foreign code in it may close.

The next file that is opened would get the number of a closed one, and with it all further output.
"""

import fcntl
import os
import sys
import threading

_STREAMS = ("stdin", "stdout", "stderr")
_copies: dict[int, tuple[int, tuple[int, int]]] = {}
"""By the number of a stream, another descriptor of its file, and the identity of that file."""
_lock = threading.Lock()


def reopen_closed_streams() -> list[str]:
    """Open standard streams again that were open at the last call, and are closed now.

    Returns:
        Their names, such as `stdout`.
    """
    with _lock:
        return [name for number, name in enumerate(_STREAMS) if _was_closed(number, name)]


def _was_closed(number: int, name: str) -> bool:
    copy, identity = _copies.get(number, (-1, None))
    try:
        found = os.fstat(number)
    except OSError:
        if copy >= 0:
            os.dup2(copy, number)
            stream = getattr(sys, name)
            if stream is not None and stream.closed:
                setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
        return copy >= 0
    if (found.st_dev, found.st_ino) != identity:  # also after a redirection of ours
        kept = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, len(_STREAMS))
        _copies[number] = kept, (found.st_dev, found.st_ino)
        if copy >= 0:
            os.close(copy)
    return False
