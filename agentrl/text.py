"""Words of others on a terminal, words that were meant, and names of phones in what is shared."""

import difflib
import re
from collections.abc import Iterable
from hashlib import blake2b

_OPEN = re.compile(r"virtual(:\d+)?|emulator-\d+|(127(\.\d+){3}|localhost|\[::1\]):\d+")
"""Virtual phones and emulators: their names tell nothing of anybody."""
_ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}(?!\d)")


_met: set[str] = set()
"""Serials of phones that this process has met, beside those that it was told."""


def remember_serial(serial: str) -> None:
    """Have a phone named by its short name from now on."""
    _met.add(serial)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`" (did you mean 'x'?)"` for the closest known name, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def printable(text: str) -> str:
    """The same text, with control characters spelt out: none of them may steer a terminal."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def encodable(text: str) -> str:
    """The same text, with half a character, as models and games write it, spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()


def quoted(value: object, length: int = 40) -> str:
    """A value for a message: in quotes where it is text, and cut where it is long."""
    told = value if isinstance(value, str) else str(value)
    return repr(told if len(told) <= length else f"{told[:length]}...")


def in_a_line(text: str, length: int = 200) -> str:
    """The same text in one line, cut where it is long: how an error goes into a table."""
    told = " ".join(text[: 4 * length].split())
    return told if len(told) <= length and len(text) <= 4 * length else f"{told[:length]}..."


def counted(count: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def short_serial(serial: str) -> str:
    """A name of a phone for what is shared, the same in every run: `net-3fa2c1`, `usb-91d00b`.

    It keeps the address or serial from a reader, not from one who tries all there are. Virtual
    phones and emulators keep their names.
    """
    if _OPEN.fullmatch(serial):
        return serial
    kind = "net" if ":" in serial or "._tcp" in serial else "usb"
    return f"{kind}-{blake2b(encodable(serial).encode(), digest_size=3).hexdigest()}"


def with_short_serials(text: str, serials: Iterable[str] = ()) -> str:
    """The same text with short names of phones, and of every IPv4 address with a port.

    Args:
        text: that may name phones.
        serials: of phones, beside those that this process has opened.
    """
    for serial in sorted({*serials, *_met}, key=len, reverse=True):
        name = rf"(?<![\w.:-]){re.escape(serial)}(?![\w-])"
        text = re.sub(name, short_serial(serial), text)
    return _ADDRESS.sub(lambda found: short_serial(found[0]), text)


def signed(value: float) -> str:
    """A number with its sign and three digits; zero has none."""
    return f"{value:+.3g}" if value else "0"
