"""Calls in Python's notation, as some models write: `click(point='...')`, `do(action="Tap")`.

Accepts only a single call with keyword arguments, each a string, a number, or a list of numbers;
anything else is an ActionError. Nothing is evaluated.
"""

import re

from agentrl.errors import ActionError
from agentrl.text.formatting import quoted

Value = str | float | list[float]
_HEAD = re.compile(r"\s*([A-Za-z_]\w{0,60})\s*\(", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{0,12})?", re.ASCII)
# Possessive quantifiers and bounds keep matching linear, no matter what a model writes.
_ARGUMENT = re.compile(
    r"""\s*([A-Za-z_]\w{0,60})\s*=\s*(?:
        (?P<text>'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")
        |(?P<list>\[[\d\s.,-]{0,200}\])
        |(?P<number>-?\d[\d.]{0,20})
    )\s*(?:,|(?=\)))""",
    re.ASCII | re.VERBOSE,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_MAX_CALL = 20_000


def parse_call(text: str) -> tuple[str, dict[str, Value]]:
    """Parse a call into its name and arguments."""
    head = _HEAD.match(text[:_MAX_CALL])
    if head is None:
        raise ActionError(f"{quoted(text.strip())} is not a call such as click(point='...')")
    name, at = head[1], head.end()
    arguments: dict[str, Value] = {}
    while found := _ARGUMENT.match(text, at, _MAX_CALL):
        if found[1] in arguments:
            raise ActionError(f"{name} has {found[1]} twice")
        if found["text"] is not None:
            arguments[found[1]] = decode_text(found["text"][1:-1])
        elif found["list"] is not None:
            arguments[found[1]] = numbers_in(found["list"][1:-1])
        else:
            (arguments[found[1]],) = numbers_in(found["number"])
        at = found.end()
    if text[at:].strip() != ")":
        raise ActionError(f"{quoted(text[at:].strip() or text)} in {name}(...) cannot be parsed")
    return name, arguments


def numbers_in(text: str) -> list[float]:
    """Parse numbers separated by commas or spaces."""
    words = re.split(r"\s*,\s*|\s+", text.strip())
    if not all(_NUMBER.fullmatch(word) for word in words):
        raise ActionError(f"{quoted(text)} is not a point")
    return [float(word) for word in words]


def decode_text(inside: str) -> str:
    r"""Decode the content of a Python string literal, without its quotes.

    `\n`, `\r`, `\t`, `\\`, quotes, `\uXXXX` and `\xXX` are decoded; other backslashes stay.
    """

    def decode(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) > 1:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, found[0])

    return _ESCAPE.sub(decode, inside)


def encode_text(text: str, quote: str) -> str:
    """Escape a string for a literal with the given quotes; the inverse of `decode_text`."""
    encoded = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return encoded.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
