"""Opens phones with one driver, capture and input method for all phones of a job."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agentrl.devices import capture_benchmark
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb_phone import INPUTS, AdbPhone
from agentrl.devices.capture import CAPTURES, check_installed
from agentrl.devices.device import Deadlines
from agentrl.devices.pool.lease import LeasableDevice
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean, remember_serial

DeviceWrapper = Callable[[LeasableDevice], LeasableDevice]


@dataclass(slots=True, kw_only=True, frozen=True)
class DeviceOpener:
    """Opens phones.

    Args:
        driver: the library that speaks ADB.
        capture: one of CAPTURES, or `auto`.
        input: one of INPUTS, or `auto`.
        deadlines: of the calls to each phone.
        public: serials that may be connected even though their address is public.
        wrap: wraps an opened phone, for example into a phone that shows an app on a page. It may
            raise DeviceError and ConfigError, and is called from threads.

    Raises:
        ConfigError: an unknown setting, or one that needs a library that is not installed.
    """

    driver: str
    capture: str
    input: str
    deadlines: Deadlines
    public: tuple[str, ...] = ()
    wrap: DeviceWrapper = lambda phone: phone
    server: AdbServer = field(init=False)

    def __post_init__(self) -> None:
        for setting, value, known in (
            ("capture", self.capture, ("auto", *CAPTURES)),
            ("input", self.input, ("auto", *INPUTS)),
        ):
            if value not in known:
                raise ConfigError(
                    f"devices.{setting}={value} is not one of {', '.join(known)}"
                    f"{did_you_mean(value, known)}"
                )
        check_installed(self.capture)
        server = AdbServer.from_environment(self.driver, public=self.public)
        object.__setattr__(self, "server", server)

    def open(
        self, serial: str, on_close: Callable[[], None] = lambda: None, *, known: bool = False
    ) -> LeasableDevice:
        """Connect one phone.

        Args:
            serial: as `adb devices` names it, or `host:port`.
            on_close: called when the device is closed.
            known: skip measuring (`auto` takes the defaults) and wrapping: our own virtual phones
                are all alike, raw captures are the fastest there, and the app is installed.

        Raises:
            ConfigError: a public address, or adb is not installed.
            DeviceError: the phone cannot be connected.
        """
        remember_serial(serial)
        phone = AdbPhone(self.server, serial, self.deadlines, on_close)
        try:
            if known:
                capture_benchmark.set_methods(phone, capture=self.capture, input=self.input)
                return phone
            capture_benchmark.choose_methods(phone, capture=self.capture, input=self.input)
            return self.wrap(phone)
        except BaseException:
            phone.close()
            raise
