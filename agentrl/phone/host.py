"""The process that virtual phones live in: many phones, one event loop, loopback only."""

import asyncio
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import cv2

from agentrl import plugins
from agentrl.errors import ConfigError, told
from agentrl.phone import services
from agentrl.phone.app import App
from agentrl.phone.phone import Phone
from agentrl.phone.transport import Connection

_LOOPBACK = "127.0.0.1"
_EMULATOR_PORTS = range(5555, 5586)
"""An adb server takes whatever listens here for an emulator: the phone would be there twice."""
_PR_SET_PDEATHSIG = 1
_REBOOT_S = 0.2


@dataclass(slots=True, kw_only=True, frozen=True)
class AppSpec:
    """An app to install."""

    app: str
    """`module:Class`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """For its constructor."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PhonesSpec:
    """The phones of one process; travels to it as JSON."""

    num_phones: int
    apps: tuple[AppSpec, ...] = ()
    size: tuple[int, int] = (720, 1280)
    effect_delay_ms: tuple[float, float] = (50, 300)
    seed: int = 0
    parent: int | None = None
    """Process to die with; None to live on."""
    path: tuple[str, ...] = ()
    """Where the parent finds its modules."""

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> "PhonesSpec":
        """What `to_json` wrote."""
        tree = json.loads(line)
        tree["apps"] = tuple(AppSpec(**app) for app in tree["apps"])
        for name in ("size", "effect_delay_ms", "path"):
            tree[name] = tuple(tree[name])
        return PhonesSpec(**tree)


def make_apps(specs: Sequence[AppSpec]) -> list[App]:
    """One instance of every app.

    Raises:
        ConfigError: one does not exist, does not take its arguments, or is no app.
    """
    return [_make_app(spec) for spec in specs]


def _make_app(spec: AppSpec) -> App:
    try:
        app: App = plugins.load(spec.app)(**spec.kwargs)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"app {spec.app} does not take {dict(spec.kwargs)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"app {spec.app} fails when made with {dict(spec.kwargs)}: {told(error)}"
        ) from error
    methods = (name for name in vars(App) if callable(vars(App)[name]) and name[0] != "_")
    missing = [name for name in methods if not callable(getattr(app, name, None))]
    missing += [n for n in ("package", "activity") if not isinstance(getattr(app, n, None), str)]
    if missing:
        raise ConfigError(
            f"app {spec.app} is no app: it lacks {', '.join(missing)} (agentrl.phone.app.App)"
        )
    return app


class PhoneServer:
    """One phone's listening socket and the connections to it."""

    def __init__(self, phone: Phone) -> None:
        """Listen on a free port of the loopback interface."""
        self.phone = phone
        self._connections: set[Connection] = set()
        self._loop = asyncio.get_running_loop()
        self._listener = _listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._loop.add_reader(self._listener, self._accept)
        phone.on_power = self._on_power

    def close(self) -> None:
        """Be unreachable: drop all connections and accept no more."""
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()
        for connection in list(self._connections):
            connection.close()

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        banner = services.banner(self.phone)
        connection = Connection(
            sock,
            banner,
            lambda stream, name: services.open_service(self.phone, stream, name),
            self._connections.discard,
        )
        self._connections.add(connection)

    def _on_power(self, what: str) -> None:
        """`offline` for good, or `reboot`: gone, and back on the same port a moment later."""
        self.close()
        if what == "reboot":
            self._loop.call_later(_REBOOT_S, self._come_back)

    def _come_back(self) -> None:
        self._listener = _listen(self.port)
        self._loop.add_reader(self._listener, self._accept)


def _listen(port: int) -> socket.socket:
    while True:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        listener.bind((_LOOPBACK, port))
        if listener.getsockname()[1] not in _EMULATOR_PORTS:
            listener.listen()
            listener.setblocking(False)
            return listener
        listener.close()


async def serve(spec: PhonesSpec, teller: int) -> None:
    """Run phones until standard input ends, the parent dies, or a signal asks to stop.

    Args:
        spec: which phones.
        teller: file descriptor; the one line that is written there tells the ports, or why there
            are none.
    """
    stop = asyncio.Event()
    _die_with_parent(spec.parent, stop)
    servers = []
    try:
        for number in range(spec.num_phones):
            phone = Phone(
                make_apps(spec.apps),
                size=spec.size,
                effect_delay_ms=spec.effect_delay_ms,
                seed=spec.seed,
                number=number,
                serialno=f"VIRTUAL{spec.seed:04d}{number:03d}P{os.getpid()}",
            )
            servers.append(PhoneServer(phone))
    except ConfigError as error:
        _tell(teller, {"error": str(error)})
        return
    _tell(teller, {"ports": [server.port for server in servers]})
    await stop.wait()
    for server in servers:
        server.close()


def _die_with_parent(parent: int | None, stop: asyncio.Event) -> None:
    """End when the parent is gone, also after kill -9.

    Two ways, because each has a hole: the pipe stays open if another child of the parent holds
    it, and the kernel's signal also comes when merely the *thread* that started us ends.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if parent is None:
        return

    def check() -> None:
        if os.getppid() != parent:
            stop.set()

    def on_input() -> None:
        if not os.read(0, 4096):
            stop.set()

    loop.add_reader(0, on_input)
    if sys.platform == "linux":
        loop.add_signal_handler(signal.SIGUSR2, check)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR2, 0, 0, 0)
    check()


def _tell(teller: int, message: Mapping[str, Any]) -> None:
    os.write(teller, (json.dumps(message) + "\n").encode())


def main() -> None:
    """Run the phones that the argument describes."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    spec = PhonesSpec.from_json(sys.argv[1])
    sys.path += [entry for entry in spec.path if entry not in sys.path]
    cv2.setNumThreads(1)
    # What an app prints goes to standard error: the parent reads one line, and then no more.
    teller = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(serve(spec, teller))
