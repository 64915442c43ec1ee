"""The state of a pool's phones and leases; uses no phones, threads or sockets."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

_LONGEST_PAUSE = 20
"""Upper bound on quarantine pauses, as a multiple of the first pause."""


@dataclass(slots=True, kw_only=True, frozen=True)
class DeviceStats:
    """Statistics of a phone since the pool was opened."""

    serial: str
    leases: int
    failures: int
    """Leases ended by a DeviceError."""
    state: str
    """`free`, `leased`, `recovering` or `in quarantine`."""
    quarantined: bool
    busy_s: float
    """Seconds spent in calls."""
    busy_share: float
    """Fraction of the time spent in calls, in [0, 1]."""
    recoveries: Mapping[str, int] = field(default_factory=dict)
    """Maps each step of the recovery ladder to the number of times it was taken."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PhoneAssignment:
    """A phone leased to a caller in the queue."""

    phone: str
    token: int
    """Unique to this lease; later leases have larger tokens."""
    position: int
    """Queue position of the caller that got the phone."""


class PhoneAvailability(Enum):
    """State of a phone."""

    FREE = "free"
    LEASED = "leased"
    RECOVERING = "recovering"
    QUARANTINED = "in quarantine"


@dataclass(slots=True, kw_only=True)
class _PhoneRecord:
    """One phone."""

    state: PhoneAvailability = PhoneAvailability.FREE
    token: int = 0
    until_s: float = 0.0
    """Time when the lease expires, or when a quarantined phone may be probed again."""
    pauses: int = 0
    """Number of quarantines since the phone's last good lease."""
    leases: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    busy_s: float = 0.0
    recoveries: Counter[str] = field(default_factory=Counter)


