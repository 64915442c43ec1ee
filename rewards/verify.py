"""The other side of `verifier`: reads questions from the standard input, one JSON a line.

Its argument is how many seconds of computing it may spend on one of them before it ends.
"""

import json
import logging
import os
import resource
import signal
import sys
from functools import lru_cache
from typing import Any, BinaryIO

_MEMORY = 4 << 30
"""Bytes that an answer may take; sympy itself needs a tenth of it."""
_NO_LIMIT: Any = None
"""math-verify's own time-outs are off: whoever asks has one."""


def main() -> None:
    """Answer until nobody asks any more."""
    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    logging.disable(logging.CRITICAL)
    _say(answers, {"ready": _truth("1")[0] is not None})
    most_s = float(sys.argv[1])
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for line in sys.stdin.buffer:
        # Who asked may have been killed, and can then not end what never ends.
        signal.setitimer(signal.ITIMER_PROF, most_s)
        try:
            _say(answers, _answer(**json.loads(line)))
        except (MemoryError, RecursionError):
            _say(answers, {"right": False, "unsettled": True})
        signal.setitimer(signal.ITIMER_PROF, 0)


def _say(answers: BinaryIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _answer(truth: str, reply: str | None, words: bool) -> dict[str, Any]:
    from math_verify import verify

    from agentrl.data.grading import exact

    true, text = _truth(truth)
    if true is None and not words:
        return {"error": f"the truth {truth[:80]!r} is no maths; compare it as text instead"}
    if reply is None:
        return {"right": False, "unsettled": False}
    said = _said(reply)
    if words and said is not None and exact(said, [text]):
        return {"right": True, "unsettled": False}
    given = _parsed(reply if said is None else _dressed(said))
    right = bool(true) and bool(given) and verify(true, given, timeout_seconds=_NO_LIMIT)
    return {"right": bool(right), "unsettled": False}


def _said(reply: str) -> str | None:
    from agentrl.data.answers import answer_in
    from agentrl.errors import ActionError

    try:
        return answer_in(reply)
    except ActionError:
        return None


@lru_cache(maxsize=1024)
def _truth(truth: str) -> tuple[Any, str]:
    """What a truth means, None if it is no maths; and its own words."""
    said = _said(truth) or truth
    found = _parsed(_dressed(said))
    # The last one is the text itself, where nothing could be made of it.
    return (found if any(not isinstance(f, str) for f in found) else None), said


def _dressed(text: str) -> str:
    r"""LaTeX as math-verify finds it: `\frac{1}{2}` alone becomes `$\frac{1}{2}$`."""
    return text if "$" in text or "\\[" in text or "\\(" in text else f"\\boxed{{{text}}}"


def _parsed(text: str) -> list[Any]:
    from math_verify import parse

    found: list[Any] = parse(text, parsing_timeout=_NO_LIMIT)
    return found


if __name__ == "__main__":
    main()
