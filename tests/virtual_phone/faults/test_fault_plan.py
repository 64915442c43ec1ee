import asyncio
import json
from pathlib import Path

import pytest

from tests.virtual_phone.shell_runner import probe_phone
from virtual_phone import spawn
from virtual_phone.errors import SettingError
from virtual_phone.faults import fault_plan
from virtual_phone.faults.fault_plan import (
    FaultPlan,
    FaultSchedule,
    PhoneFaults,
    ScheduledFault,
)

PLAN = """
seed: 7
all:
  always: {latency_ms: "lognormal:20:0.6", drop: 0.002}
  schedule:
    - {at_s: 30, every_s: 120, for_s: 5, fault: capture, value: black}
    - {at_s: 10-60, fault: dialog, value: anr, probability: 0.5}
phones:
  3:
    schedule:
      - {at_s: 60, fault: offline_s, value: 5}
"""


def test_a_plan_survives_loading_and_transfer_to_the_phones(tmp_path: Path) -> None:
    (tmp_path / "flaky.yaml").write_text(PLAN)
    plan = fault_plan.load(tmp_path / "flaky.yaml")
    assert plan.seed == 7
    assert plan.for_phone(0).always == {"latency_ms": "lognormal:20:0.6", "drop": "0.002"}
    assert [event.fault for event in plan.for_phone(3).schedule] == [
        "capture",
        "dialog",
        "offline_s",
    ]
    assert plan.for_phone(0).schedule[1].at_s == "10-60"
    assert fault_plan.read(json.loads(json.dumps(plan.to_dict()))) == plan
    assert fault_plan.read(None) == FaultPlan()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "faults must be a mapping"),
        ("{al: {}}", "faults has no key 'al' (did you mean 'all'?)"),
        ("{seed: x}", "faults.seed is 'x'"),
        ("{all: {alway: {}}}", "faults.all has no key 'alway' (did you mean 'always'?)"),
        ("{all: {always: {drp: 1}}}", "faults.all.always.drp: unknown fault 'drp'"),
        ("{all: {always: {drop: 3}}}", "faults.all.always.drop: drop: '3' is not a probability"),
        ("{all: {always: {drop: }}}", "faults.all.always.drop: drop needs a value"),
        ("{all: {schedule: 3}}", "faults.all.schedule must be a list"),
        ("{all: {schedule: [{fault: drop}]}}", "faults.all.schedule[0].value is required"),
        (
            "{all: {schedule: [{fault: drop, value: 1, at: 3}]}}",
            "has no key 'at' (did you mean 'at_s'",
        ),
        ("{all: {schedule: [{fault: drop, value: 1, at_s: -3}]}}", "schedule[0].at_s: '-3' must"),
        (
            "{all: {schedule: [{fault: drop, value: 1, every_s: 0}]}}",
            "every_s is 0; it must be at least 0.1",
        ),
        ("{all: {schedule: [{fault: drop, value: 1, probability: 2}]}}", "probability is 2"),
        ("{phones: {x: {}}}", "'x' is not a phone number"),
        ("{phones: {1: 5}}", "faults.phones.1 must be a mapping, not 5"),
        ("{", "is not valid YAML"),
    ],
)
def test_an_invalid_plan_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "flaky.yaml"
    path.write_text(text)
    with pytest.raises(SettingError) as raised:
        fault_plan.load(path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


def test_an_invalid_plan_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(SettingError, match=r"no/such\.yaml cannot be read"):
        spawn(1, faults="no/such.yaml")
    with pytest.raises(SettingError, match="unknown fault 'drp'"):
        spawn(1, faults={"all": {"always": {"drp": 1}}})


class Watched:
    """A phone that records changes of its faults."""

    def __init__(self) -> None:
        self.phone = probe_phone()
        self.seen: list[tuple[str, str]] = []
        self._strike = self.phone.faults._on_change
        self.phone.faults._on_change = self._note

    def _note(self, name: str, old: str, value: str) -> None:
        self.seen.append((name, value))
        self._strike(name, old, value)

    async def wait_for(self, *events: tuple[str, str]) -> None:
        async with asyncio.timeout(60):
            while len(self.seen) < len(events):
                await asyncio.sleep(0.005)
        assert self.seen[: len(events)] == list(events)


async def test_faults_follow_their_schedule() -> None:
    watched = Watched()
    event = ScheduledFault(fault="capture", value="black", at_s="0.05", every_s="0.4", for_s="0.1")
    schedule = FaultSchedule(watched.phone.faults, FaultPlan(all=PhoneFaults(schedule=(event,))), 0)
    come, go = ("capture", "black"), ("capture", "")
    await watched.wait_for(come, go, come, go)
    schedule.close()


async def test_permanent_faults_are_restored_after_a_scheduled_fault_and_a_reboot() -> None:
    watched = Watched()
    event = ScheduledFault(fault="latency_ms", value="500", for_s="0.05")
    always = {"latency_ms": "5", "rotation": "1"}
    plan = FaultPlan(all=PhoneFaults(always=always, schedule=(event,)))
    schedule = FaultSchedule(watched.phone.faults, plan, 0)
    late = "latency_ms"
    await watched.wait_for((late, "5"), ("rotation", "1"), (late, "500"), (late, "5"))
    watched.phone.restart()
    assert not list(watched.phone.faults)
    schedule.set_permanent()
    assert dict(watched.phone.faults) == always
    schedule.close()


async def test_schedules_differ_between_phones_and_repeat_with_the_seed() -> None:
    event = ScheduledFault(fault="capture", value="black", at_s="1-1000")
    plan = FaultPlan(seed=3, all=PhoneFaults(schedule=(event,)))

    def due_s(number: int) -> float:
        schedule = FaultSchedule(probe_phone().faults, plan, number)
        due = schedule._timers[0].when() - asyncio.get_running_loop().time()
        schedule.close()
        return round(due)

    assert due_s(0) == pytest.approx(due_s(0), abs=2)
    assert len({due_s(number) for number in range(5)}) == 5
