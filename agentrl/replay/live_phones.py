"""What phones do right now, told by the processes that use them to whoever looks on.

Each process writes `RUN/live/<writer>.json`, whole or not at all, once or twice a second while
something happens. It is gone when the process ends well, and out of date when it did not.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from agentrl.files import atomic_replace, open_regular
from agentrl.replay.run_layout import is_name

log = logging.getLogger(__name__)

_EVERY_S = 0.5
_AT_LEAST_EVERY_S = 5.0
_OUT_OF_DATE_S = 20.0
_AHEAD_S = 300.0
"""By which another machine's clock may be ahead; what is later yet is nobody's who is at work."""


@dataclass(slots=True, kw_only=True)
class PhoneNow:
    """One phone, as far as one process knows."""

    serial: str
    state: str | None = None
    """Such as `free`, `leased`, `being mended` or `in quarantine`; None where who tells of it does
    not keep the phones."""
    leases: int | None = None
    failures: int | None = None
    busy_share: float | None = None
    """Of the time, in calls to the phone; in [0, 1]."""
    episode: str | None = None
    """What is played on it."""
    turn: int | None = None
    """How many turns of it have ended."""
    act_s: float | None = None
    """What the last turn took on the phone."""
    frame: str | None = None
    """The last recorded screen."""
    at: float = 0.0
    """Seconds since 1970 of the last news."""

    def plain(self) -> dict[str, Any]:
        """As it is shared."""
        return {name: getattr(self, name) for name in _FIELDS}


_FIELDS = tuple(field.name for field in fields(PhoneNow))


class Live:
    """Tells of the phones of this process.

    Args:
        run: the run's folder.
        writer: names this process's file.
        kept: the phones as their pool sees them; None where another process keeps them.
    """

    def __init__(
        self, run: Path, writer: str, kept: Callable[[], Iterable[PhoneNow]] | None = None
    ) -> None:
        if not is_name(writer):
            raise ValueError(f"{writer!r} cannot be the name of a writer")
        self._path = run / "live" / f"{writer}.json"
        self.kept = kept
        self._phones: dict[str, PhoneNow] = {}
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._tell_on, name="live", daemon=True)
        self._thread.start()

    def playing(self, serial: str, episode: str) -> None:
        """An episode begins on a phone."""
        self._set(serial, episode=episode, turn=0, act_s=None)

    def frame(self, serial: str, frame: str) -> None:
        """A phone shows another screen."""
        self._set(serial, frame=frame)

    def turn(self, serial: str, number: int, act_s: float) -> None:
        """A turn has ended."""
        self._set(serial, turn=number, act_s=act_s)

    def idle(self, serial: str) -> None:
        """Nothing is played on a phone."""
        self._set(serial, episode=None, turn=None)

    def _set(self, serial: str, **changes: Any) -> None:
        with self._lock:
            phone = self._phones.setdefault(serial, PhoneNow(serial=serial))
            for name, value in changes.items():
                setattr(phone, name, value)
            phone.at = time.time()
        self._news.set()

    def _tell_on(self) -> None:
        while not self._closed.is_set():
            self._news.wait(_AT_LEAST_EVERY_S)
            self._news.clear()
            try:
                self._tell()
            except OSError as error:  # somebody looks on less well, and nothing else is lost
                log.info("what phones do is not told: %s", error)
            self._closed.wait(_EVERY_S)

    def _tell(self) -> None:
        kept = {phone.serial: phone for phone in self.kept()} if self.kept else {}
        with self._lock:
            known = {serial: phone.plain() for serial, phone in self._phones.items()}
        phones = [
            merged(known.get(s), kept[s].plain() if s in kept else None) for s in kept | known
        ]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace(self._path) as partial:
            partial.touch(mode=0o600)  # it names phones by their serials
            partial.write_text(json.dumps({"time": time.time(), "phones": phones}))

    def close(self) -> None:
        """Tell no more; may be called twice."""
        self._closed.set()
        self._news.set()
        self._thread.join(10)
        self._path.unlink(missing_ok=True)


def merged(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> dict[str, Any]:
    """What two processes know of a phone; what one does not know is the other's."""
    if one is None or other is None:
        return dict(one or other or {})
    newer, older = sorted((one, other), key=lambda phone: -phone["at"])
    return {key: older.get(key) if newer[key] is None else newer[key] for key in newer}


def phones_now(run: Path) -> list[dict[str, Any]]:
    """All phones that processes tell of, by their serials; none where nobody does.

    The keys are those of `PhoneNow`, and `told`: seconds since 1970 of the latest file that names
    it.
    """
    found: dict[str, dict[str, Any]] = {}
    now = time.time()
    for path in sorted((run / "live").glob("*.json")):
        try:
            with open(path, encoding="utf-8", opener=open_regular) as file:
                told = json.load(file)
            if not -_AHEAD_S < now - told["time"] < _OUT_OF_DATE_S:
                continue
            for phone in told["phones"]:
                known = PhoneNow(**phone)
                if not isinstance(known.serial, str) or not isinstance(known.frame, str | None):
                    raise TypeError(f"{known} is no phone")
                before = found.get(known.serial)
                joined = merged(None if before is None else before, known.plain())
                found[known.serial] = joined | {"told": told["time"]}
        except (
            OSError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
        ) as error:  # fmt: skip
            log.info("%s: %s", path, error)  # it is just being replaced, or somebody else's
    return [found[serial] for serial in sorted(found)]
