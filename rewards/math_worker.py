"""The process behind `math_verifier`: reads lists of questions from stdin, one JSON per line.

Its arguments are the CPU seconds for one question and the number of concurrent questions.
"""

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NoReturn

from agentrl.data.grading import as_latex, exact, extract_answer, final_answer
from agentrl.errors import ActionError

SPARE_S = 1.0
"""Wall-clock time beyond the CPU seconds, because other processes may need the CPUs."""
_MEMORY = 4 << 30
"""Memory limit per answer in bytes; sympy itself needs a tenth of it."""
_NO_LIMIT: Any = None
"""Turns off math-verify's own timeouts: the caller has a deadline."""


def main() -> None:
    """Answer questions until stdin is closed."""
    # Output of libraries must not be mistaken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    logging.disable(logging.CRITICAL)
    deadline_s, at_once = float(sys.argv[1]), int(sys.argv[2])
    _say(answers, {"ready": _answer(_truth("1"), r"$\frac{1}{1}$", None, "math")["right"]})
    for line in sys.stdin.buffer:
        _say(answers, _answers(json.loads(line), deadline_s, at_once))


def _answers(
    questions: Sequence[Mapping[str, Any]], deadline_s: float, at_once: int
) -> list[dict[str, Any]]:
    """Answer each question in its own process, so that a failure affects no other question."""
    answers: list[dict[str, Any]] = [{} for _ in questions]
    running: dict[int, tuple[int, int]] = {}

    def take() -> None:
        child, _, used = os.wait4(-1, 0)
        index, reading = running.pop(child)
        with os.fdopen(reading, "rb") as pipe:
            lines = pipe.read().splitlines()
        answers[index] = _answer_from(lines, used.ru_utime + used.ru_stime, deadline_s)

    for index, question in enumerate(questions):
        if len(running) >= at_once:
            take()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _compare(question, writing, deadline_s)
        os.close(writing)
        running[child] = index, reading
    while running:
        take()
    return answers


def _compare(question: Mapping[str, Any], writing: int, deadline_s: float) -> NoReturn:
    """Report that the true answer can be parsed, then the result; ends this process."""
    try:
        # Timers end this process even if its parent has died.
        for clock, signal_, seconds in (
            (signal.ITIMER_PROF, signal.SIGPROF, deadline_s),
            (signal.ITIMER_REAL, signal.SIGALRM, deadline_s + SPARE_S),
        ):
            signal.signal(signal_, signal.SIG_DFL)
            signal.setitimer(clock, seconds)
        text, rule = question["truth"], question["rule"]
        truth = (_parsed(text), text) if rule == "whole" else _truth(text)
        error = {"error": f"the truth {text[:80]!r} is not math; compare it as text"}
        unread = truth[0] is None and rule == "math"
        os.write(writing, json.dumps(error if unread else {}).encode() + b"\n")
        if not unread:
            answer = _answer(truth, question["reply"], question["said"], rule)
            os.write(writing, json.dumps(answer).encode() + b"\n")
    finally:  # after any error, such as MemoryError
        os._exit(0)


def _answer_from(lines: Sequence[bytes], computed_s: float, deadline_s: float) -> dict[str, Any]:
    """The answer of a child process, from the lines that it wrote and its CPU seconds.

    A child that the wall-clock timer ended may just have waited for a CPU, so its answer is not
    marked as `known` to be unsettled.
    """
    if not lines:
        return {"error": f"the truth is not parsed within {deadline_s:g} s"}
    answer: dict[str, Any] = json.loads(lines[-1])
    if answer:
        return answer
    return {"right": False, "unsettled": True, "known": computed_s >= deadline_s / 2}


def _say(answers: BinaryIO, answer: Any) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _answer(truth: tuple[Any, str], reply: str, said: str | None, rule: str) -> dict[str, Any]:
    from math_verify import verify

    true, text = truth
    if rule == "words" and said is not None and exact(said, [text]):
        return {"right": True, "unsettled": False}
    given = _parsed(reply if said is None else _dressed(said))
    pair = (given, true) if rule == "whole" else (true, given)  # the order of R1-V's test
    right = bool(true) and bool(given) and verify(*pair, timeout_seconds=_NO_LIMIT)
    return {"right": bool(right), "unsettled": False}


def said_in(reply: str) -> str | None:
    """The marked answer in a reply; None if there is none."""
    try:
        return extract_answer(reply)
    except ActionError:
        return None


def _truth(truth: str) -> tuple[Any, str]:
    """A true answer, parsed (None if it is not math) and as text."""
    said = final_answer(truth)
    parsed = _parsed(_dressed(said))
    # math-verify appends the text itself; if nothing else was parsed, it is not math.
    return (parsed if any(not isinstance(p, str) for p in parsed) else None), said


def _dressed(text: str) -> str:
    r"""LaTeX in a form that math-verify finds: a bare `\frac{1}{2}` is put into a box."""
    text = as_latex(text)
    return text if "$" in text or "\\[" in text or "\\(" in text else f"\\boxed{{{text}}}"


def _parsed(text: str) -> list[Any]:
    from math_verify import parse

    parsed: list[Any] = parse(text, parsing_timeout=_NO_LIMIT)
    return parsed


if __name__ == "__main__":
    main()
