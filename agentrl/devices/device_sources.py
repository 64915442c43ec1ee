"""Open phones by what a user writes: a serial, a list of them, or `virtual:8`."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentrl.devices.adb import AdbServer
from agentrl.devices.device import Deadlines, Device
from agentrl.devices.device_opener import Around, Opener
from agentrl.devices.pool import DevicePool, lease
from agentrl.devices.pool.connection_routes import by_phone
from agentrl.devices.pool.lease import Lendable
from agentrl.devices.pool.lender import PoolOptions
from agentrl.devices.pool.pool_manager import Keeper
from agentrl.errors import ConfigError, DeviceError
from agentrl.virtual_phone.spawn import AppLike, Phones, spawn

_VIRTUAL = re.compile(r"virtual(?::(\d+))?")
CONNECTED = "connected"
"""As a source: all phones that adb lists as ready, now and later."""
_NO_TOKEN = "the lease {} is not known in this process, or has ended; give the serial instead"


def open_device(
    spec: str,
    *,
    deadlines: Deadlines | None = None,
    driver: str = "adbutils",
    capture: str = "auto",
    input: str = "auto",
    public: Sequence[str] = (),
    apps: Sequence[AppLike] = (),
    size: tuple[int, int] = (720, 1280),
    effect_delay_ms: tuple[float, float] = (50, 300),
    seed: int = 0,
) -> Device:
    """One connected phone.

    Args:
        spec: a serial (`emulator-5556`, `192.168.1.7:5555`), the token of a lease of this process,
            or `virtual`, which starts a phone that ends when it is closed.
        deadlines: of its calls.
        driver: the library that speaks ADB, `adbutils` or `ppadb`.
        capture: how pictures are taken: `raw`, `png`, `framebuffer`, `stream`, or `auto` for the
            fastest (`agentrl.devices.capture_benchmark`).
        input: how commands are run: `input`, `shell`, or `auto` for the faster one.
        public: serials that are connected though their address is public.
        apps: installed on a virtual phone.
        size: of a virtual phone's screen: width and height in pixels.
        effect_delay_ms: of a virtual phone: how late effects appear, at least and at most.
        seed: of a virtual phone.

    Raises:
        ConfigError: a public address, an app that does not exist, a library that is not installed.
        DeviceError: the phone cannot be connected.
    """
    if "#" in spec:
        leased = lease.find(spec)
        if leased is None:
            raise DeviceError(_NO_TOKEN.format(spec))
        return leased
    deadlines = deadlines or Deadlines()
    opener = Opener(
        driver=driver, capture=capture, input=input, deadlines=deadlines, public=tuple(public)
    )
    if _num_virtual(spec) is None:
        return opener.open(spec)
    phones = spawn(
        1,
        apps,
        size=size,
        effect_delay_ms=effect_delay_ms,
        seed=seed,
        deadline_s=deadlines.start_s,
    )
    try:
        return opener.open(phones.serials[0], _ending(phones, opener.server), known=True)
    except BaseException:
        phones.close()
        raise


def open_source(
    source: str | Sequence[str],
    *,
    deadlines: Deadlines | None = None,
    driver: str = "adbutils",
    capture: str = "auto",
    input: str = "auto",
    public: Sequence[str] = (),
    apps: Sequence[AppLike] = (),
    size: tuple[int, int] = (720, 1280),
    effect_delay_ms: tuple[float, float] = (50, 300),
    seed: int = 0,
    options: PoolOptions | None = None,
    around: Around = lambda phone: phone,
) -> DevicePool:
    """A pool of phones; closing it, or leaving its `with`, ends those that it started.

    Two serials of one phone are two ways to it: it is lent once, and by the other way where one
    fails.

    Args:
        source: `virtual:8`, a serial, or a list of serials: of real phones, emulators, or virtual
            phones that were started elsewhere; or `connected` for all that adb lists as ready, now
            and later.
        deadlines: of the calls to every phone.
        driver: the library that speaks ADB, `adbutils` or `ppadb`.
        capture: how pictures are taken, see `open_device`.
        input: how commands are run, see `open_device`.
        public: serials that are connected though their address is public.
        apps: installed on virtual phones.
        size: of virtual phones' screens: width and height in pixels.
        effect_delay_ms: of virtual phones: how late effects appear, at least and at most.
        seed: of virtual phones.
        options: how patient the pool is.
        around: gives what is lent in the place of a phone that the source names, such as the phone
            with a page of the app around it; not asked about virtual phones of its own. It may
            raise DeviceError and ConfigError, and is called from threads.

    Raises:
        ConfigError: no source, no phone, one that cannot be reached, or a library that is not
            installed.
    """
    serials, num_virtual = _parse(source)
    deadlines, options = deadlines or Deadlines(), options or PoolOptions()
    opener = Opener(
        driver=driver,
        capture=capture,
        input=input,
        deadlines=deadlines,
        public=tuple(public),
        around=around,
    )
    if num_virtual is None:
        grows = source == CONNECTED
        devices = _connect(opener, _ready(opener) if grows else serials)
        return DevicePool(
            Keeper(
                _by_phone(devices),
                options,
                server=opener.server,
                open_newcomer=opener.open if grows else None,
            )
        )
    phones = spawn(
        num_virtual,
        apps,
        size=size,
        effect_delay_ms=effect_delay_ms,
        seed=seed,
        deadline_s=deadlines.start_s,
    )
    ending = _ending(phones, opener.server)
    try:
        devices = _connect(opener, phones.serials, known=True)
    except BaseException:
        ending()
        raise
    return DevicePool(Keeper([[device] for device in devices], options, on_close=ending))


def check_source(
    source: str | Sequence[str],
    deadlines: Deadlines | None = None,
    *,
    driver: str = "adbutils",
    capture: str = "auto",
    input: str = "auto",
    public: Sequence[str] = (),
) -> None:
    """See whether a source is one, and whether the phones that it names can be reached.

    Raises:
        ConfigError: it is none, a phone cannot be reached, or a library is not installed.
    """
    serials, num_virtual = _parse(source)
    opener = Opener(
        driver=driver,
        capture=capture,
        input=input,
        deadlines=deadlines or Deadlines(),
        public=tuple(public),
    )
    if source == CONNECTED:
        _ready(opener)
    elif num_virtual is None:
        for device in _connect(opener, serials, known=True):
            device.close()


def _parse(source: Any) -> tuple[tuple[str, ...], int | None]:
    """The serials that a source names, or how many virtual phones."""
    if isinstance(source, str):
        num_virtual = _num_virtual(source)
        if num_virtual is None and source.startswith("virtual"):
            raise ConfigError(f"devices.source: {source!r} must read virtual:N, N at least 1")
        return ((source,) if num_virtual is None else ()), num_virtual
    named = isinstance(source, Sequence) and all(isinstance(s, str) and s for s in source)
    if not named or not source or len(set(source)) != len(source):
        raise ConfigError(
            f"devices.source: {source!r} must be virtual:N, {CONNECTED}, or a list of different "
            "serials"
        )
    return tuple(source), None


def _num_virtual(spec: str) -> int | None:
    found = _VIRTUAL.fullmatch(spec)
    return None if found is None or found[1] == "0" else int(found[1] or 1)


def _ending(phones: Phones, server: AdbServer) -> Callable[[], None]:
    """Ends virtual phones and has the adb server forget them."""

    def end() -> None:
        server.forget(phones.serials)
        phones.close()

    return end


def _ready(opener: Opener) -> list[str]:
    """The phones that adb lists as ready.

    Raises:
        ConfigError: none.
    """
    opener.server.ensure(opener.deadlines.connect_s)
    known = opener.server.devices(opener.deadlines.connect_s)
    ready = [serial for serial, state in known.items() if state == "device"]
    if not ready:
        listed = ", ".join(f"{serial} is {state}" for serial, state in known.items())
        raise ConfigError(
            f"devices.source={CONNECTED}: no phone is ready ({listed or 'adb lists none'}). "
            "Connect one, and allow debugging on its screen (agentrl devices)."
        )
    return ready


def _by_phone(devices: Sequence[Lendable]) -> list[list[Lendable]]:
    try:
        return by_phone(devices)
    except DeviceError as error:
        for device in devices:
            device.close()
        raise ConfigError(f"devices.source: {error}") from error


def _connect(opener: Opener, serials: Sequence[str], *, known: bool = False) -> list[Lendable]:
    """Connect all phones at once."""

    def connect(serial: str) -> Lendable | Exception:
        try:
            return opener.open(serial, known=known)
        except (DeviceError, ConfigError) as error:
            return error

    opener.server.ensure(opener.deadlines.connect_s)
    with ThreadPoolExecutor(max_workers=min(len(serials), 16)) as threads:
        tried = list(threads.map(connect, serials))
    devices = [one for one in tried if not isinstance(one, Exception)]
    failures = [f"{one}" for one in tried if isinstance(one, Exception)]
    if failures:
        for device in devices:
            device.close()
        ready = ", ".join(device.serial for device in devices) or "none"
        raise ConfigError(
            f"devices.source: {'; '.join(failures)}. Ready of those named: {ready}. Connect the "
            "phone (agentrl devices connect HOST:PORT), take it out of devices.source, or use "
            "virtual:N."
        )
    return devices
