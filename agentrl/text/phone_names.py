"""Shorten the serials of phones for messages and recordings."""

import re
from collections.abc import Iterable
from hashlib import blake2b

from agentrl.text.formatting import encodable

_OPEN = re.compile(r"virtual(:\d+)?|emulator-\d+|(127(\.\d+){3}|localhost|\[::1\]):\d+")
"""Virtual phones and emulators, whose names identify nothing private."""
_ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}(?!\d)")
_known_serials: set[str] = set()
"""Serials of phones that this process has opened."""


def remember_serial(serial: str) -> None:
    """Replace this serial with its short name in all strings shortened from now on."""
    _known_serials.add(serial)


def short_serial(serial: str) -> str:
    """Return a stable pseudonym of a phone for shared output: `net-3fa2c1`, `usb-91d00b`.

    The pseudonym hides the address or serial, but does not withstand a brute-force search.
    Virtual phones and emulators keep their names.
    """
    if _OPEN.fullmatch(serial):
        return serial
    kind = "net" if ":" in serial or "._tcp" in serial else "usb"
    return f"{kind}-{blake2b(encodable(serial).encode(), digest_size=3).hexdigest()}"


def phone_name(serial: str, host: str | None = None) -> str:
    """Return a phone's name for recordings and pages: `emulator-5554` or `emulator-5554@10.0.0.2`.

    Args:
        serial: serial shortened by `short_serial`; not unique for virtual phones on several hosts.
        host: the phone's host, if the job has phones on several hosts.
    """
    return short_serial(serial) if host is None else f"{short_serial(serial)}@{host}"


def with_short_serials(text: str, serials: Iterable[str] = ()) -> str:
    """Replace serials of phones, and all IPv4 addresses with ports, with short names.

    Args:
        text: text that may contain serials.
        serials: serials of phones, in addition to phones that this process has opened.
    """
    for serial in sorted({*serials, *_known_serials}, key=len, reverse=True):
        name = rf"(?<![\w.:-]){re.escape(serial)}(?![\w-])"
        text = re.sub(name, short_serial(serial), text)
    return _ADDRESS.sub(lambda found: short_serial(found[0]), text)
