"""A user's driver and capture method play on virtual phones through the real adb server."""

from pathlib import Path

import pytest

import agentrl
from agentrl.devices import open_device
from agentrl.devices.adb_phone import AdbPhone
from agentrl.errors import ConfigError

EXTEND = Path(__file__).parents[2] / "examples" / "extend"
DRIVER = f"{EXTEND}/driver.py:PlainDriver"
CAPTURE = f"{EXTEND}/capture.py:PillowCapture"

pytestmark = pytest.mark.adb


def test_a_game_is_won_through_them(adb_server, tmp_path) -> None:
    settings = [
        f"devices.driver={DRIVER}",
        f"devices.capture={CAPTURE}",
        "devices.source=virtual:1",
        "devices.tempo=quick",
        f"run.dir={tmp_path}",
        "logging=[]",
    ]
    found = agentrl.evaluate("number_game", policy="expert", episodes=1, overrides=settings)
    assert found.metrics["accuracy"] == 1.0
    assert (found.episodes, found.void) == (1, 0)


def test_a_phone_is_opened_with_them(adb_server) -> None:
    phone = open_device("virtual", driver=DRIVER, capture=CAPTURE)
    assert isinstance(phone, AdbPhone)
    with phone.transport.opened("shell:true", phone._deadline()) as link:
        assert type(link).__name__ == "PlainDriver"
    # On our own phones `known` skips the measurement, not the method that was asked for.
    assert type(phone.screen.capture).__name__ == "PillowCapture"
    phone.close()


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("driver", "adbutil", r"devices\.driver=adbutil: .*did you mean 'adbutils'"),
        ("driver", CAPTURE, r"is not a subclass of agentrl\.devices\.adb\.adb_socket\.AdbSocket"),
        ("capture", "framebufer", r"devices\.capture=framebufer: .*did you mean 'framebuffer'"),
        ("capture", f"{EXTEND}/capture.py:Pilow", r"has no 'Pilow' \(did you mean"),
    ],
)
def test_a_mistake_is_found_before_a_phone_starts(setting, value, reason) -> None:
    with pytest.raises(ConfigError, match=reason):
        open_device("virtual", **{setting: value})
