"""Compute other positions that an action could have touched, from a reply's coordinates.

Each token of a number is replaced by its recorded alternatives: in "0.42", the alternative "5" for
"4" means a number from 0.50 to 0.59, as the next digit was not sampled. So each coordinate gets a
distribution conditioned on all tokens before it; y is conditioned on the sampled x.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.replay.touch_positions import touch_of
from agentrl.types import TopLogprobs, Turn

_NUMBER = re.compile(r"\d*\.?\d+")
_START = re.compile(r"\d*\.?\d*")
_SCALES = (1.0, 100.0, 1000.0)
_LEAST_PIXELS = 200
"""Minimum image size in pixels that makes numbers in a reply plausible as pixel positions."""
_MOST_PARTS = 60


@dataclass(slots=True, kw_only=True, frozen=True)
class _Token:
    """A sampled token and the alternatives at its position."""

    start: int
    """Start of the token's text in the reply."""
    text: str
    id: int
    logprob: float
    top: TopLogprobs

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def coordinates_of(turn: Turn, word: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the distribution of each coordinate of a touch.

    Returns:
        Two entries for a tap, four for a swipe, none if the reply contains no coordinates: `axis`
        (`x` or `y`), `end` (whether it is the end of a swipe), `covered`, the probability that the
        recorded alternatives account for, and `parts`, each with an interval of [0, 1] (`low`,
        `high`), its probability (`mass`), and `text`, the number or its known digits. How the
        probability is distributed within a part is unknown.
    """
    tokens = _tokens(turn, word)
    text = "".join(token.text for token in tokens)
    return [
        _coordinate(match, tokens, scale, word) | {"axis": "xy"[i % 2], "end": i >= 2}
        for i, (match, scale) in enumerate(_numbers(text, turn))
    ]


def _tokens(turn: Turn, word: Callable[[int], str]) -> list[_Token]:
    tokens: list[_Token] = []
    sampled = zip(turn.reply_ids, turn.reply_logprobs, turn.reply_top_logprobs, strict=True)
    for id, logprob, top in sampled:
        start = tokens[-1].end if tokens else 0
        tokens.append(_Token(start=start, text=word(id), id=id, logprob=logprob, top=top))
    return tokens


def _numbers(text: str, turn: Turn) -> list[tuple[re.Match[str], float]]:
    """Find the numbers of a turn's touch in its reply, each with the number for the far edge."""
    mark = touch_of(turn)
    if mark is None:
        return []
    wanted = [mark.x, mark.y, *([mark.to_x, mark.to_y] if mark.moves else [])]
    numbers = list(_NUMBER.finditer(text))
    for first in range(len(numbers) - len(wanted), -1, -1):
        found = numbers[first : first + len(wanted)]
        for scale in _SCALES:
            if all(map(_is_close, found, wanted, [scale] * len(wanted))):
                return [(match, scale) for match in found]
    # The numbers may be pixels of an image whose size was not recorded.
    last = numbers[-len(wanted) :]
    if len(last) == len(wanted) and all(wanted):
        sizes = [float(match[0]) / at for match, at in zip(last, wanted, strict=True)]
        if min(sizes) >= _LEAST_PIXELS and sizes[:2] * (len(sizes) // 2) == sizes:
            return list(zip(last, sizes, strict=True))
    return []


def _is_close(match: re.Match[str], at: float, scale: float) -> bool:
    return abs(float(match[0]) / scale - at) <= 0.5 * _unit(match[0]) / scale + 1e-9


def _unit(number: str) -> float:
    """Return the place value of the number's last digit."""
    return float(10.0 ** -len(number.partition(".")[2]))


def _coordinate(
    number: re.Match[str], tokens: Sequence[_Token], scale: float, word: Callable[[int], str]
) -> dict[str, Any]:
    """Return the distribution of one number; see `coordinates_of`."""
    masses: dict[tuple[str, float, float], float] = defaultdict(float)
    for digits, is_whole, mass in _candidates(number, tokens, word):
        low, high = _range(digits, number[0], is_whole)
        if low <= scale:
            masses[digits if is_whole else f"{digits}…", low / scale, high / scale] += mass
    parts = [
        {"text": digits, "low": max(0.0, low), "high": min(1.0, high), "mass": mass}
        for (digits, low, high), mass in sorted(masses.items(), key=lambda item: -item[1])
    ]
    return {"covered": min(1.0, sum(masses.values())), "parts": parts[:_MOST_PARTS]}


def _candidates(
    number: re.Match[str], tokens: Sequence[_Token], word: Callable[[int], str]
) -> Iterator[tuple[str, bool, float]]:
    """Yield each possible number's known digits, whether they are complete, and the probability."""
    text, reached = number.string, 1.0
    for token in tokens:
        if token.end <= number.start():
            continue
        # A token may start before the number, with a space or a bracket.
        lead = text[token.start : number.start()]
        before = text[number.start() : token.start]
        for id, logprob in token.top:
            other = word(id)
            if id == token.id or not other.startswith(lead):
                continue
            possible = before + other[len(lead) :]
            start = _START.match(possible)
            assert start is not None, "it may be empty"
            if start[0].strip("."):
                is_whole = start.end() < len(possible) or len(start[0]) >= len(number[0])
                yield start[0], is_whole, reached * math.exp(logprob)
        reached *= math.exp(token.logprob)
        if token.end > number.end() or token.start >= number.end():
            break
    yield number[0], True, reached


def _range(digits: str, sampled: str, is_whole: bool) -> tuple[float, float]:
    """Return the range of values that start with these digits, assuming the sampled length."""
    unit = _unit(sampled)
    low = float(digits)
    if is_whole:
        high, unit = low, min(unit, _unit(digits))
    elif "." in sampled:
        high = low + _unit(digits) - unit
    else:
        missing = len(sampled) - len(digits)
        low, high = low * 10**missing, (low + 1) * 10**missing - 1
    return low - unit / 2, high + unit / 2
