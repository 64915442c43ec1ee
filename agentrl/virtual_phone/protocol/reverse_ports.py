"""`adb reverse`: ports of the phone that lead to the computer."""

from agentrl.virtual_phone.protocol.adb_stream import Stream, StreamConnection
from agentrl.virtual_phone.system.network import PhoneNetwork, PortListener


async def serve(network: PhoneNetwork, stream: Stream, request: str) -> None:
    """Answer one request: `forward:[norebind:]a;b`, `killforward:a`, `killforward-all` or a list.

    The stream acknowledges the opening of the service; what is written here is the second
    answer: `OKAY`, or `FAIL` and a reason.
    """
    verb, _, rest = request.partition(":")
    try:
        if verb == "list-forward":
            lines = (
                f"host-0 {address} {goal}\n"
                for address, goal in network.reversed(stream.connection)
            )
            _say(stream, b"", "".join(lines))
        elif verb == "forward":
            port = _forward(network, stream.connection, rest)
            stream.write(b"OKAY")
            if port:
                _say(stream, b"", port)
        elif verb in ("killforward", "killforward-all"):
            _kill(network, stream.connection, rest if verb == "killforward" else None)
            stream.write(b"OKAY")
        else:
            raise OSError(22, f"unknown request: {verb[:100]}")
    except OSError as error:
        _say(stream, b"FAIL", error.strerror or str(error))


def _forward(network: PhoneNetwork, connection: StreamConnection, rest: str) -> str:
    """Start listening; returns the chosen port if any port would do."""
    no_rebind = rest.startswith("norebind:")
    here, semicolon, goal = rest.removeprefix("norebind:").partition(";")
    if not (here and semicolon and goal):
        raise OSError(22, f"bad forward: {rest[:100]}")
    known = network.find(here)
    if known is not None and known.owner is connection:
        if no_rebind:
            raise OSError(98, f"cannot rebind existing socket {here}")
        network.close(here)
    listener = PortListener(owner=connection, accept=lambda: connection.open(goal), goal=goal)
    try:
        found = network.listen(here, listener)
    except OSError as error:
        raise OSError(error.errno, f"cannot bind listener: {error.strerror}") from error
    return found.removeprefix("tcp:") if here == "tcp:0" else ""


def _kill(network: PhoneNetwork, connection: StreamConnection, here: str | None) -> None:
    """Stop listening at one address, or at all of them."""
    if here is None:
        network.close_all(connection)
        return
    known = network.find(here)
    if known is None or known.owner is not connection:
        raise OSError(2, f"listener '{here[:100]}' not found")
    network.close(here)


def _say(stream: Stream, status: bytes, text: str) -> None:
    encoded = text.encode("utf-8", "surrogateescape")
    stream.write(status + f"{len(encoded):04x}".encode() + encoded)
