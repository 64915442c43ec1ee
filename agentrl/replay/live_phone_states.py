"""Live state of the phones, published by the processes that use them and shown by the viewer.

Each process atomically replaces `RUN/live/<writer>.json` up to twice a second on changes, and
deletes the file on a clean exit. The file of a killed process expires.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentrl.files import atomic_replace, open_regular

log = logging.getLogger(__name__)

_EVERY_S = 0.5
_AT_LEAST_EVERY_S = 5.0
_OUT_OF_DATE_S = 20.0
_AHEAD_S = 300.0
"""Seconds another machine's clock may be ahead; files dated later are ignored."""


@dataclass(slots=True, kw_only=True)
class LivePhone:
    """One process's record of one phone."""

    serial: str
    host: str | None = None
    """The phone's host, if the job has phones on several hosts, where serials may coincide."""
    state: str | None = None
    """State such as `free`, `leased` or `in quarantine`; None if the process does not own the
    phone pool."""
    leases: int | None = None
    failures: int | None = None
    busy_share: float | None = None
    """Fraction of time spent in calls to the phone, in [0, 1]."""
    episode: str | None = None
    """Id of the episode being played on the phone."""
    turn: int | None = None
    """Number of finished turns of that episode."""
    act_s: float | None = None
    """Seconds the last turn's action took on the phone."""
    frame: str | None = None
    """Id of the last recorded screen."""
    at: float = 0.0
    """Time of the last change, in seconds since 1970."""


class LivePhones:
    """Publishes the state of the phones that this process uses.

    Args:
        run: the run's folder.
        writer: names this process's file.
        kept: returns the pool's states of the phones; None if the pool is in another process.
        host: see `LivePhone`; the same for all phones of a process.
    """

    def __init__(
        self,
        run: Path,
        writer: str,
        kept: Callable[[], Iterable[LivePhone]] | None = None,
        host: str | None = None,
    ) -> None:
        self._path = run / "live" / f"{writer}.json"
        self.kept, self._host = kept, host
        self._phones: dict[str, LivePhone] = {}
        self._lock = threading.Lock()
        self._has_changes = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._publish_loop, name="live", daemon=True)
        self._thread.start()

    def playing(self, serial: str, episode: str) -> None:
        """Record that an episode begins on a phone."""
        self._set(serial, episode=episode, turn=0, act_s=None)

    def frame(self, serial: str, frame: str) -> None:
        """Record a phone's new screen."""
        self._set(serial, frame=frame)

    def turn(self, serial: str, number: int, act_s: float) -> None:
        """Record the end of a turn."""
        self._set(serial, turn=number, act_s=act_s)

    def idle(self, serial: str) -> None:
        """Record that no episode is being played on a phone."""
        self._set(serial, episode=None, turn=None)

    def _set(self, serial: str, **changes: Any) -> None:
        with self._lock:
            phone = self._phones.setdefault(serial, LivePhone(serial=serial))
            for name, value in changes.items():
                setattr(phone, name, value)
            phone.at = time.time()
        self._has_changes.set()

    def _publish_loop(self) -> None:
        while not self._closed.is_set():
            self._has_changes.wait(_AT_LEAST_EVERY_S)
            self._has_changes.clear()
            try:
                self._publish()
            except OSError as error:
                # Only the viewer's live page is affected, so continue.
                log.info("the phones' live state could not be written: %s", error)
            self._closed.wait(_EVERY_S)

    def _publish(self) -> None:
        kept = {phone.serial: phone for phone in self.kept()} if self.kept else {}
        with self._lock:
            known = {serial: asdict(phone) for serial, phone in self._phones.items()}
        phones = [
            merge_states(known.get(s), asdict(kept[s]) if s in kept else None)
            | {"host": self._host}
            for s in kept | known
        ]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace(self._path) as partial:
            # The file contains serial numbers.
            partial.touch(mode=0o600)
            partial.write_text(json.dumps({"time": time.time(), "phones": phones}))

    def close(self) -> None:
        """Stop publishing and delete the file; may be called twice."""
        self._closed.set()
        self._has_changes.set()
        self._thread.join(10)
        self._path.unlink(missing_ok=True)


def merge_states(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge two processes' records of a phone: use newer values, filling in missing ones."""
    if a is None or b is None:
        return dict(a or b or {})
    newer, older = sorted((a, b), key=lambda phone: -phone["at"])
    return {key: older.get(key) if newer[key] is None else newer[key] for key in newer}


def read_live_phones(run: Path) -> list[dict[str, Any]]:
    """Return all phones reported by running processes, sorted by host and serial.

    The keys are the fields of `LivePhone` and `reported`, the time of the latest file that
    contains the phone, in seconds since 1970.
    """
    phones: dict[tuple[str, str], dict[str, Any]] = {}
    now = time.time()
    for path in sorted((run / "live").glob("*.json")):
        try:
            with open(path, encoding="utf-8", opener=open_regular) as file:
                report = json.load(file)
            if not -_AHEAD_S < now - report["time"] < _OUT_OF_DATE_S:
                continue
            for fields_of_phone in report["phones"]:
                phone = LivePhone(**fields_of_phone)
                is_valid = all(isinstance(text, str | None) for text in (phone.frame, phone.host))
                if not (is_valid and isinstance(phone.serial, str)):
                    raise TypeError(f"invalid phone: {phone}")
                key = (phone.host or "", phone.serial)
                joined = merge_states(phones.get(key), asdict(phone))
                phones[key] = joined | {"reported": report["time"]}
        except (
            OSError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
        ) as error:  # fmt: skip
            # The file was deleted just now, or agentrl did not write it.
            log.info("%s: %s", path, error)
    return [phones[key] for key in sorted(phones)]
