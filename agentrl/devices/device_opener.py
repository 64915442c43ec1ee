"""Opens phones with the same driver, capture and input method for all phones of a job."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from agentrl.devices import capture_and_input_choice, readiness
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb_phone import INPUTS, AdbPhone
from agentrl.devices.capture.phone_screen import read_display_id
from agentrl.devices.device import Deadlines
from agentrl.devices.pool.lease import LeasableDevice
from agentrl.errors import ConfigError
from agentrl.extension_points import CAPTURE
from agentrl.text.name_suggestions import did_you_mean
from agentrl.text.phone_names import remember_serial

DeviceWrapper = Callable[[LeasableDevice], LeasableDevice]


class OpenSettings(TypedDict, total=False):
    """How phones are opened; all keys are optional."""

    driver: str
    """ADB library, as in `devices.driver`; `adbutils` by default."""
    capture: str
    """Capture method, as in `devices.capture`; `auto` (default) picks the fastest
    (`agentrl.devices.capture_and_input_choice`)."""
    input: str
    """How commands are run: `input`, `shell`, or `auto` (default) for the faster of the two."""
    deadlines: Deadlines
    """Deadlines for calls to each phone."""
    public: Sequence[str]
    """Serials that may be connected even though their address is public."""
    wake: bool
    """Whether to wake phones, as in `devices.wake`."""
    adb_port: int | None
    """Port of the adb server; None (default) uses ANDROID_ADB_SERVER_PORT, or 5037."""


@dataclass(slots=True, kw_only=True, frozen=True)
class DeviceOpener:
    """Opens phones; fields not listed below are as in `OpenSettings`.

    Args:
        wrap: wraps an opened phone, for example into a phone that shows an app on a page. It may
            raise DeviceError and ConfigError, and is called from threads.

    Raises:
        ConfigError: a setting is unknown or needs a library that is not installed.
    """

    driver: str = "adbutils"
    capture: str = "auto"
    input: str = "auto"
    deadlines: Deadlines = field(default_factory=Deadlines)
    public: Sequence[str] = ()
    wake: bool = False
    adb_port: int | None = None
    wrap: DeviceWrapper = lambda phone: phone
    server: AdbServer = field(init=False)

    def __post_init__(self) -> None:
        inputs = ("auto", *INPUTS)
        if self.input not in inputs:
            raise ConfigError(
                f"devices.input={self.input} is not one of {', '.join(inputs)}"
                f"{did_you_mean(self.input, inputs)}"
            )
        if self.capture != "auto":
            CAPTURE.resolve(self.capture).check_installed()
        server = AdbServer.from_environment(self.driver, public=self.public, port=self.adb_port)
        object.__setattr__(self, "server", server)

    def open(
        self, serial: str, on_close: Callable[[], None] = lambda: None, *, known: bool = False
    ) -> LeasableDevice:
        """Connect one phone.

        Args:
            serial: serial as listed by `adb devices`, or `host:port`.
            on_close: called when the device is closed.
            known: skip measuring (`auto` uses the defaults) and wrapping.
        """
        remember_serial(serial)
        phone = AdbPhone(self.server, serial, self.deadlines, on_close)
        try:
            # Nothing can be measured or woken before Android has started.
            readiness.wait_until_started(phone, self.deadlines.boot_s)
            phone.wakes = self.wake
            phone.wake_if_asked()
            phone.transport.display = read_display_id(phone)
            # Our own virtual phones are all alike and have the app installed.
            if known:
                capture_and_input_choice.set_methods(phone, capture=self.capture, input=self.input)
                return phone
            capture_and_input_choice.choose_methods(phone, capture=self.capture, input=self.input)
            return self.wrap(phone)
        except BaseException:
            phone.close()
            raise
