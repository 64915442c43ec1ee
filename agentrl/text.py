"""Words of others on a terminal."""


def printable(text: str) -> str:
    """The same text, with control characters spelt out: none of them may steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
