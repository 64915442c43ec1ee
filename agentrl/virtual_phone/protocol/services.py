"""What a client can open on a phone: one function a service, in a table."""

import asyncio
import struct
from collections.abc import Callable, Coroutine, Sequence

from agentrl.virtual_phone.faults.fault_effects import QUICK_REBOOT_S
from agentrl.virtual_phone.phone import Phone
from agentrl.virtual_phone.protocol import file_sync, reverse_ports, shell_protocols
from agentrl.virtual_phone.protocol.adb_stream import Stream
from agentrl.virtual_phone.system import screen_capture
from agentrl.virtual_phone.system.pipe import splice

Job = Coroutine[None, None, None]
Service = Callable[[Phone, Stream, Sequence[str], str], Job | None]
"""Takes the options after the service's name and what follows the colon; None refuses."""

FEATURES = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir,sendrecv_v2"
"""`abb` and `abb_exec` stay out: with them, install speaks another protocol. So does
`delayed_ack`, with which a client would not wait until a packet is taken."""

_BANNER_PROPERTIES = ("ro.product.name", "ro.product.model", "ro.product.device")
_OUR_HANDS = ("setprop debug.agentrl.", "cmd agentrl ")
"""What sets or mends a fault, or takes a snapshot, is no part of the phone: it never suffers."""
_FRAMEBUFFER = struct.Struct("<14I")
_ANDROID_14 = 2


def banner(phone: Phone) -> str:
    """Who the phone says it is when the adb server connects."""
    named = (f"{key}={phone.properties[key]};" for key in _BANNER_PROPERTIES)
    return f"device::{''.join(named)}features={FEATURES}"


def open_service(phone: Phone, stream: Stream, name: str) -> Job | None:
    """The coroutine that serves `name`, or None if there is no such service."""
    kind, _, rest = name.partition(":")
    service, *options = kind.split(",")
    serve = SERVICES.get(service)
    if serve is None:
        return None
    suffers = phone.faults.slow_services and service in _SUFFERING
    if suffers and not rest.startswith(_OUR_HANDS):
        return _suffering(phone, stream, serve, options, rest)
    return serve(phone, stream, options, rest)


async def _suffering(
    phone: Phone, stream: Stream, serve: Service, options: Sequence[str], rest: str
) -> None:
    """A service with what goes wrong before it answers."""
    faults = phone.faults
    if faults.happens("drop"):
        stream.connection.close()
        return
    if faults.happens("hang"):
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(faults.number("latency_ms") / 1000)
    job = serve(phone, stream, options, rest)
    if job is not None:
        await job


def _shell(phone: Phone, stream: Stream, options: Sequence[str], rest: str) -> Job:
    serve = shell_protocols.serve_v2 if "v2" in options else shell_protocols.serve_v1
    return serve(phone, stream, rest)


def _exec(phone: Phone, stream: Stream, options: Sequence[str], rest: str) -> Job:
    return shell_protocols.serve_v1(phone, stream, rest)


def _sync(phone: Phone, stream: Stream, options: Sequence[str], rest: str) -> Job:
    return file_sync.serve(phone.files, stream)


def _reverse(phone: Phone, stream: Stream, options: Sequence[str], rest: str) -> Job:
    return reverse_ports.serve(phone.network, stream, rest)


def _framebuffer(phone: Phone, stream: Stream, options: Sequence[str], rest: str) -> Job:
    async def serve() -> None:
        frame = phone.captured.frame
        width, height = frame.size
        colours = (0, 8, 16, 8, 8, 8, 24, 8)  # offset and length of red, blue, green, alpha
        size = len(frame.pixels)
        head = (_ANDROID_14, 32, screen_capture.SRGB, size, width, height, *colours)
        picture = screen_capture.pixels(phone)
        if picture is not None:
            stream.write(_FRAMEBUFFER.pack(*head))
            stream.write(picture)

    return serve()


def _socket(kind: str) -> Service:
    """A connection from the computer to something that listens on the phone."""

    def service(phone: Phone, stream: Stream, options: Sequence[str], rest: str) -> Job | None:
        other = phone.network.connect(f"{kind}:{rest.partition(':')[0]}")
        if other is None:
            return None
        stream.ends_with_client = False
        return splice(stream, other)

    return service


def _says(text: str, then: Callable[[Phone, str], None] = lambda phone, rest: None) -> Service:
    """A service that says one sentence, in which {} is what follows the colon."""

    def service(phone: Phone, stream: Stream, options: Sequence[str], rest: str) -> Job:
        async def serve() -> None:
            stream.write(text.format(rest).encode("utf-8", "surrogateescape"))
            then(phone, rest)

        return serve()

    return service


def _reboot(phone: Phone, rest: str) -> None:
    phone.on_power("reboot", QUICK_REBOOT_S)


def _to_tcp(phone: Phone, rest: str) -> None:
    # It listens on TCP all the time; the number is what a real one would listen on.
    phone.properties["service.adb.tcp.port"] = rest if rest.isdecimal() else "0"


def _pids(phone: Phone) -> str:
    """Of the apps that run, a line each."""
    return "".join(f"{phone.tasks.pid(name)}\n" for name in sorted(phone.tasks.running))


def _jdwp(phone: Phone, stream: Stream, options: Sequence[str], rest: str) -> Job:
    async def serve() -> None:
        stream.write(_pids(phone).encode())

    return serve()


def _track_jdwp(phone: Phone, stream: Stream, options: Sequence[str], rest: str) -> Job:
    async def serve() -> None:
        told, shown = "none yet", phone.shown
        while True:
            now = _pids(phone)
            if now != told:
                stream.write(f"{len(now):04x}{now}".encode())
                told = now
            await phone.display.change(shown)
            shown = phone.shown

    return serve()


def _log(phone: Phone, stream: Stream, options: Sequence[str], rest: str) -> Job:
    return shell_protocols.serve_v1(
        phone, stream, f"logcat -b {rest}" if rest.isalpha() else "logcat"
    )


SERVICES: dict[str, Service] = {
    "shell": _shell,
    "exec": _exec,
    "sync": _sync,
    "framebuffer": _framebuffer,
    "reverse": _reverse,
    "tcp": _socket("tcp"),
    "localabstract": _socket("localabstract"),
    "localreserved": _socket("localreserved"),
    "localfilesystem": _socket("localfilesystem"),
    "local": _socket("localfilesystem"),
    "jdwp": _jdwp,
    "track-jdwp": _track_jdwp,
    "log": _log,
    "reboot": _says("", _reboot),
    "root": _says("adbd cannot run as root in production builds\n"),
    "unroot": _says("adbd not running as root\n"),
    "remount": _says("remount failed: not running as root\n"),
    "disable-verity": _says("verity cannot be disabled/enabled - USER build\n"),
    "enable-verity": _says("verity cannot be disabled/enabled - USER build\n"),
    "tcpip": _says("restarting in TCP mode port: {}\n", _to_tcp),
    "usb": _says("restarting in USB mode\n"),
}
_SUFFERING = frozenset(("shell", "exec", "sync", "framebuffer"))
