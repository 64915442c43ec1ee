"""A phone refuses what is sent under a lease that has ended, whatever the sender."""

import time
from collections.abc import Callable
from functools import partial

import pytest

from agentrl.devices import Tap, Type
from agentrl.devices.adb.shell_script import LEASE_FILE
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.pool.lease import LeasedDevice
from agentrl.errors import LeaseLost

pytestmark = pytest.mark.adb
PACKAGE = "org.agentrl.probe"
Opened = Callable[..., AdbPhone]


@pytest.fixture(params=["input", "shell"])
def phone(request: pytest.FixtureRequest, virtual_serial: str, opened: Opened) -> AdbPhone:
    """A phone with the probe in front, lent under token 17, by each way to run commands."""
    device = opened(virtual_serial, command_s=20.0)
    device.use(input=request.param)
    device.launch(PACKAGE, ".Main", {})
    device.claim(17)
    device.set_lease(17)
    return device


def test_commands_under_the_lease_run_with_unchanged_output(phone: AdbPhone) -> None:
    before = phone.app_state(PACKAGE)["touches"]
    phone.perform(Tap(0.5, 0.25))
    assert phone.app_state(PACKAGE)["touches"] == before + 1
    assert [r.output for r in phone.batch(("echo", "a"), ("cat", LEASE_FILE))] == ["a\n", "17\n"]
    assert phone.run_internal([("sh", "-c", "exit 77")])[0].code == 77, "is not a lost lease"


def test_a_late_command_is_refused_without_any_effect(
    phone: AdbPhone, opened: Opened, virtual_serial: str
) -> None:
    new = opened(virtual_serial, command_s=20.0)
    new.claim(18)
    new.set_lease(18)
    before = new.app_state(PACKAGE)
    for late in (
        lambda: phone.perform(Tap(0.5, 0.25)),
        lambda: phone.stop(PACKAGE),
        lambda: phone.launch(PACKAGE, ".Main", {}),
        lambda: phone.batch(("input", "keyevent", "KEYCODE_HOME"), ("echo", "2")),
        lambda: phone.perform(Type("a\nb")),
    ):
        with pytest.raises(
            LeaseLost,
            match=rf"{virtual_serial}: lost lease 17; the phone now has a different holder",
        ):
            late()
    assert new.app_state(PACKAGE) == before
    phone.claim(19)  # it is granted again
    phone.set_lease(19)
    assert phone.shell("echo", "on") == "on\n"
    assert phone.focus() == PACKAGE


def test_a_phone_without_a_holder_refuses_too(phone: AdbPhone) -> None:
    phone.run_internal([("true",)])  # a shell that is kept must not remember the answer
    phone.set_lease(None)
    phone.shell("rm", LEASE_FILE)
    phone.set_lease(17)
    for call in (partial(phone.perform, Tap(0.5, 0.25)), partial(phone.shell, "true")):
        with pytest.raises(LeaseLost, match="holder or none"):
            call()


def test_an_expired_lease_refuses_by_itself(phone: AdbPhone) -> None:
    lease = LeasedDevice(phone, "phone#17", until_s=time.monotonic() + 30)
    assert lease.focus() == PACKAGE
    lease.until_s = time.monotonic()
    for call in (lease.screenshot, lease.focus, lease.reconnect):
        with pytest.raises(LeaseLost, match="phone#17 has expired"):
            call()
    lease.end()
