"""Opens phones from a user's source: a serial, a list of serials, or `virtual:8`."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Unpack

from agentrl.devices.device import Device
from agentrl.devices.device_opener import DeviceOpener, DeviceWrapper, OpenSettings
from agentrl.devices.pool import DevicePool, lease
from agentrl.devices.pool.connection_routes import group_by_phone
from agentrl.devices.pool.lease import LeasableDevice
from agentrl.devices.pool.pool_manager import PoolManager, PoolOptions
from agentrl.errors import ConfigError, DeviceError, DeviceTimeout
from virtual_phone.errors import SettingError, StartError, StartTimeout
from virtual_phone.phones_spec import Tempo
from virtual_phone.spawn import AppLike, VirtualPhones, spawn

_VIRTUAL = re.compile(r"virtual(?::(\d+))?")
CONNECTED = "connected"
"""Source that means all phones that adb lists as ready, including any that connect later."""
_NO_TOKEN = "lease {} has ended or is not known in this process; use the serial instead"


def open_device(
    spec: str,
    *,
    apps: Sequence[AppLike] = (),
    size: tuple[int, int] = (720, 1280),
    tempo: Tempo = "real",
    effect_delay_ms: tuple[float, float] | None = None,
    seed: int = 0,
    **opening: Unpack[OpenSettings],
) -> Device:
    """Open one phone.

    Args:
        spec: a serial (`emulator-5556`, `192.168.1.7:5555`), the token of a lease of this process,
            or `virtual`, which starts a virtual phone that ends when it is closed.
        apps: apps to install on a virtual phone.
        size: width and height of a virtual phone's screen, in pixels.
        tempo: speed of gestures on a virtual phone: as on a real phone (`real`), or instant
            (`quick`).
        effect_delay_ms: shortest and longest delay of effects on a virtual phone; None uses the
            tempo's default.
        seed: random seed of a virtual phone.
        **opening: see `OpenSettings`.

    Raises:
        ConfigError: the address is public, an app is unknown, or a library is not installed.
        DeviceError: the phone cannot be connected.
    """
    if "#" in spec:
        leased = lease.find_lease(spec)
        if leased is None:
            raise DeviceError(_NO_TOKEN.format(spec))
        return leased
    opener = DeviceOpener(**opening)
    if num_virtual(spec) is None:
        return opener.open(spec)
    phones, end = _spawn(opener, 1, apps, size, tempo, effect_delay_ms, seed)
    try:
        return opener.open(phones.serials[0], end, known=True)
    except BaseException:
        phones.close()
        raise


def open_source(
    source: str | Sequence[str],
    *,
    apps: Sequence[AppLike] = (),
    size: tuple[int, int] = (720, 1280),
    tempo: Tempo = "real",
    effect_delay_ms: tuple[float, float] | None = None,
    seed: int = 0,
    options: PoolOptions | None = None,
    wrap: DeviceWrapper = lambda phone: phone,
    **opening: Unpack[OpenSettings],
) -> DevicePool:
    """Open a pool of phones; closing it also ends the virtual phones that it started.

    Two serials of the same phone count as two routes to it: the phone is leased only once, and if
    one route fails, the other is used.

    Args:
        source: `virtual:8`, a serial, a list of serials, or `connected` for all phones that adb
            lists as ready, including any that connect later.
        apps: apps to install on virtual phones.
        size: width and height of virtual phones' screens, in pixels.
        tempo: speed of gestures on virtual phones; see `open_device`.
        effect_delay_ms: shortest and longest delay of effects on virtual phones.
        seed: random seed of virtual phones.
        options: quarantine, lease and reboot settings of the pool.
        wrap: wraps each phone that the source names; see `DeviceOpener`.
        **opening: see `OpenSettings`.

    Raises:
        ConfigError: the source is invalid, a phone cannot be reached, or a library is not
            installed.
    """
    serials, count = _parse(source)
    opener, options = DeviceOpener(wrap=wrap, **opening), options or PoolOptions()
    # Real phones: two serials may be routes to one phone, and newcomers may join.
    if count is None:
        grows = source == CONNECTED
        devices = _connect(opener, _ready(opener) if grows else serials)
        try:
            routes = group_by_phone(devices)
        except DeviceError as error:
            for device in devices:
                device.close()
            raise ConfigError(f"devices.source: {error}") from error
        admit = opener.open if grows else None
        return DevicePool(PoolManager(routes, options, server=opener.server, open_newcomer=admit))
    # Virtual phones: each has one route, no phone joins later, and all end with the pool.
    phones, end = _spawn(opener, count, apps, size, tempo, effect_delay_ms, seed)
    try:
        routes = [[device] for device in _connect(opener, phones.serials, known=True)]
    except BaseException:
        end()
        raise
    revive = partial(phones.revive, opener.deadlines.start_s)
    return DevicePool(PoolManager(routes, options, revive=revive, on_close=end))


def _spawn(
    opener: DeviceOpener,
    count: int,
    apps: Sequence[AppLike],
    size: tuple[int, int],
    tempo: Tempo,
    effect_delay_ms: tuple[float, float] | None,
    seed: int,
) -> tuple[VirtualPhones, Callable[[], None]]:
    """Start virtual phones; return them and a function that ends and disconnects them."""
    server = opener.server
    with phone_errors():
        phones = spawn(
            count,
            apps,
            size=size,
            tempo=tempo,
            effect_delay_ms=effect_delay_ms,
            seed=seed,
            adb_server=(server.host, server.port),
            deadline_s=opener.deadlines.start_s,
        )

    def end() -> None:
        # Disconnect first, or the server would try to reconnect phones that are gone.
        server.forget(phones.serials)
        phones.close()

    return phones, end


@contextlib.contextmanager
def phone_errors() -> Iterator[None]:
    """Convert errors of virtual_phone, a separate package, to the matching agentrl errors."""
    try:
        yield
    except SettingError as error:
        raise ConfigError(str(error)) from error
    except StartTimeout as error:
        raise DeviceTimeout(str(error)) from error
    except StartError as error:
        raise DeviceError(str(error)) from error


def check_source(source: str | Sequence[str], **opening: Unpack[OpenSettings]) -> None:
    """Check that a source is valid and that the phones it names can be reached.

    Args:
        source: see `open_source`.
        **opening: see `OpenSettings`.

    Raises:
        ConfigError: the source is invalid, a phone cannot be reached, or a library is not
            installed.
    """
    serials, count = _parse(source)
    opener = DeviceOpener(**opening)
    if source == CONNECTED:
        _ready(opener)
    elif count is None:
        for device in _connect(opener, serials, known=True):
            device.close()


def _parse(source: Any) -> tuple[tuple[str, ...], int | None]:
    """Return the serials that a source names and None, or () and the number of virtual phones."""
    if isinstance(source, str):
        count = num_virtual(source)
        if count is None and source.startswith("virtual"):
            raise ConfigError(f"devices.source must be virtual:N with N >= 1, got {source!r}")
        return ((source,) if count is None else ()), count
    named = isinstance(source, Sequence) and all(isinstance(s, str) and s for s in source)
    if not named or not source or len(set(source)) != len(source):
        raise ConfigError(
            f"devices.source must be virtual:N, {CONNECTED}, or a list of distinct serials, got "
            f"{source!r}"
        )
    return tuple(source), None


def num_virtual(spec: str) -> int | None:
    """Return the number of virtual phones in a source such as `virtual:8`; None for others."""
    found = _VIRTUAL.fullmatch(spec)
    return None if found is None or found[1] == "0" else int(found[1] or 1)


def _ready(opener: DeviceOpener) -> list[str]:
    """Return the serials of the phones that adb lists as ready."""
    opener.server.ensure(opener.deadlines.connect_s)
    known = opener.server.devices(opener.deadlines.connect_s)
    ready = [serial for serial, state in known.items() if state == "device"]
    if not ready:
        listed = ", ".join(f"{serial} is {state}" for serial, state in known.items())
        raise ConfigError(
            f"devices.source={CONNECTED}: no phone is ready ({listed or 'adb lists none'}). "
            "Connect one and allow debugging on its screen (agentrl devices)."
        )
    return ready


def _connect(
    opener: DeviceOpener, serials: Sequence[str], *, known: bool = False
) -> list[LeasableDevice]:
    """Connect all phones in parallel."""

    def connect(serial: str) -> LeasableDevice | Exception:
        try:
            return opener.open(serial, known=known)
        except (DeviceError, ConfigError) as error:
            return error

    # Start the server before the threads, or each would wait for it within its own deadline.
    opener.server.ensure(opener.deadlines.connect_s)
    with ThreadPoolExecutor(max_workers=min(len(serials), 16)) as threads:
        results = list(threads.map(connect, serials))
    devices = [result for result in results if not isinstance(result, Exception)]
    failures = [f"{result}" for result in results if isinstance(result, Exception)]
    # Fail if any phone fails, because a job must not silently run on fewer phones than it names.
    if failures:
        for device in devices:
            device.close()
        ready = ", ".join(device.serial for device in devices) or "none"
        raise ConfigError(
            f"devices.source: {'; '.join(failures)}. Ready phones in the list: {ready}. Connect "
            "the phone (agentrl devices connect HOST:PORT), remove it from devices.source, or use "
            "virtual:N."
        )
    return devices
