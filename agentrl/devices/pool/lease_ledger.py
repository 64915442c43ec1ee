"""Who holds which phone, and until when: the books of a pool, without a phone, thread or socket."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

_LONGEST_PAUSE = 20
"""Times the first: the pauses of a phone in quarantine grow no further."""


@dataclass(slots=True, kw_only=True, frozen=True)
class DeviceStats:
    """What a phone has been through since the pool was opened."""

    serial: str
    leases: int
    failures: int
    """Leases that a DeviceError ended."""
    state: str
    """`free`, `leased`, `being mended` or `in quarantine`."""
    quarantined: bool
    leased_share: float
    """Share of the time that it was lent, in [0, 1]."""
    busy_s: float
    """Seconds that calls took."""
    busy_share: float
    """Share of the time that it was carrying out calls, in [0, 1]."""
    mended: Mapping[str, int] = field(default_factory=dict)
    """How often each rung of the ladder was taken."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Entry:
    """A phone that was lent."""

    phone: str
    token: int
    """Of this lease alone; later leases have larger ones."""
    place: int
    """In the waiting line, of who has got it."""


class State(Enum):
    """Where a phone is."""

    FREE = "free"
    LENT = "leased"
    MENDED = "being mended"
    ASIDE = "in quarantine"


@dataclass(slots=True, kw_only=True)
class _Row:
    """One phone."""

    state: State = State.FREE
    token: int = 0
    until_s: float = 0.0
    """When the lease expires, or a phone in quarantine may be tried again."""
    since_s: float = 0.0
    """When it was lent."""
    pauses: int = 0
    """How often it went into quarantine since its last good lease."""
    leases: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    leased_s: float = 0.0
    busy_s: float = 0.0
    mended: Counter[str] = field(default_factory=Counter)


