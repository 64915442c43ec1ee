"""Extract a reply's final answer, and grade it without external libraries."""

import contextlib
import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction

from agentrl.errors import ActionError
from agentrl.text.formatting import quoted
from agentrl.text.reply_tags import tag_content

_NUMBER = re.compile(
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII
)
_SIGNS = str.maketrans({"\N{MINUS SIGN}": "-", "$": ""})
_BOXED = r"\boxed{"
# Maximum characters of an answer; longer answers are rejected without a comparison.
_MAX_ANSWER = 4000
# Maximum characters of a number.
_MAX_NUMBER = 100
# The end of GSM8K's solutions.
_GSM8K = re.compile(r"####\s*+([^\n#]*[^\n#\s])\s*\Z")
# Maps full-width characters to ASCII. NFKC would also turn 10² into 102.
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
# The degree sign, the Chinese word for degrees, and LaTeX's command for degrees.
_DEGREES = re.compile(r"\N{DEGREE SIGN}|(?<=\d)\s*(?:\u5ea6|\\degree\b)")
# A unit at the end that math-verify would ignore or misread as variables, or any Chinese unit.
_LENGTH_UNIT = re.compile(
    r"(?<=[\d}\N{GREEK SMALL LETTER PI}])\s*"
    r"(?:[\u4e00-\u9fff]+|[kcdm]m(?:\^?\{?[23]\}?|[\u00b2\u00b3])?)\s*\Z"
)
_ROOT = re.compile(r"\N{SQUARE ROOT}\s*(?:\{([^{}]*)\}|(\d+|[a-z]))")
_LEAD_IN = re.compile(
    r"(?:so |thus |therefore |hence )?,?\s*(?:the |my )?(?:final |correct |right |best )?"
    r"(?:answer|option|choice)(?: is|:| is:)\s*",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"\(?([A-Za-z])(?:[).:]|$|\s*$)")
_CHOICE_AND_TEXT = re.compile(r"\(?([A-Za-z])[).:]\s*(.*)", re.DOTALL)


def extract_answer(reply: str, style: str = "either") -> str:
    r"""Extract a reply's answer: `<answer>42</answer>`, or the last `\boxed{42}`.

    Args:
        reply: the model's reply.
        style: `answer`, `boxed`, `either` (the box if there is no tag), or `text` (everything after
            `</think>`).

    Returns:
        The stripped text inside; a box inside a tag is unwrapped.

    Raises:
        ActionError: the answer is missing, empty or too long, or there is more than one tag.
    """
    tags = reply.count("<answer>") + reply.count("</answer>")
    if style == "text":
        found = reply.rpartition("</think>")[2]
    elif style == "boxed" or (style == "either" and not tags):
        box = last_boxed(reply)
        if box is None:
            expected = (
                r"\boxed{...}" if style == "boxed" else r"<answer>...</answer> or \boxed{...}"
            )
            raise ActionError(f"the reply has no {expected}, which must contain the answer")
        found = box
    else:
        found = tag_content(reply, "answer")
    boxed = last_boxed(found)
    answer = (found if boxed is None else boxed).strip()
    if not answer:
        raise ActionError("the answer is empty")
    if len(answer) > _MAX_ANSWER:
        raise ActionError(f"the answer has {len(answer)} characters, more than {_MAX_ANSWER}")
    return answer


def final_answer(solution: str) -> str:
    r"""Extract a worked solution's answer: in a tag, in a box, after `####`, or else all of it."""
    with contextlib.suppress(ActionError):
        return extract_answer(solution)
    found = _GSM8K.search(solution)
    return found[1] if found else solution.strip()


