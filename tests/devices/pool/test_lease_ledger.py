from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentrl.devices.pool.lease_ledger import LeaseLedger, PhoneAvailability

EXPIRY_S = 10.0


class LedgerMachine(RuleBasedStateMachine):
    """Everything that can happen to a pool, in any order, beside the simplest account of it."""

    @initialize(phones=st.integers(1, 4), after=st.integers(1, 3))
    def open(self, phones, after):
        self.now = 0.0
        self.ledger = LeaseLedger(
            lambda: self.now, expiry_s=EXPIRY_S, quarantine_after=after, first_token=100
        )
        self.held = {}  # phone: token and when it expires
        self.tokens = {}  # phone: the largest so far
        self.old = [1, 99]  # tokens of leases that have ended
        self.waiting = []
        for _ in range(phones):
            self.come()

    def take_notes(self, entries):
        for entry in entries:
            assert entry.position == self.waiting.pop(0), "who waits longest is first"
            assert entry.phone not in self.held or self.expired(entry.phone), "held twice"
            assert entry.token > self.tokens.get(entry.phone, 99)
            self.tokens[entry.phone] = entry.token
            self.held[entry.phone] = (entry.token, self.now + EXPIRY_S)

    def expired(self, phone):
        return self.held[phone][1] <= self.now

    @rule()
    def come(self):
        self.ledger.add(f"phone-{len(self.ledger)}")

    @rule(seconds=st.sampled_from([0.0, 1.0, 9.0, 10.0, 100.0]))
    def pass_time(self, seconds):
        self.now += seconds

    @rule()
    def wait(self):
        self.waiting.append(self.ledger.join_queue())

    @rule(data=st.data())
    def leave_queue(self, data):
        position = data.draw(st.sampled_from([0, *self.waiting]))
        self.ledger.leave_queue(position)
        self.waiting = [other for other in self.waiting if other != position]

    @rule()
    def grant_free(self):
        self.take_notes(self.ledger.grant_free())

    @rule()
    def expire(self):
        taken = {phone for phone in self.held if self.expired(phone)}
        assert set(self.ledger.expire()) == taken
        self.forget(taken)

    def forget(self, phones):
        self.old += [self.held.pop(phone)[0] for phone in list(phones)]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data):
        phone = data.draw(st.sampled_from(sorted(self.held)))
        token, until = self.held[phone]
        assert self.ledger.renew(token) == (until > self.now), "an expired lease is never renewed"
        if until > self.now:
            self.held[phone] = (token, self.now + EXPIRY_S)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), failed=st.booleans(), good=st.booleans())
    def end(self, data, failed, good):
        phone = data.draw(st.sampled_from(sorted(self.held)))
        ended = self.ledger.end(self.held[phone][0], good=good and not failed, failed=failed)
        assert ended == (not self.expired(phone))
        if ended:
            self.forget([phone])

    @rule(data=st.data())
    def use_an_old_token(self, data):
        token = data.draw(st.sampled_from(self.old))
        assert not self.ledger.renew(token)
        assert not self.ledger.end(token, good=True)

    @rule(data=st.data(), answers=st.booleans())
    def tend(self, data, answers):
        phone = data.draw(st.sampled_from(self.ledger.phones))
        what = data.draw(st.sampled_from(["recovery", "mark_disconnected", "make_due", "probe"]))
        if what == "recovery":
            self.ledger.record_recovery(phone, ["reconnect"], answers=answers)
        elif what == "probe":
            self.ledger.record_probe(phone, answers=answers)
        else:
            getattr(self.ledger, what)(phone)

    @invariant()
    def nothing_is_lost(self):
        if not hasattr(self, "ledger"):
            return
        assert sum(self.ledger.count(state) for state in PhoneAvailability) == len(self.ledger)
        assert self.ledger.count(PhoneAvailability.LEASED) == len(self.held)
        assert sum(row.leases for row in self.ledger.stats()) == len(self.old) - 2 + len(self.held)

    def teardown(self):
        """When all holders are gone and all phones answer, everyone who waits is served."""
        if not hasattr(self, "ledger"):
            return
        self.now += 1e6
        self.forget(self.ledger.expire())
        for phone in self.ledger.phones:
            self.ledger.record_recovery(phone, [], answers=True)
            self.ledger.record_probe(phone, answers=True)
        served = min(len(self.waiting), len(self.ledger))
        self.take_notes(self.ledger.grant_free())
        assert len(self.held) == served


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def failing(ledger):
    """Lend the only phone and take it back as one that failed."""
    ledger.join_queue()
    (entry,) = ledger.grant_free()
    ledger.end(entry.token, good=False, failed=True)


def test_pauses_grow_until_a_good_lease():
    now = [0.0]
    ledger = LeaseLedger(lambda: now[0], quarantine_after=2, pause_s=30)
    ledger.add("phone")
    failing(ledger)
    ledger.record_recovery("phone", ["retry"], answers=True)
    for pause in (30, 60, 120, 240, 480, 600, 600):
        failing(ledger)  # a phone that is back needs no second failure
        assert ledger.stats()[0].quarantined
        now[0] += pause - 1
        assert ledger.due_for_probe() == []
        now[0] += 1
        assert ledger.due_for_probe() == ["phone"]
        ledger.record_probe("phone", answers=True)
    ledger.join_queue()
    (entry,) = ledger.grant_free()
    ledger.end(entry.token, good=True)
    failing(ledger)
    assert ledger.count(PhoneAvailability.RECOVERING) == 1
    assert ledger.stats()[0].recoveries == {"retry": 1}


def test_a_phone_that_does_not_answer_is_quarantined_at_its_first_failure():
    ledger = LeaseLedger(lambda: 0.0)
    ledger.add("phone")
    failing(ledger)
    ledger.record_recovery("phone", ["reconnect"], answers=False)
    assert ledger.count(PhoneAvailability.QUARANTINED) == 1


def test_the_longest_idle_phone_is_leased_first():
    ledger = LeaseLedger(lambda: 0.0)
    for phone in "abc":
        ledger.add(phone)
    order = []
    for _ in range(6):
        ledger.join_queue()
        (entry,) = ledger.grant_free()
        order.append(entry.phone)
        ledger.end(entry.token, good=True)
    assert "".join(order) == "abcabc"