class Ledger:
    """Lends phones by name to those who wait, one at a time to one.

    Who waits longest gets the phone that is idle longest. Nobody waits for a phone of their own,
    so that a slow one holds nobody up.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        expiry_s: float = float("inf"),
        quarantine_after: int = 3,
        pause_s: float = 30.0,
        first_token: int = 1,
    ) -> None:
        """No phones yet.

        Args:
            clock: seconds that only grow.
            expiry_s: for so long a lease lasts that is not renewed.
            quarantine_after: failures in a row that put a phone aside.
            pause_s: before a phone in quarantine is tried again; twice as long each time.
            first_token: larger than all that the same phones have seen.
        """
        self.expiry_s = expiry_s
        self._clock = clock
        self._quarantine_after = quarantine_after
        self._pause_s = pause_s
        self._token = first_token - 1
        self._place = 0
        self._opened_s = clock()
        self._rows: dict[str, _Row] = {}
        self._lent: dict[int, str] = {}
        self._free: deque[str] = deque()
        self._line: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def phones(self) -> tuple[str, ...]:
        """Of all states, in the order in which they came."""
        return tuple(self._rows)

    def add(self, phone: str) -> None:
        """A phone has come; nothing happens where it is known."""
        if phone not in self._rows:
            self._rows[phone] = _Row()
            self._free.append(phone)

    def line_up(self) -> int:
        """Take the last place in the waiting line."""
        self._place += 1
        self._line.append(self._place)
        return self._place

    def leave(self, place: int) -> None:
        """Wait no more; nothing happens where a phone was lent to that place."""
        if place in self._line:
            self._line.remove(place)

    def lend(self) -> list[Entry]:
        """Give what is free to those who wait."""
        entries = []
        while self._free and self._line:
            phone, now = self._free.popleft(), self._clock()
            self._token += 1
            row = self._rows[phone]
            row.state, row.token = State.LENT, self._token
            row.since_s, row.until_s = now, now + self.expiry_s
            row.leases += 1
            self._lent[self._token] = phone
            entries.append(Entry(phone=phone, token=self._token, place=self._line.popleft()))
        return entries

    def renew(self, token: int) -> bool:
        """Let a lease last longer from now on; False where it has ended or expired."""
        row = self._holder(token)
        if row is None:
            return False
        row.until_s = self._clock() + self.expiry_s
        return True

    def expire(self) -> list[str]:
        """Take the phones back whose leases have expired."""
        late = [t for t, phone in self._lent.items() if self._rows[phone].until_s <= self._clock()]
        return [self._take_back(token, State.FREE) for token in late]

    def end(self, token: int, *, good: bool, failed: bool = False, busy_s: float = 0.0) -> bool:
        """Take a phone back from its holder.

        Args:
            token: of the lease.
            good: makes up for earlier failures.
            failed: the phone did; it is not lent before `mended` or `returned`.
            busy_s: seconds that calls took.

        Returns:
            False where the lease had ended or expired: nothing happens then.
        """
        row = self._holder(token)
        if row is None:
            return False
        row.busy_s += busy_s
        if good:
            row.failures_in_a_row = row.pauses = 0
        if not failed:
            self._take_back(token, State.FREE)
            return True
        row.failures += 1
        row.failures_in_a_row += 1
        phone = self._take_back(token, State.MENDED)
        if row.failures_in_a_row >= self._quarantine_after:
            self._put_aside(phone)
        return True

    def phone_of(self, token: int) -> str | None:
        """The phone that is lent under a token; None where the lease has ended."""
        return self._lent.get(token)

    def state(self, phone: str) -> State:
        """Where a phone is."""
        return self._rows[phone].state

    def failures_in_a_row(self, phone: str) -> int:
        """Since the last good lease."""
        return self._rows[phone].failures_in_a_row

    def mended(self, phone: str, rungs: Iterable[str], *, answers: bool) -> None:
        """Something was done for a phone that failed; without an answer it goes into quarantine."""
        row = self._rows[phone]
        row.mended.update(rungs)
        if row.state is State.MENDED:
            if answers:
                self._make_free(phone)
            else:
                self._put_aside(phone)

    def away(self, phone: str) -> None:
        """A phone that nobody holds is gone: it may be tried again at once."""
        if self._rows[phone].state is State.FREE:
            self._free.remove(phone)
            self._put_aside(phone)
            self.hurry(phone)

    def hurry(self, phone: str) -> None:
        """A phone in quarantine may be tried again at once."""
        if self._rows[phone].state is State.ASIDE:
            self._rows[phone].until_s = self._clock()

    def due(self) -> list[str]:
        """The phones in quarantine that may be tried again."""
        now = self._clock()
        aside = ((phone, row) for phone, row in self._rows.items() if row.state is State.ASIDE)
        return [phone for phone, row in aside if row.until_s <= now]

    def tried(self, phone: str, *, answers: bool) -> None:
        """A phone in quarantine was tried: it is lent again, or the next pause is longer."""
        if self._rows[phone].state is State.ASIDE:
            if answers:
                self._make_free(phone)
            else:
                self._put_aside(phone)

    def count(self, state: State) -> int:
        """How many phones are there."""
        return sum(row.state is state for row in self._rows.values())

    def stats(self, running: Mapping[int, float] | None = None) -> list[DeviceStats]:
        """One row per phone.

        Args:
            running: seconds that calls took in leases that have not ended, by their tokens.
        """
        return [self._stats(phone, row, running or {}) for phone, row in list(self._rows.items())]

    def _stats(self, phone: str, row: _Row, running: Mapping[int, float]) -> DeviceStats:
        now = self._clock()
        past_s = max(now - self._opened_s, 1e-9)
        leased_s, busy_s = row.leased_s, row.busy_s
        if row.state is State.LENT:
            leased_s += now - row.since_s
            busy_s += running.get(row.token, 0.0)
        return DeviceStats(
            serial=phone,
            leases=row.leases,
            failures=row.failures,
            state=row.state.value,
            quarantined=row.state is State.ASIDE,
            leased_share=min(leased_s / past_s, 1.0),
            busy_s=busy_s,
            busy_share=min(busy_s / past_s, 1.0),
            mended=dict(row.mended),
        )

    def _holder(self, token: int) -> _Row | None:
        """The row of a phone that is still lent under that token."""
        phone = self._lent.get(token)
        row = None if phone is None else self._rows[phone]
        return None if row is None or row.until_s <= self._clock() else row

    def _take_back(self, token: int, state: State) -> str:
        phone = self._lent.pop(token)
        row = self._rows[phone]
        row.leased_s += self._clock() - row.since_s
        row.state = state
        if state is State.FREE:
            self._free.append(phone)
        return phone

    def _make_free(self, phone: str) -> None:
        self._rows[phone].state = State.FREE
        self._free.append(phone)

    def _put_aside(self, phone: str) -> None:
        row = self._rows[phone]
        pause_s = self._pause_s * min(2**row.pauses, _LONGEST_PAUSE)
        row.state, row.until_s = State.ASIDE, self._clock() + pause_s
        row.pauses = min(row.pauses + 1, _LONGEST_PAUSE)
