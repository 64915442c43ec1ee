"""The ports inside one phone: what listens on them, and connections to them.

Nothing here is a port of this machine: a phone's port 8080 is its own, as on a real phone.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from agentrl.virtual_phone.system.pipe import Channel

_ADDRESS = re.compile(r"tcp:(\d{1,5})|(?:localabstract|localreserved|localfilesystem):[!-~]{1,200}")
_FREE_PORTS = range(40_000, 50_000)
_MOST_LISTENERS = 200


@dataclass(slots=True, kw_only=True, frozen=True)
class Listener:
    """Somebody who listens."""

    owner: object
    """Whose it is: it goes when its owner goes."""
    accept: Callable[[], Channel]
    """Gives the client's end of a new connection."""
    goal: str = ""
    """Where a reversed port leads to, on the computer."""


class Network:
    """The ports of one phone."""

    def __init__(self) -> None:
        """Nobody listens."""
        self._listeners: dict[str, Listener] = {}

    def listen(self, address: str, listener: Listener) -> str:
        """Listen at an address such as `tcp:8080` or `localabstract:name`.

        Returns:
            The address; a free port in the place of `tcp:0`.

        Raises:
            OSError: it is taken, or no address.
        """
        found = _ADDRESS.fullmatch(address)
        if found is None or int(found[1] or 1) > 65_535:
            raise OSError(22, f"bad address: {address[:100]}")
        if address == "tcp:0":
            address = next(f"tcp:{p}" for p in _FREE_PORTS if f"tcp:{p}" not in self._listeners)
        if address in self._listeners or len(self._listeners) >= _MOST_LISTENERS:
            raise OSError(98, "Address already in use")
        self._listeners[address] = listener
        return address

    def find(self, address: str) -> Listener | None:
        """Who listens at an address."""
        return self._listeners.get(address)

    def close(self, address: str) -> None:
        """Nobody listens there any more."""
        self._listeners.pop(address, None)

    def close_all(self, owner: object) -> None:
        """Whatever an owner listens at is closed."""
        for address in [a for a, listener in self._listeners.items() if listener.owner is owner]:
            del self._listeners[address]

    def reversed(self, owner: object) -> list[tuple[str, str]]:
        """The addresses that lead to the computer, and where to."""
        return [
            (address, listener.goal)
            for address, listener in sorted(self._listeners.items())
            if listener.owner is owner and listener.goal
        ]

    def connect(self, address: str) -> Channel | None:
        """The client's end of a new connection; None where nobody listens."""
        listener = self._listeners.get(address)
        return None if listener is None else listener.accept()
