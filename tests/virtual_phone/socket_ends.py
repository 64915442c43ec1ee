"""Connections inside a virtual phone, between a program of a test and a command."""

from virtual_phone.system.byte_channels import Pipe


class SocketEnd:
    """One end of a connection inside the phone."""

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self.read = incoming.read
        self.write, self.drain = outgoing.write, outgoing.drain
        self.close = outgoing.write_eof


def connected_sockets() -> tuple[SocketEnd, SocketEnd]:
    """Both ends of a new connection."""
    one, other = Pipe(), Pipe()
    return SocketEnd(one, other), SocketEnd(other, one)