def as_latex(text: str) -> str:
    r"""Convert an answer in GeoQA's notation to LaTeX: `140°`, `5√{3}`, `9πcm^{2}`."""
    text = _DEGREES.sub(r"^\\circ ", text.translate(_FULL_WIDTH))
    text = _LENGTH_UNIT.sub("", text)
    return _ROOT.sub(lambda root: rf"\sqrt{{{root[1] or root[2]}}}", text)


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last complete `\boxed{...}`, with nested braces, or None."""
    end = len(text)
    while (start := text.rfind(_BOXED, 0, end)) >= 0:
        first, depth = start + len(_BOXED), 1
        for index in range(first, end):
            depth += (text[index] == "{") - (text[index] == "}")
            if depth == 0:
                return text[first:index]
        # The rest is an incomplete box; cut it off, so that each character is examined only once.
        end = start
    return None


def normalize(text: str) -> str:
    """Normalize case, full-width characters and white space, and drop a final period."""
    folded = unicodedata.normalize("NFC", text.translate(_FULL_WIDTH)).casefold()
    return " ".join(folded.split()).removesuffix(".").rstrip()


def matches_text(answer: str, accepted: Sequence[str]) -> bool:
    """Return whether an answer equals an accepted text after normalization; see `normalize`."""
    given = normalize(answer)
    return given != "" and any(given == normalize(text) for text in accepted)


def parse_number(text: str) -> Fraction | None:
    """Parse a number: `-3`, `1,200`, `.5`, `2e3`, `3/4`, `12%`; None if it is not a number."""
    text = text.translate(_FULL_WIDTH).strip().translate(_SIGNS).strip()
    if not text or len(text) > _MAX_NUMBER:
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


def matches_number(answer: str, accepted: Sequence[str], tolerance: float = 0.0) -> bool:
    """Return whether an answer equals one of the accepted numbers.

    Args:
        answer: any text; text that is not a number is wrong.
        accepted: numbers.
        tolerance: allowed relative error (absolute if the true number is 0).

    Raises:
        ValueError: an accepted answer is not a number.
    """
    given = parse_number(answer)
    for text in accepted:
        true = parse_number(text)
        if true is None:
            raise ValueError(
                f"the accepted answer {text[:40]!r} is not a number; use a different grading rule"
            )
        if given is not None and abs(given - true) <= Fraction(tolerance) * (abs(true) or 1):
            return True
    return False


def matches_choice(
    answer: str, accepted: Sequence[str], options: Sequence[str] = (), tolerance: float = 0.0
) -> bool:
    """Return whether an answer chooses the right option: `B`, `(b)`, `B. four`, or `four`.

    Args:
        answer: any text.
        accepted: letters or the texts of options.
        options: option texts, A first. Without options, letters are compared; a free-form question,
            whose right answer is not a letter, is graded as a number or a text.
        tolerance: see `matches_number`.
    """
    right = {chosen_letter(text, options) for text in accepted}
    if options or right != {None}:
        given = chosen_letter(answer, options)
        return given is not None and given in right
    numbers = [text for text in accepted if parse_number(text) is not None]
    return matches_text(answer, accepted) or matches_number(answer, numbers, tolerance)


def why_ungradable(
    grade: str, accepted: Sequence[str], options: Sequence[str], *, mixed: bool = False
) -> str | None:
    """Return why a reply with the row's own answer would be graded wrong; None if it would not.

    Args:
        grade: `exact`, `numeric`, `choice`, or `none`.
        accepted: accepted answers of the row.
        options: options of the row, A first.
        mixed: whether a row without options is a free-form question among multiple-choice ones.
    """
    if grade == "choice" and (option := _ambiguous_option(options)) is not None:
        return f"its option {quoted(option)} is also the letter of a different option"
    for text in accepted:
        if grade == "numeric" and parse_number(text) is None:
            return f"its answer {quoted(text)} is not a number"
        if grade == "choice" and (options or not mixed) and chosen_letter(text, options) is None:
            what = "none of its options" if options else "not a letter, and it has no options"
            return f"its answer {quoted(text)} is {what}"
    if grade == "exact" and not any(matches_text(_given(text), accepted) for text in accepted):
        return (
            f"its answer {quoted(accepted[0])} is wrong by grade=exact when a reply gives it, as "
            f"{quoted(_given(accepted[0]))}"
        )
    return None


def _given(text: str) -> str:
    """Return a row's answer as it would be extracted from a reply; may be empty."""
    try:
        return extract_answer(f"<answer>{final_answer(text)}</answer>")
    except ActionError:
        return ""


def _ambiguous_option(options: Sequence[str]) -> str | None:
    """Return the first option whose text is another option's letter, as in [`an`, `a`], or None.

    A reply with this text could mean either option.
    """
    for index, option in enumerate(options):
        match = _CHOICE.fullmatch(normalize(option))
        if match and index != ord(match[1].upper()) - ord("A") < len(options):
            return option
    return None


def chosen_letter(text: str, options: Sequence[str] = ()) -> str | None:
    """Return the letter of the option that a text chooses, A for the first, or None.

    Text after the letter must match that option. `The answer is (B)` chooses B.
    """
    texts = [normalize(option) for option in options]
    if normalize(text) in texts:
        return chr(ord("A") + texts.index(normalize(text)))
    text = text.translate(_FULL_WIDTH).strip()
    if lead_in := _LEAD_IN.match(text):
        text = text[lead_in.end() :].removesuffix(".")
    if normalize(text) in texts:
        return chr(ord("A") + texts.index(normalize(text)))
    match = _CHOICE.fullmatch(text) or _CHOICE_AND_TEXT.fullmatch(text)
    if not match:
        return None
    chosen, following = match[1].upper(), match[2] if len(match.groups()) > 1 else ""
    index = ord(chosen) - ord("A")
    if options and index >= len(options):
        return None
    if following and options and normalize(following) != texts[index]:
        return None
    return chosen
