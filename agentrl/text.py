"""Helpers for messages: escaped and shortened values, suggestions, phone names, text hashes."""

import difflib
import re
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from agentrl.errors import ActionError

_OPEN = re.compile(r"virtual(:\d+)?|emulator-\d+|(127(\.\d+){3}|localhost|\[::1\]):\d+")
"""Virtual phones and emulators, whose names identify nothing private."""
_ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}(?!\d)")
_SIMILAR, _SIMILARITY_RANGE = 0.6, 0.1
"""Minimum similarity of suggested names, in [0, 1], and the maximum distance from the best
match."""
_SHORTEST_BEGINNING = 3
_MOST_SUGGESTED, _MOST_NAMES, _MOST_BESIDE_COMMAND = 3, 20, 10
_known_serials: set[str] = set()
"""Serials of phones that this process has opened."""


def remember_serial(serial: str) -> None:
    """Replace this serial with its short name in all strings shortened from now on."""
    _known_serials.add(serial)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `" (did you mean 'x' or 'y'?)"` for the closest known names, or an empty string.

    Names are close if they are similar or begin with the given name. A name without a folder or
    namespace is compared with the last part of each known name, a name with a folder only with
    names that also have one.
    """
    matcher, scores = difflib.SequenceMatcher(b=name.lower()), dict[str, float]()
    for one in known:
        if "/" in name and "/" not in one:
            continue
        compared = one.lower() if "/" in name else one.lower().rpartition("/")[2]
        matcher.set_seq1(compared)
        if len(name) >= _SHORTEST_BEGINNING and compared.startswith(name.lower()):
            scores[one] = 1.0
        elif matcher.real_quick_ratio() >= _SIMILAR and matcher.quick_ratio() >= _SIMILAR:
            scores[one] = matcher.ratio()
    least = max(_SIMILAR, max(scores.values(), default=0.0) - _SIMILARITY_RANGE)
    close = sorted((one for one in scores if scores[one] >= least), key=lambda one: -scores[one])
    if not close:
        return ""
    *others, last = map(repr, close[:_MOST_SUGGESTED])
    return f" (did you mean {', '.join(others)}{' or ' if others else ''}{last}?)"


def list_names(names: Iterable[str], command: str | None = None) -> str:
    """Format names as `a, b, c`; if there are many, only the first and the number of others.

    Args:
        names: names in display order.
        command: command that lists all names; if given, only ten are shown.
    """
    shown = list(names)
    most = _MOST_NAMES if command is None else _MOST_BESIDE_COMMAND
    if len(shown) <= most:
        return ", ".join(shown) or "none"
    how = "" if command is None else f" ({command})"
    return f"{', '.join(shown[:most])} and {len(shown) - most} more{how}"


def known_names(
    name: str, known: Iterable[str], *, command: str | None = None, label: str = "Known"
) -> str:
    """Return the end of a message about an unknown name: the closest matches and the known names.

    Args:
        name: the unknown name.
        known: the known names.
        command: command that lists all known names; replaces the list if there is a suggestion.
        label: label of the list, as in `Known: a, b, c`.
    """
    names = list(known)
    suggestion = did_you_mean(name, names)
    if suggestion and command is not None:
        return f"{suggestion}; {command} shows all"
    return f"{suggestion}. {label}: {list_names(names, command)}"


def printable(text: str) -> str:
    """Escape control characters, so that the text cannot control a terminal."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def encodable(text: str) -> str:
    """Escape lone surrogates, which models and games sometimes produce."""
    return text.encode("utf-8", "backslashreplace").decode()


def quoted(value: object, length: int = 40) -> str:
    """Quote a value for a message, truncated to `length` characters."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= length else f"{text[:length]}...")


def shown_path(path: str | Path) -> Path:
    """Return a path as a user would type it: relative if it is inside the current folder."""
    here = Path.cwd()
    return Path(path).relative_to(here) if Path(path).is_relative_to(here) else Path(path)


def one_line(text: str, length: int = 200) -> str:
    """Join text to one line, truncated to `length` characters, for an error in a table."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length and len(text) <= 4 * length else f"{line[:length]}..."


def tag_content(reply: str, tag: str) -> str:
    """Return the text of the reply's only `<tag>...</tag>`.

    Raises:
        ActionError: the reply does not contain exactly one such pair.
    """
    start, end = f"<{tag}>", f"</{tag}>"
    opening, closing = reply.count(start), reply.count(end)
    before, _, rest = reply.partition(start)
    inside, found, _ = rest.partition(end)
    if opening != 1 or closing != 1 or not found:
        pairs = min(opening, closing) if end not in before else 0
        found_pairs = f"{pairs or 'no'} complete {start}...{end} tags"
        raise ActionError(f"{found_pairs} in the reply; expected exactly one")
    return inside


def action_tag_content(reply: str) -> str:
    """Return the text of the reply's only `<action>...</action>`.

    Raises:
        ActionError: the reply does not contain exactly one such pair.
    """
    return tag_content(reply, "action")


def pluralize(count: int, what: str) -> str:
    """Format a count: `1 row`, `2 rows`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


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


def format_signed(value: float) -> str:
    """Format a number with its sign and three significant digits; zero has no sign."""
    return f"{value:+.3g}" if value else "0"


def format_duration(seconds: float) -> str:
    """Format a duration, such as `42 s`, `3:05` or `1:02:05`."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration_in_words(seconds: float) -> str:
    """Format a duration for a sentence, such as `42 s`, `3 min 5 s` or `1 h 2 min`."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def retry_after_s(header: str | None) -> float:
    """Parse the seconds of a `Retry-After` header; 0 if it is missing, a date, or invalid."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else 0.0


def hash_fraction(text: str) -> float:
    """Hash a string to a number in [0, 1) that is the same in every process."""
    digest = blake2b(text.encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / (1 << 48)
