"""Table of the services that a client can open on a phone, with a function per service."""

import asyncio
import math
import struct
from collections.abc import Callable, Coroutine, Sequence

from virtual_phone import screen_capture
from virtual_phone.protocol import file_sync, shell_protocols
from virtual_phone.protocol.adb_stream import Stream, StreamConnection
from virtual_phone.system.byte_channels import relay
from virtual_phone.system.phone_network import PhoneNetwork, PortListener
from virtual_phone.system.screen_frame import HEADER_BYTES, SRGB
from virtual_phone.virtual_phone import QUICK_REBOOT_S, VirtualPhone

Job = Coroutine[None, None, None]
Service = Callable[[VirtualPhone, Stream, Sequence[str], str], Job | None]
"""Receives the options after the service name and the text after the colon; None refuses."""

FEATURES = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir"
"""Excludes `abb` and `abb_exec`, which would make adb install apps over another protocol, and
`delayed_ack`, which would let clients send without waiting for acknowledgments."""

_BANNER_PROPERTIES = ("ro.product.name", "ro.product.model", "ro.product.device")
_CONTROL_COMMANDS = ("setprop debug.agentrl.", "cmd agentrl ")
"""Commands that control the virtual phone itself and are never affected by faults."""
_FRAMEBUFFER = struct.Struct("<14I")
_ANDROID_14 = 2
_EXEC_OUTLIVES_S = 10.0


def banner(phone: VirtualPhone) -> str:
    """Return the phone's self-description for the handshake."""
    named = (f"{key}={phone.properties[key]};" for key in _BANNER_PROPERTIES)
    return f"device::{''.join(named)}features={FEATURES}"


def open_service(phone: VirtualPhone, stream: Stream, name: str) -> Job | None:
    """Return the coroutine that serves `name`, or None if the service does not exist."""
    kind, _, rest = name.partition(":")
    service, *options = kind.split(",")
    serve = SERVICES.get(service)
    if serve is None:
        return None
    suffers = phone.faults.slow_services and service in _FAULTY_SERVICES
    if suffers and not rest.startswith(_CONTROL_COMMANDS):
        return _serve_with_faults(phone, stream, serve, options, rest)
    return serve(phone, stream, options, rest)


async def _serve_with_faults(
    phone: VirtualPhone, stream: Stream, serve: Service, options: Sequence[str], rest: str
) -> None:
    """Serve after applying the faults that affect services."""
    faults = phone.faults
    if faults.occurs("drop"):
        stream.connection.close()
        return
    if faults.occurs("hang"):
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(faults.draw("latency_ms") / 1000)
    job = serve(phone, stream, options, rest)
    if job is not None:
        await job


def _shell(phone: VirtualPhone, stream: Stream, options: Sequence[str], rest: str) -> Job:
    if "v2" in options:
        return shell_protocols.serve_v2(phone, stream, rest, options)
    return shell_protocols.serve_v1(phone, stream, rest, is_raw="raw" in options)


def _exec(phone: VirtualPhone, stream: Stream, options: Sequence[str], rest: str) -> Job:
    # `adb exec-in` closes the stream once it has sent everything.
    stream.outlives_client_s = _EXEC_OUTLIVES_S
    return shell_protocols.serve_v1(phone, stream, rest, is_raw=True)


async def _reverse(
    phone: VirtualPhone, stream: Stream, options: Sequence[str], request: str
) -> None:
    """`adb reverse`: forward ports of the phone to the computer.

    A request is `forward:[norebind:]a;b`, `killforward:a`, `killforward-all` or `list-forward`. The
    stream has already acknowledged the opening of the service; this function writes the second
    reply: `OKAY`, or `FAIL` and a reason. As in adbd, all connections share these ports: a phone
    that is connected twice has a single list, and the last connection to reverse a port gets it.
    """
    network = phone.network
    verb, _, rest = request.partition(":")
    try:
        if verb == "list-forward":
            lines = (f"host-0 {address} {goal}\n" for address, goal in network.reversed())
            _say(stream, b"", "".join(lines))
        elif verb == "forward":
            port = _forward(network, stream.connection, rest)
            stream.write(b"OKAY")
            if port:
                _say(stream, b"", port)
        elif verb in ("killforward", "killforward-all"):
            _kill(network, rest if verb == "killforward" else None)
            stream.write(b"OKAY")
        else:
            raise OSError(22, f"unknown request: {verb[:100]}")
    except OSError as error:
        _say(stream, b"FAIL", error.strerror or str(error))


