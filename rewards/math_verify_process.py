"""Run math-verify with a deadline and a memory limit, each comparison in its own process.

Comparing a model's answer may never end, or use up the memory, in code that no signal interrupts.
"""

import gc
import json
import logging
import os
import resource
import selectors
import signal
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, NoReturn

import psutil

from agentrl.data.grading import as_latex, extract_answer, final_answer, matches_text
from agentrl.errors import ActionError, RewardError

log = logging.getLogger(__name__)

_SPARE_S = 1.0
"""Wall-clock time beyond the CPU seconds, because other processes may need the CPUs."""
_MEMORY = 4 << 30
"""Memory in bytes that one comparison may use."""
_NO_LIMIT: Any = None
"""Turns off math-verify's own timeouts."""
_LONGEST = 4000
"""Number of characters at the end of a reply to search for an answer."""
_MOST_KNOWN = 4096
"""Maximum number of remembered unsettled answers."""

Rule = Literal["math", "words", "whole"]
"""How to compare: `math`; `words`, which compares text if the true answer is not math; or `whole`,
as in R1-V's test, where math-verify itself finds the answer in the whole reply."""
_Question = tuple[str, str | None, str, Rule]
"""True answer, marked answer, the reply if it has no marked answer, and the rule."""
_UNSETTLED: Mapping[str, Any] = {"right": False, "unsettled": True}


class Verifier:
    """Compares answers, several at a time.

    An answer that used up its CPU time is remembered, and immediately reported as unsettled the
    next time.

    Args:
        deadline_s: CPU seconds for one comparison; the wall-clock limit is one second more.
    """

    def __init__(self, deadline_s: float = 5.0) -> None:
        self._deadline_s = deadline_s
        self._at_once = max(2, min(4, os.cpu_count() or 1))
        self._unsettled: dict[_Question, None] = {}

    def verify(self, truth: Any, reply: str, rule: Rule = "math") -> tuple[float, float]:
        """Compare a reply's answer with the true answer.

        Args:
            truth: a number, LaTeX with or without dollar signs, a set, or an interval.
            reply: any text.
            rule: see `Rule`.

        Returns:
            1.0 for a right answer, else 0.0; and 1.0 if the comparison failed, else 0.0.

        Raises:
            RewardError: the true answer cannot be parsed.
        """
        result = self.verify_all([(truth, reply)], rule)[0]
        if isinstance(result, RewardError):
            raise result
        return result

    def verify_all(
        self, pairs: Sequence[tuple[Any, str]], rule: Rule = "math"
    ) -> list[tuple[float, float] | RewardError]:
        """Like `verify`, for several pairs; an unparsable true answer affects only its own pair."""
        questions = [_question(truth, reply, rule) for truth, reply in pairs]
        new = [q for q in dict.fromkeys(questions) if q and q not in self._unsettled]
        answers = _compare_all(new, self._deadline_s, self._at_once) if new else []
        found = dict(zip(new, answers, strict=True))
        for question, answer in found.items():
            self._remember(question, answer)
        return [_result(None if q is None else found.get(q, _UNSETTLED)) for q in questions]

    def _remember(self, question: _Question, answer: Mapping[str, Any]) -> None:
        if not answer.get("unsettled"):
            return
        shown = (question[1] or question[2])[-80:]
        log.warning("maths: comparing an answer took longer than %g s: %r", self._deadline_s, shown)
        if answer.get("known"):
            self._unsettled[question] = None
            if len(self._unsettled) > _MOST_KNOWN:
                del self._unsettled[next(iter(self._unsettled))]


def _question(truth: Any, reply: str, rule: Rule) -> _Question | None:
    """Return the question without text around a marked answer; None without a true answer."""
    if truth is None or not str(truth).strip():
        return None
    if rule == "whole":
        return str(truth), None, reply, rule
    reply = reply[-_LONGEST:]
    said = _said_in(reply)
    return str(truth), said, reply if said is None else "", rule


def _result(answer: Mapping[str, Any] | None) -> tuple[float, float] | RewardError:
    if answer is None:
        return RewardError("maths: the environment's info has no ground_truth")
    if "error" in answer:
        return RewardError(f"maths: {answer['error']}")
    return float(answer["right"]), float(answer["unsettled"])


# --- one process for each comparison ----------------------------------------------------------


