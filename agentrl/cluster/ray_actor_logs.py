"""Log files of Ray actors, which have no terminal."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.text.phone_names import with_short_serials


class _Formatter(logging.Formatter):
    """Shortens the serials of phones in messages, because logs get shared."""

    def __init__(self, serials: Sequence[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._serials = serials

    def format(self, record: logging.LogRecord) -> str:
        """Format a record with serials shortened."""
        return with_short_serials(super().format(record), self._serials)


def redirect_output(run: Path, name: str, serials: Sequence[str] = ()) -> None:
    """Redirect the output of this process and its children to `RUN/logs/NAME.log`.

    An actor has no terminal, so the reason why an engine died would otherwise be lost.
    """
    path = run / "logs" / f"{name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    # Redirect descriptors, since native code and child processes don't write through sys.stdout.
    with path.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter(serials))
    logging.basicConfig(handlers=[handler], force=True)


def serials_in(tree: Mapping[str, Any]) -> list[str]:
    """Return the serials of phones named in a configuration."""
    devices = tree["devices"]
    own = [h.get("source") if isinstance(h, dict) else h for h in devices["hosts"].values()]
    found: list[str] = []
    for source in [devices["source"], *own]:
        found += [source] if isinstance(source, str) else source or ()
    return found