def _forward(network: PhoneNetwork, connection: StreamConnection, rest: str) -> str:
    """Start listening; return the chosen port if the request was for any port, else ''."""
    no_rebind = rest.startswith("norebind:")
    here, semicolon, goal = rest.removeprefix("norebind:").partition(";")
    if not (here and semicolon and goal):
        raise OSError(22, f"bad forward: {rest[:100]}")
    known = network.find(here)
    if known is not None and known.goal:
        if no_rebind:
            raise OSError(98, f"cannot rebind existing socket {here}")
        network.close(here)
    listener = PortListener(owner=connection, accept=lambda: connection.open(goal), goal=goal)
    try:
        found = network.listen(here, listener)
    except OSError as error:
        raise OSError(error.errno, f"cannot bind listener: {error.strerror}") from error
    return found.removeprefix("tcp:") if here == "tcp:0" else ""


def _kill(network: PhoneNetwork, here: str | None) -> None:
    """Stop listening at one address, or at all addresses if None."""
    known = [address for address, _ in network.reversed() if here in (None, address)]
    if here is not None and not known:
        raise OSError(2, f"listener '{here[:100]}' not found")
    for address in known:
        network.close(address)


def _say(stream: Stream, status: bytes, text: str) -> None:
    encoded = text.encode("utf-8", "surrogateescape")
    stream.write(status + f"{len(encoded):04x}".encode() + encoded)


async def _framebuffer(
    phone: VirtualPhone, stream: Stream, options: Sequence[str], rest: str
) -> None:
    width, height = phone.captured.frame.size
    colors = (0, 8, 16, 8, 8, 8, 24, 8)  # offset and length of red, blue, green and alpha
    head = (_ANDROID_14, 32, SRGB, width * height * 4, width, height, *colors)
    image = screen_capture.raw(phone)
    if image is not None:
        stream.write(_FRAMEBUFFER.pack(*head))
        stream.write(image[HEADER_BYTES:])


def _socket(kind: str) -> Service:
    """Create a service that connects the computer to a socket on the phone."""

    def service(
        phone: VirtualPhone, stream: Stream, options: Sequence[str], rest: str
    ) -> Job | None:
        channel = phone.network.connect(f"{kind}:{rest.partition(':')[0]}")
        if channel is None:
            return None
        stream.outlives_client_s = math.inf
        return relay(stream, channel)

    return service


def _message(
    text: str, then: Callable[[VirtualPhone, str], None] = lambda phone, rest: None
) -> Service:
    """Create a service that replies with a message; {} stands for the text after the colon."""

    async def service(
        phone: VirtualPhone, stream: Stream, options: Sequence[str], rest: str
    ) -> None:
        stream.write(text.format(rest).encode("utf-8", "surrogateescape"))
        then(phone, rest)

    return service


def _to_tcp(phone: VirtualPhone, rest: str) -> None:
    # The phone always listens on TCP; the property holds the port that a real phone would use.
    phone.properties["service.adb.tcp.port"] = rest if rest.isdecimal() else "0"


SERVICES: dict[str, Service] = {
    "shell": _shell,
    "exec": _exec,
    "sync": lambda phone, stream, options, rest: file_sync.serve(phone.files, stream),
    "framebuffer": _framebuffer,
    "reverse": _reverse,
    "tcp": _socket("tcp"),
    "localabstract": _socket("localabstract"),
    "localreserved": _socket("localreserved"),
    "localfilesystem": _socket("localfilesystem"),
    "local": _socket("localfilesystem"),
    "reboot": _message("", lambda phone, rest: phone.on_power("reboot", QUICK_REBOOT_S)),
    "root": _message("adbd cannot run as root in production builds\n"),
    "tcpip": _message("restarting in TCP mode port: {}\n", _to_tcp),
}
_FAULTY_SERVICES = frozenset(("shell", "exec", "sync", "framebuffer"))