def _compare_all(
    questions: Sequence[_Question], deadline_s: float, at_once: int
) -> list[dict[str, Any]]:
    """Answer each question in its own process, so that a failure affects no other question."""
    _warm_up()
    answers: list[dict[str, Any]] = [{} for _ in questions]
    running = selectors.DefaultSelector()

    def take() -> None:
        for key, _ in running.select():
            index, child, lines = key.data
            part = os.read(key.fd, 65536)
            lines += part
            if not part:  # the child has ended
                running.unregister(key.fd)
                os.close(key.fd)
                used = os.wait4(child, 0)[2]
                answers[index] = _answer_from(
                    bytes(lines), used.ru_utime + used.ru_stime, deadline_s
                )

    for index, question in enumerate(questions):
        while len(running.get_map()) >= at_once:
            take()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _compare(question, writing, deadline_s)
        os.close(writing)
        running.register(reading, selectors.EVENT_READ, (index, child, bytearray()))
    while running.get_map():
        take()
    running.close()
    return answers


@cache
def _warm_up() -> None:
    """Import math-verify and fill the caches of its parser, once for all comparisons."""
    _answer(_truth("1"), r"$\frac{1}{1}$", None, "math")
    gc.freeze()  # a garbage collection in a new process would copy all memory


def _compare(question: _Question, writing: int, deadline_s: float) -> NoReturn:
    """Report that the true answer can be parsed, then the result; ends this process."""
    true, said, reply, rule = question
    try:
        # These timers end the process even if its parent has died.
        for clock, signal_, seconds in (
            (signal.ITIMER_PROF, signal.SIGPROF, deadline_s),
            (signal.ITIMER_REAL, signal.SIGALRM, deadline_s + _SPARE_S),
        ):
            signal.signal(signal_, signal.SIG_DFL)
            signal.setitimer(clock, seconds)
        most = psutil.Process().memory_info().vms + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        logging.disable(logging.CRITICAL)  # math-verify logs each answer that it cannot parse
        truth = (_parsed(true), true) if rule == "whole" else _truth(true)
        unread = truth[0] is None and rule == "math"
        error = {"error": f"the true answer {true[:80]!r} is not math; compare it as text"}
        os.write(writing, json.dumps(error if unread else {}).encode() + b"\n")
        if not unread:
            answer = _answer(truth, reply, said, rule)
            os.write(writing, json.dumps(answer).encode() + b"\n")
    finally:  # after any error, such as MemoryError
        os._exit(0)


def _answer_from(written: bytes, computed_s: float, deadline_s: float) -> dict[str, Any]:
    """Derive a child process's answer from its output and its CPU seconds.

    A child that the wall-clock timer ended may only have waited for a CPU, so its answer is not
    marked as `known` to be unsettled.
    """
    lines = written.splitlines()
    if not lines:
        return {"error": f"the true answer cannot be parsed within {deadline_s:g} s"}
    answer: dict[str, Any] = json.loads(lines[-1])
    if answer:
        return answer
    return {"right": False, "unsettled": True, "known": computed_s >= deadline_s / 2}


def _answer(truth: tuple[Any, str], reply: str, said: str | None, rule: Rule) -> dict[str, Any]:
    from math_verify import verify

    true, text = truth
    if rule == "words" and said is not None and matches_text(said, [text]):
        return {"right": True, "unsettled": False}
    given = _parsed(reply if said is None else _dressed(said))
    pair = (given, true) if rule == "whole" else (true, given)  # the order of R1-V's test
    right = bool(true) and bool(given) and verify(*pair, timeout_seconds=_NO_LIMIT)
    return {"right": bool(right), "unsettled": False}


def _said_in(reply: str) -> str | None:
    """Return the marked answer in a reply; None without one."""
    try:
        return extract_answer(reply)
    except ActionError:
        return None


def _truth(truth: str) -> tuple[Any, str]:
    """Return a true answer, parsed (None if it is not math) and as text."""
    said = final_answer(truth)
    parsed = _parsed(_dressed(said))
    # math-verify appends the text itself; if it parsed nothing else, the text is not math.
    return (parsed if any(not isinstance(p, str) for p in parsed) else None), said


def _dressed(text: str) -> str:
    r"""Put bare LaTeX such as `\frac{1}{2}` into a box, so that math-verify finds it."""
    text = as_latex(text)
    return text if "$" in text or "\\[" in text or "\\(" in text else f"\\boxed{{{text}}}"


def _parsed(text: str) -> list[Any]:
    from math_verify import parse

    parsed: list[Any] = parse(text, parsing_timeout=_NO_LIMIT)
    return parsed
