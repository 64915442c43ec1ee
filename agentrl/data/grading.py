"""Whether an answer is right, by rules that need no library."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from fractions import Fraction

from agentrl.text import quoted

_NUMBER = re.compile(
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII
)
_SIGNS = str.maketrans({"\N{MINUS SIGN}": "-", "\N{FULLWIDTH PERCENT SIGN}": "%", "$": ""})
_LONGEST = 100
"""Characters of a number."""
_CHOICE = re.compile(r"\(?([A-Za-z])(?:[).:]|$|\s*$)")
_CHOICE_AND_TEXT = re.compile(r"\(?([A-Za-z])[).:]\s*(.*)", re.DOTALL)

Rule = Callable[[str, Sequence[str]], bool]
"""Takes an answer and all that are accepted."""


def plain(text: str) -> str:
    """The same words without what does not matter: case, width, white space, a full stop."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).removesuffix(".").rstrip()


def exact(answer: str, accepted: Sequence[str]) -> bool:
    """Whether it is one of the accepted texts, but for case, white space and a full stop."""
    given = plain(answer)
    return given != "" and any(given == plain(text) for text in accepted)


def number(text: str) -> Fraction | None:
    """The number that a text is: `-3`, `1,200`, `.5`, `2e3`, `3/4`, `12%`; None if it is none."""
    text = text.strip().translate(_SIGNS).strip()
    if not text or len(text) > _LONGEST:
        return None
    percent, text = text.endswith("%"), text.removesuffix("%").strip()
    above, slash, below = text.partition("/")
    top = _decimal(above.strip())
    bottom = _decimal(below.strip()) if slash else Fraction(1)
    if top is None or not bottom:
        return None
    return top / bottom / (100 if percent else 1)


def _decimal(text: str) -> Fraction | None:
    return Fraction(text.replace(",", "")) if _NUMBER.fullmatch(text) else None


def numeric(answer: str, accepted: Sequence[str], tolerance: float = 0.0) -> bool:
    """Whether it is one of the accepted numbers.

    Args:
        answer: any text; what is no number is wrong.
        accepted: numbers.
        tolerance: how far off it may be, as a share of the true number (of 1 where that is 0).

    Raises:
        ValueError: an accepted answer is no number, so that nobody could be right.
    """
    given = number(answer)
    for text in accepted:
        true = number(text)
        if true is None:
            raise ValueError(f"the true answer {text[:40]!r} is no number; grade it otherwise")
        if given is not None and abs(given - true) <= Fraction(tolerance) * (abs(true) or 1):
            return True
    return False


def choice(answer: str, accepted: Sequence[str], options: Sequence[str] = ()) -> bool:
    """Whether it names the right one of some choices: `B`, `(b)`, `B. four`, or `four`.

    Args:
        answer: any text.
        accepted: letters or the texts of options.
        options: the texts in their order, A first; without them letters alone are told apart.
    """
    given = letter(answer, options)
    return given is not None and given in {letter(text, options) for text in accepted}


def hopeless(grade: str, accepted: Sequence[str], options: Sequence[str]) -> str | None:
    """Why nobody could be right by a rule, whatever they said; None where somebody could.

    Args:
        grade: `numeric`, `choice`, or a rule that any text can satisfy.
        accepted: what a row calls right.
        options: its choices, A first.
    """
    for text in accepted:
        if grade == "numeric" and number(text) is None:
            return f"its answer {quoted(text)} is no number"
        if grade == "choice" and letter(text, options) is None:
            where = "none of its options" if options else "no letter, and it has no options"
            return f"its answer {quoted(text)} is {where}"
    return None


def misplaced(options: Sequence[str]) -> str | None:
    """The first option that is the letter of another one, as `a` is behind `an`; None without one.

    Nobody could tell whether a reply means the letter or the text.
    """
    for place, option in enumerate(options):
        named = _CHOICE.fullmatch(plain(option))
        if named and place != ord(named[1].upper()) - ord("A") < len(options):
            return option
    return None


def letter(text: str, options: Sequence[str] = ()) -> str | None:
    """The letter that a text chooses, A for the first; None if it chooses none.

    A letter with a text behind it must not contradict the options.
    """
    words = [plain(option) for option in options]
    if plain(text) in words:
        return chr(ord("A") + words.index(plain(text)))
    found = _CHOICE.fullmatch(text.strip()) or _CHOICE_AND_TEXT.fullmatch(text.strip())
    if not found:
        return None
    chosen, said = found[1].upper(), found[2] if len(found.groups()) > 1 else ""
    place = ord(chosen) - ord("A")
    if options and place >= len(options):
        return None
    if said and options and plain(said) != words[place]:
        return None
    return chosen
