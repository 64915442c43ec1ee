"""Helpers for messages: escaped and shortened values, counts, durations, text hashes."""

from hashlib import blake2b
from pathlib import Path


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


def pluralize(count: int, what: str) -> str:
    """Format a count: `1 row`, `2 rows`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


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
