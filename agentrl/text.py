"""Text for messages: safe and shortened values, suggestions, names of phones; hosts and hashes."""

import difflib
import ipaddress
import re
from collections.abc import Iterable
from hashlib import blake2b

from agentrl.errors import ActionError

_OPEN = re.compile(r"virtual(:\d+)?|emulator-\d+|(127(\.\d+){3}|localhost|\[::1\]):\d+")
"""Virtual phones and emulators: their names identify no one."""
_ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}(?!\d)")
_known_serials: set[str] = set()
"""Serials of phones that this process has opened."""


def remember_serial(serial: str) -> None:
    """Replace this serial by its short name in all text shortened from now on."""
    _known_serials.add(serial)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`" (did you mean 'x'?)"` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def printable(text: str) -> str:
    """The text with control characters escaped, so that it cannot control a terminal."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def encodable(text: str) -> str:
    """The text with lone surrogates escaped; models and games sometimes produce them."""
    return text.encode("utf-8", "backslashreplace").decode()


def quoted(value: object, length: int = 40) -> str:
    """A value in quotes for a message, truncated to `length` characters."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= length else f"{text[:length]}...")


def one_line(text: str, length: int = 200) -> str:
    """The text on one line, truncated to `length` characters: for an error in a table."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length and len(text) <= 4 * length else f"{line[:length]}..."


def tag_content(reply: str, tag: str) -> str:
    """The text of the reply's only `<tag>...</tag>`.

    Raises:
        ActionError: there is not exactly one such pair.
    """
    start, end = f"<{tag}>", f"</{tag}>"
    opening, closing = reply.count(start), reply.count(end)
    before, _, rest = reply.partition(start)
    inside, found, _ = rest.partition(end)
    if opening != 1 or closing != 1 or not found:
        pairs = min(opening, closing) if end not in before else 0
        raise ActionError(
            f"{pairs} complete {start}...{end} tags in the reply; expected exactly one"
        )
    return inside


def action_tag_content(reply: str) -> str:
    """The text of the reply's only `<action>...</action>`.

    Raises:
        ActionError: there is not exactly one such pair.
    """
    return tag_content(reply, "action")


def pluralize(count: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def short_serial(serial: str) -> str:
    """A stable pseudonym of a phone for shared output: `net-3fa2c1`, `usb-91d00b`.

    It hides the address or serial from a reader, but does not withstand a brute-force search.
    Virtual phones and emulators keep their names.
    """
    if _OPEN.fullmatch(serial):
        return serial
    kind = "net" if ":" in serial or "._tcp" in serial else "usb"
    return f"{kind}-{blake2b(encodable(serial).encode(), digest_size=3).hexdigest()}"


def phone_name(serial: str, host: str | None = None) -> str:
    """A phone's name in recordings and on pages: `emulator-5554`, or `emulator-5554@10.0.0.2`.

    Args:
        serial: shortened by `short_serial`; virtual phones of several hosts have equal ones.
        host: where the phone is, if the job has phones on several hosts.
    """
    return short_serial(serial) if host is None else f"{short_serial(serial)}@{host}"


def with_short_serials(text: str, serials: Iterable[str] = ()) -> str:
    """The text with serials of phones, and every IPv4 address with a port, as short names.

    Args:
        text: may name phones.
        serials: of phones, in addition to those that this process has opened.
    """
    for serial in sorted({*serials, *_known_serials}, key=len, reverse=True):
        name = rf"(?<![\w.:-]){re.escape(serial)}(?![\w-])"
        text = re.sub(name, short_serial(serial), text)
    return _ADDRESS.sub(lambda found: short_serial(found[0]), text)


def format_signed(value: float) -> str:
    """A number with its sign and three significant digits; zero has no sign."""
    return f"{value:+.3g}" if value else "0"


def retry_after_s(header: str | None) -> float:
    """Seconds of a `Retry-After` header; 0 if it is missing, a date, or invalid."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else 0.0


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hash_fraction(text: str) -> float:
    """A hash of the text in [0, 1), the same in every process."""
    digest = blake2b(text.encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / (1 << 48)
