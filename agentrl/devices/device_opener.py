"""How phones are to be opened: one way for all of a job."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agentrl.devices import capture_benchmark
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb_phone import INPUTS, AdbPhone
from agentrl.devices.capture import CAPTURES, check_installed
from agentrl.devices.device import Deadlines
from agentrl.devices.pool.lease import Lendable
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean, remember_serial

Around = Callable[[Lendable], Lendable]


@dataclass(slots=True, kw_only=True, frozen=True)
class Opener:
    """Opens phones.

    Args:
        driver: the library that speaks ADB.
        capture: how pictures are taken, one of CAPTURES, or `auto`.
        input: how commands are run, one of INPUTS, or `auto`.
        deadlines: of the calls to every phone.
        public: serials that are connected though their address is public.
        around: gives what is used in the place of a phone, such as the phone with a page of an app
            around it. It may raise DeviceError and ConfigError, and is called from threads.

    Raises:
        ConfigError: one of these does not exist, or needs a library that is not installed.
    """

    driver: str
    capture: str
    input: str
    deadlines: Deadlines
    public: tuple[str, ...] = ()
    around: Around = lambda phone: phone
    server: AdbServer = field(init=False)

    def __post_init__(self) -> None:
        for setting, value, known in (
            ("capture", self.capture, ("auto", *CAPTURES)),
            ("input", self.input, ("auto", *INPUTS)),
        ):
            if value not in known:
                raise ConfigError(
                    f"devices.{setting}={value} is none of {', '.join(known)}"
                    f"{did_you_mean(value, known)}"
                )
        check_installed(self.capture)
        server = AdbServer.from_environment(self.driver, public=self.public)
        object.__setattr__(self, "server", server)

    def open(
        self, serial: str, on_close: Callable[[], None] = lambda: None, *, known: bool = False
    ) -> Lendable:
        """Connect one phone.

        Args:
            serial: as `adb devices` names it, or `host:port`.
            on_close: called when the device is closed.
            known: whether to take the usual ways for `auto`, to measure nothing, and
                to put nothing around: virtual phones of our own are all the same, raw captures
                are the fastest there, and they have the app.

        Raises:
            ConfigError: a public address, or no adb program.
            DeviceError: the phone cannot be connected.
        """
        remember_serial(serial)
        phone = AdbPhone(self.server, serial, self.deadlines, on_close)
        try:
            if known:
                capture_benchmark.use(phone, capture=self.capture, input=self.input)
                return phone
            capture_benchmark.choose(phone, capture=self.capture, input=self.input)
            return self.around(phone)
        except BaseException:
            phone.close()
            raise