class LeaseLedger:
    """Assigns phones, by name, to waiting callers.

    The caller that has waited longest gets the phone that has been idle longest. Callers do not
    wait for a particular phone, so a slow phone delays no caller.
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
        """Start without phones.

        Args:
            clock: monotonic time in seconds.
            expiry_s: duration of a lease that is not renewed.
            quarantine_after: failures in a row before a phone is quarantined.
            pause_s: pause before a quarantined phone is probed; doubles each time.
            first_token: first token to use; must exceed all tokens these phones have seen.
        """
        self.expiry_s = expiry_s
        self._clock = clock
        self._quarantine_after = quarantine_after
        self._pause_s = pause_s
        self._token = first_token - 1
        self._last_position = 0
        self._opened_s = clock()
        self._rows: dict[str, _PhoneRecord] = {}
        self._lent: dict[int, str] = {}
        self._free: deque[str] = deque()
        self._queue: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def phones(self) -> tuple[str, ...]:
        """All phones, in the order in which they were added."""
        return tuple(self._rows)

    def add(self, phone: str) -> None:
        """Add a phone; does nothing if it is already known."""
        if phone not in self._rows:
            self._rows[phone] = _PhoneRecord()
            self._free.append(phone)

    def join_queue(self) -> int:
        """Join the queue and return the position."""
        self._last_position += 1
        self._queue.append(self._last_position)
        return self._last_position

    def leave_queue(self, position: int) -> None:
        """Leave the queue; does nothing if a phone was granted to that position."""
        if position in self._queue:
            self._queue.remove(position)

    def grant_free(self) -> list[PhoneAssignment]:
        """Grant free phones to waiting callers."""
        entries = []
        while self._free and self._queue:
            phone, now = self._free.popleft(), self._clock()
            # Tokens only grow, so a phone can distinguish a late command from the current holder's.
            self._token += 1
            row = self._rows[phone]
            row.state, row.token = PhoneAvailability.LEASED, self._token
            row.until_s = now + self.expiry_s
            row.leases += 1
            self._lent[self._token] = phone
            entries.append(
                PhoneAssignment(phone=phone, token=self._token, position=self._queue.popleft())
            )
        return entries

    def renew(self, token: int) -> bool:
        """Extend a lease, starting now; return False if it has ended or expired."""
        row = self._holder(token)
        if row is None:
            return False
        row.until_s = self._clock() + self.expiry_s
        return True

    def expire(self) -> list[str]:
        """Free the phones whose leases have expired, and return them."""
        late = [t for t, phone in self._lent.items() if self._rows[phone].until_s <= self._clock()]
        return [self._take_back(token, PhoneAvailability.FREE) for token in late]

    def end(self, token: int, *, good: bool, failed: bool = False, busy_s: float = 0.0) -> bool:
        """End a lease.

        Args:
            token: token of the lease.
            good: whether to reset the failure count.
            failed: whether the phone failed; it is not leased again before it has recovered.
            busy_s: seconds spent in calls.

        Returns:
            False, with no effect, if the lease had already ended or expired.
        """
        row = self._holder(token)
        if row is None:
            return False
        row.busy_s += busy_s
        if good:
            row.failures_in_a_row = row.pauses = 0
        if not failed:
            self._take_back(token, PhoneAvailability.FREE)
            return True
        row.failures += 1
        row.failures_in_a_row += 1
        phone = self._take_back(token, PhoneAvailability.RECOVERING)
        # A phone that always answers but fails every episode would otherwise be leased forever.
        if row.failures_in_a_row >= self._quarantine_after:
            self._quarantine(phone)
        return True

    def phone_of(self, token: int) -> str | None:
        """Return the phone leased under a token; None if the lease has ended."""
        return self._lent.get(token)

    def state(self, phone: str) -> PhoneAvailability:
        """Return the state of a phone."""
        return self._rows[phone].state

    def failures_in_a_row(self, phone: str) -> int:
        """Return the number of failures since the last good lease."""
        return self._rows[phone].failures_in_a_row

    def record_recovery(self, phone: str, steps: Iterable[str], *, answers: bool) -> None:
        """Record a recovery attempt; a phone that still does not answer is quarantined."""
        self._rows[phone].recoveries.update(steps)
        self._readmit(phone, PhoneAvailability.RECOVERING, answers=answers)

    def mark_disconnected(self, phone: str) -> None:
        """Quarantine a free phone that was disconnected, making it due for a probe immediately."""
        if self._rows[phone].state is PhoneAvailability.FREE:
            self._free.remove(phone)
            self._quarantine(phone)
            self.make_due(phone)

    def make_due(self, phone: str) -> None:
        """Make a quarantined phone due for a probe immediately."""
        if self._rows[phone].state is PhoneAvailability.QUARANTINED:
            self._rows[phone].until_s = self._clock()

    def due_for_probe(self) -> list[str]:
        """Return the quarantined phones that are due for a probe."""
        now, quarantined = self._clock(), PhoneAvailability.QUARANTINED
        rows = self._rows.items()
        return [phone for phone, row in rows if row.state is quarantined and row.until_s <= now]

    def record_probe(self, phone: str, *, answers: bool) -> None:
        """Record a probe of a quarantined phone: free it, or lengthen the next pause."""
        self._readmit(phone, PhoneAvailability.QUARANTINED, answers=answers)

    def count(self, state: PhoneAvailability) -> int:
        """Return the number of phones in a state."""
        return sum(row.state is state for row in self._rows.values())

    def stats(self, running: Mapping[int, float] | None = None) -> list[DeviceStats]:
        """Return one row per phone; `running` maps lease tokens to seconds spent in calls."""
        past_s = max(self._clock() - self._opened_s, 1e-9)
        stats = []
        for phone, row in list(self._rows.items()):
            busy_s = row.busy_s
            if running is not None and row.state is PhoneAvailability.LEASED:
                busy_s += running.get(row.token, 0.0)
            stats.append(
                DeviceStats(
                    serial=phone,
                    leases=row.leases,
                    failures=row.failures,
                    state=row.state.value,
                    quarantined=row.state is PhoneAvailability.QUARANTINED,
                    busy_s=busy_s,
                    busy_share=min(busy_s / past_s, 1.0),
                    recoveries=dict(row.recoveries),
                )
            )
        return stats

    def _holder(self, token: int) -> _PhoneRecord | None:
        """Return the record of the phone still leased under this token."""
        phone = self._lent.get(token)
        row = None if phone is None else self._rows[phone]
        return None if row is None or row.until_s <= self._clock() else row

    def _take_back(self, token: int, state: PhoneAvailability) -> str:
        phone = self._lent.pop(token)
        row = self._rows[phone]
        row.state = state
        if state is PhoneAvailability.FREE:
            self._free.append(phone)
        return phone

    def _readmit(self, phone: str, state: PhoneAvailability, *, answers: bool) -> None:
        """Free a phone in this state if it answers, else (again) quarantine it."""
        row = self._rows[phone]
        # A phone may be quarantined while it recovers; then only a probe frees it.
        if row.state is state and answers:
            row.state = PhoneAvailability.FREE
            self._free.append(phone)
        elif row.state is state:
            self._quarantine(phone)

    def _quarantine(self, phone: str) -> None:
        row = self._rows[phone]
        pause_s = self._pause_s * min(2**row.pauses, _LONGEST_PAUSE)
        row.state, row.until_s = PhoneAvailability.QUARANTINED, self._clock() + pause_s
        row.pauses = min(row.pauses + 1, _LONGEST_PAUSE)
