"""Ports inside one phone: listeners and connections.

They are separate from this machine's ports and from other phones' ports, as on real phones.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from virtual_phone.system.byte_channels import Channel

_ADDRESS = re.compile(r"tcp:(\d{1,5})|(?:localabstract|localreserved|localfilesystem):[!-~]{1,200}")
_FREE_PORTS = range(40_000, 50_000)
_MAX_LISTENERS = 200


@dataclass(slots=True, kw_only=True, frozen=True)
class PortListener:
    """A listening socket on the phone."""

    owner: object
    """Owner of the socket; closing the owner closes the socket."""
    accept: Callable[[], Channel]
    """Returns the client's end of a new connection."""
    goal: str = ""
    """Address on the computer that a reversed port leads to."""


class PhoneNetwork:
    """Ports and listeners of one phone."""

    def __init__(self) -> None:
        self._listeners: dict[str, PortListener] = {}

    def listen(self, address: str, listener: PortListener) -> str:
        """Listen at an address such as `tcp:8080` or `localabstract:name`.

        Returns:
            The address, with a free port if `tcp:0` was requested.
        """
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match[1] or 1) > 65_535:
            raise OSError(22, f"bad address: {address[:100]}")
        if address == "tcp:0":
            address = next(f"tcp:{p}" for p in _FREE_PORTS if f"tcp:{p}" not in self._listeners)
        if address in self._listeners or len(self._listeners) >= _MAX_LISTENERS:
            raise OSError(98, "Address already in use")
        self._listeners[address] = listener
        return address

    def find(self, address: str) -> PortListener | None:
        """Return the listener at an address, or None."""
        return self._listeners.get(address)

    def close(self, address: str) -> None:
        """Stop listening at an address."""
        self._listeners.pop(address, None)

    def close_all(self, owner: object) -> None:
        """Close all listeners of an owner."""
        for address in [a for a, listener in self._listeners.items() if listener.owner is owner]:
            del self._listeners[address]

    def reversed(self) -> list[tuple[str, str]]:
        """Return the reversed ports and their targets."""
        return sorted((address, one.goal) for address, one in self._listeners.items() if one.goal)

    def connect(self, address: str) -> Channel | None:
        """Connect to an address; return the client's end, or None if nothing listens."""
        listener = self._listeners.get(address)
        return None if listener is None else listener.accept()
