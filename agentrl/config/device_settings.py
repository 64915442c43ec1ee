"""Settings of the phones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from agentrl.config.bounds import NonNegativeSeconds, PositiveInt, Seconds, check_size
from agentrl.errors import ConfigError
from agentrl.extension_points import CAPTURE, DRIVER
from agentrl.text.name_suggestions import known_names

_OF_HOST = ("source", "adb_port")
_LAST_PORT = 65535
"""Largest port number, which adb refuses."""
_ALLOWED = re.compile(r"[A-Za-z]\w*(\.[A-Za-z_]\w*)+(/[\w.$]+\*?)?", re.ASCII)
_LONGEST = 511
"""Maximum length of `package/activity`, in characters."""


def check_allowed(entry: str) -> str:
    """Check an entry of `devices.allow` or of the guard; return it without a redundant final `*`.

    Raises:
        ConfigError: the entry is neither a package nor `package/activity-prefix`.
    """
    if len(entry) > _LONGEST or not _ALLOWED.fullmatch(entry):
        raise ConfigError(
            f"devices.allow: {entry[:80]!r} is not a package name such as com.example.app, or "
            "package/activity-prefix"
        )
    return entry.removesuffix("*")


@dataclass(slots=True, kw_only=True)
class DeadlinesConfig:
    """Deadlines of phones, in seconds."""

    connect_s: Seconds = 10.0
    """Deadline to connect, or to reconnect after a failure."""
    command_s: Seconds = 5.0
    """Deadline for a single command."""
    frame_s: Seconds = 5.0
    """Deadline for a single screenshot."""
    settle_s: Seconds = 3.0
    """Deadline for the screen to settle after an action."""
    launch_s: Seconds = 15.0
    """Deadline for an app to come to the foreground."""
    start_s: Seconds = 30.0
    """Deadline for all virtual phones to start."""
    boot_s: Seconds = 120.0
    """Deadline for Android to finish booting when a phone is opened."""


@dataclass(slots=True, kw_only=True)
class DevicesConfig:
    """The phones; ignored by environments without phones."""

    source: Any = "virtual:8"
    """`virtual:N`, a list of serials, or `connected`: every phone that adb lists as ready,
    including phones that appear later. If several nodes have phones, `virtual:N` is divided among
    the nodes, and each node uses the listed serials that are connected to it."""
    hosts: dict[str, Any] = field(default_factory=dict)
    """Nodes of the Ray cluster that have phones, by address, hostname or id; if empty, the nodes
    with engines. The value is a source for that node, null for its share of `devices.source`,
    `{source: ..., adb_port: ...}`, or false to exclude a node named in a file. See
    docs/phones.md."""
    adb_port: int | None = None
    """Port of the adb server; null uses ANDROID_ADB_SERVER_PORT from the environment, or 5037."""
    driver: str = "adbutils"
    """The ADB client library: `adbutils`, `ppadb` (pure-python-adb, an extra), or your own class
    (`my_driver.py:MyDriver`)."""
    capture: str = "auto"
    """How screenshots are taken: `raw`, `png`, `framebuffer`, `stream`, or your own class
    (`my_capture.py:MyCapture`); `auto` picks the fastest method that works correctly on the
    phone."""
    input: Literal["auto", "input", "shell"] = "auto"
    """Whether each command opens a shell (`input`) or all commands share one (`shell`); `auto`
    picks whichever is faster."""
    app: Literal["auto", "installed", "page"] = "auto"
    """How the game runs on the phone: as an `installed` app, which every virtual phone has, or as a
    `page` in the phone's browser, which needs no installation. `auto` uses the page if the app is
    not installed."""
    public_addresses: list[str] = field(default_factory=list)
    """`HOST:PORT` of phones to use even though they are reachable from the internet without
    encryption."""
    allow: list[str] = field(default_factory=list)
    """Packages that may be in the foreground in addition to the game's own app, or
    `package/activity-prefix` to allow only some of a package's activities."""
    mask: list[list[float]] = field(default_factory=list)
    """Regions `[left, top, right, bottom]` in [0, 1] that are blacked out in recorded frames. The
    policy still sees them, so training on recorded episodes sees less than the policy did."""
    size: list[int] = field(default_factory=lambda: [720, 1280])
    """[width, height] of virtual phones, in pixels."""
    tempo: Literal["real", "quick"] = "real"
    """Speed of virtual phones: `real`, where gestures take time and their effects show after a
    delay, or `quick`, where both are instant. A policy trained on quick phones has never seen the
    timing of real phones."""
    effect_delay_ms: list[int] | None = None
    """[minimum, maximum] delay until a virtual phone shows the effect of a touch; null uses
    [50, 300] with the tempo `real` and [0, 0] with `quick`."""
    quarantine_after: PositiveInt = 3
    """Consecutive failed episodes after which a phone is quarantined, even if it responds."""
    quarantine_s: Seconds = 30.0
    """Seconds before a quarantined phone is tried again; doubles each time."""
    patience_s: NonNegativeSeconds = 300.0
    """The job stops after all phones have been in quarantine for this many seconds."""
    reboot: bool = False
    """Reboot a phone if all other attempts to recover it fail. A phone connected with `adb tcpip`
    does not reconnect on its own."""
    wake: bool = False
    """Turn on a dark screen and dismiss a lock screen without a PIN when a phone is opened, before
    each episode, and when the phone is recovered."""
    lease_s: Seconds = 15.0
    """Seconds after which a phone is reclaimed from a rollout actor that died or hangs, if several
    actors share the phones."""
    deadlines: DeadlinesConfig = field(default_factory=DeadlinesConfig)

    def __post_init__(self) -> None:
        if isinstance(self.source, tuple):  # from Python; YAML has lists only
            self.source = list(self.source)
        self.hosts = {host: own for host, own in self.hosts.items() if own is not False}

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        DRIVER.check_name(self.driver)
        if self.capture != "auto":
            CAPTURE.check_name(self.capture)
        check_size("devices.size", self.size, 64, 4096)
        delay = self.effect_delay_ms
        if delay is not None and (len(delay) != 2 or not 0 <= delay[0] <= delay[1]):
            raise ConfigError(
                f"devices.effect_delay_ms={delay}: must be [minimum, maximum], both >= 0, or null"
            )
        self._check_source("devices.source", self.source)
        _check_port("devices.adb_port", self.adb_port)
        for host in self.hosts:
            self._check_host(host)
        for entry in self.allow:
            check_allowed(entry)
        for box in self.mask:
            if len(box) != 4 or not (0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):
                raise ConfigError(
                    f"devices.mask: {box} is not a region; it must be [left, top, right, bottom], "
                    "each in [0, 1] of the screen"
                )

    def of_host(self, host: str) -> Self:
        """Return the settings for one of `hosts`, without the other hosts."""
        own = self.hosts[host]
        settings = own if isinstance(own, dict) else {"source": own}
        own_source, port = settings.get("source"), settings.get("adb_port")
        return replace(
            self,
            hosts={},
            source=self.source if own_source is None else own_source,
            adb_port=self.adb_port if port is None else port,
        )

    def has_own_source(self, host: str) -> bool:
        """Return whether a host in `hosts` has its own source instead of a share of `source`."""
        own = self.hosts[host]
        return (own.get("source") if isinstance(own, dict) else own) is not None

    def _check_host(self, host: str) -> None:
        key, own = f"devices.hosts.{host}", self.hosts[host]
        for name in own if isinstance(own, dict) else ():
            if name not in _OF_HOST:
                raise ConfigError(
                    f"{key}.{name}: no such setting"
                    f"{known_names(str(name), _OF_HOST, label='A host has')}"
                )
        settings = self.of_host(host)
        self._check_source(key, settings.source)
        _check_port(f"{key}.adb_port", settings.adb_port)

    def _check_source(self, key: str, source: Any) -> None:
        serials = [source] if isinstance(source, str) else source
        named = isinstance(serials, Sequence) and all(isinstance(s, str) for s in serials)
        if not named or not source:
            raise ConfigError(
                f"{key}={source!r}: must be virtual:N, connected, a serial or a list "
                "of serials; quote an all-digit serial: 'devices.source=[\"0123456789\"]'"
            )
        if self.app == "page" and isinstance(source, str) and source.startswith("virtual"):
            raise ConfigError(
                f"devices.app=page: {source} has the app installed, but no browser to show a page; "
                f"set {key} to real phones, or use devices.app=auto"
            )


def _check_port(key: str, port: Any) -> None:
    if port is not None and (not isinstance(port, int) or not 0 < port < _LAST_PORT):
        raise ConfigError(f"{key}={port!r}: must be a port from 1 to {_LAST_PORT - 1}, or null")
