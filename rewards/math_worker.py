"""The other side of `verifier`: reads lists of questions from the standard input, one JSON a line.

Its arguments are how many seconds of computing one of them may take, and how many are looked at at
the same time.
"""

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NoReturn

from agentrl.data.answers import answer_in
from agentrl.data.grading import exact
from agentrl.errors import ActionError

SPARE_S = 1.0
"""Beyond its seconds of computing, by the clock: others may need the processors."""
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
    deadline_s, at_once = float(sys.argv[1]), int(sys.argv[2])
    _say(answers, {"ready": _answer(_truth("1"), r"$\frac{1}{1}$", None, False)["right"]})
    for line in sys.stdin.buffer:
        _say(answers, _answers(json.loads(line), deadline_s, at_once))


def _answers(
    questions: Sequence[Mapping[str, Any]], deadline_s: float, at_once: int
) -> list[dict[str, Any]]:
    """What is found, each in a process of its own: what one takes or breaks is not the others'."""
    answers: list[dict[str, Any]] = [{} for _ in questions]
    running: dict[int, tuple[int, int]] = {}

    def take() -> None:
        child, _, used = os.wait4(-1, 0)
        place, reading = running.pop(child)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read().splitlines()
        answers[place] = _found(said, used.ru_utime + used.ru_stime, deadline_s)

    for place, question in enumerate(questions):
        if len(running) >= at_once:
            take()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _look(question, writing, deadline_s)
        os.close(writing)
        running[child] = place, reading
    while running:
        take()
    return answers


def _look(question: Mapping[str, Any], writing: int, deadline_s: float) -> NoReturn:
    """Say that the truth can be read, and then what the answer is; ends this process."""
    try:
        # Nobody else need live to end what never ends.
        for clock, signal_, seconds in (
            (signal.ITIMER_PROF, signal.SIGPROF, deadline_s),
            (signal.ITIMER_REAL, signal.SIGALRM, deadline_s + SPARE_S),
        ):
            signal.signal(signal_, signal.SIG_DFL)
            signal.setitimer(clock, seconds)
        truth, words = _truth(question["truth"]), question["words"]
        error = {"error": f"the truth {question['truth'][:80]!r} is no maths; compare it as text"}
        unread = truth[0] is None and not words
        os.write(writing, json.dumps(error if unread else {}).encode() + b"\n")
        if not unread:
            answer = _answer(truth, question["reply"], question["said"], words)
            os.write(writing, json.dumps(answer).encode() + b"\n")
    finally:  # whatever it was, MemoryError among others
        os._exit(0)


def _found(said: Sequence[bytes], computed_s: float, deadline_s: float) -> dict[str, Any]:
    """What a process has found in some seconds of computing, from the lines that it said.

    One that the clock has ended may have waited for others: its answer is not known for bad.
    """
    if not said:
        return {"error": f"the truth is not read within {deadline_s:g} s"}
    found: dict[str, Any] = json.loads(said[-1])
    if found:
        return found
    return {"right": False, "unsettled": True, "known": computed_s >= deadline_s / 2}


def _say(answers: BinaryIO, answer: Any) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _answer(truth: tuple[Any, str], reply: str, said: str | None, words: bool) -> dict[str, Any]:
    from math_verify import verify

    true, text = truth
    if words and said is not None and exact(said, [text]):
        return {"right": True, "unsettled": False}
    given = _parsed(reply if said is None else _dressed(said))
    right = bool(true) and bool(given) and verify(true, given, timeout_seconds=_NO_LIMIT)
    return {"right": bool(right), "unsettled": False}


def said_in(reply: str) -> str | None:
    """The answer that a reply marks; None where it marks none."""
    try:
        return answer_in(reply)
    except ActionError:
        return None


def _truth(truth: str) -> tuple[Any, str]:
    """What a truth means, None if it is no maths; and its own words."""
    said = said_in(truth) or truth
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
