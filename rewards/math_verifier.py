"""Runs math-verify in separate processes, with a deadline and a memory limit.

math-verify's own timeouts use signals, which work only in the main thread, but rewards run in other
threads. And a model's answer may take forever, or all memory, to compare.
"""

import contextlib
import json
import logging
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentrl.errors import RewardError
from agentrl.rewards.math_worker import SPARE_S, said_in

log = logging.getLogger(__name__)

_WORKER = "agentrl.rewards.math_worker"
_START_S = 60.0
"""Deadline for the process to start: it imports sympy."""
_SLACK_S = 10.0
"""Time for the process to respond, in addition to its questions' deadlines."""
_LONGEST = 4000
"""Only this many characters at the end of a reply are searched for an answer."""
_MOST_KNOWN = 4096
"""Maximum number of remembered unsettled answers."""

Rule = Literal["math", "words", "whole"]
"""How to compare: as math; also as text, if the true answer is not math; or as R1-V's test does,
where math-verify itself finds the answer in the whole reply."""
_Question = tuple[str, str | None, str, Rule]
"""True answer, marked answer, the reply if it marks none, and the rule."""
_UNSETTLED: Mapping[str, Any] = {"right": False, "unsettled": True}


class Verifier:
    """Compares answers, several at a time, in a process that starts on the first call.

    The process ends with this one, even after a kill. An answer that used up its CPU time is
    remembered, and reported as unsettled at once the next time.

    Args:
        deadline_s: CPU seconds for one comparison; the wall-clock limit is one second more.
        at_once: number of concurrent comparisons; None for the number of CPUs, from 2 to 4.
    """

    def __init__(self, deadline_s: float = 5.0, at_once: int | None = None) -> None:
        self._deadline_s = deadline_s
        self._at_once = at_once or max(2, min(4, os.cpu_count() or 1))
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._unsettled: dict[_Question, None] = {}

    def verify(self, truth: Any, reply: str, rule: Rule = "math") -> tuple[float, float]:
        """Whether a reply's answer equals the true answer.

        Args:
            truth: a number, LaTeX with or without dollar signs, a set, or an interval.
            reply: any text.
            rule: see `Rule`.

        Returns:
            1.0 for a right answer, else 0.0; and 1.0 if it could not be compared, else 0.0.

        Raises:
            RewardError: the true answer cannot be parsed, or the process does not work.
        """
        result = self.verify_all([(truth, reply)], rule)[0]
        if isinstance(result, RewardError):
            raise result
        return result

    def verify_all(
        self, pairs: Sequence[tuple[Any, str]], rule: Rule = "math"
    ) -> list[tuple[float, float] | RewardError]:
        """Like `verify`, for several pairs; an unparsable true answer affects only its own pair.

        Raises:
            RewardError: the process does not work.
        """
        questions = [_question(truth, reply, rule) for truth, reply in pairs]
        with self._lock:
            new = [q for q in dict.fromkeys(questions) if q and q not in self._unsettled]
            found = dict(zip(new, self._ask(new), strict=True)) if new else {}
            for question, answer in found.items():
                self._remember(question, answer)
        return [_result(question and found.get(question, _UNSETTLED)) for question in questions]

    def _remember(self, question: _Question, answer: Mapping[str, Any]) -> None:
        if not answer.get("unsettled"):
            return
        shown = (question[1] or question[2])[-80:]
        log.warning("maths: answer not compared within %g s: %r", self._deadline_s, shown)
        if answer.get("known"):
            self._unsettled[question] = None
            if len(self._unsettled) > _MOST_KNOWN:
                del self._unsettled[next(iter(self._unsettled))]

    def _ask(self, questions: Sequence[_Question]) -> list[Mapping[str, Any]]:
        process = self._running()
        assert process.stdin is not None
        request = [
            {"truth": truth, "said": said, "reply": reply, "rule": rule}
            for truth, said, reply, rule in questions
        ]
        rounds = math.ceil(len(questions) / self._at_once)
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = _line(process, rounds * (self._deadline_s + SPARE_S) + _SLACK_S)
        except OSError:
            line = None
        if line is None:
            self.close()
            raise RewardError("maths: the verifier process has ended or does not respond")
        answers: list[Mapping[str, Any]] = json.loads(line)
        return answers

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        # Its own modules come first: a user's folder may contain a math.py.
        code = f"import sys; sys.path += {sys.path!r}; from {_WORKER} import main; main()"
        arguments = [str(self._deadline_s), str(self._at_once)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # math-verify logs each answer that it cannot parse
            start_new_session=True,  # Ctrl-C goes to this process only
        )
        ready = _line(self._process, _START_S)
        if ready is None:
            self.close()
            raise RewardError(
                f"maths: the verifier did not start within {_START_S:g} s; try "
                f"{sys.executable} -m {_WORKER} 5 2"
            )
        return self._process

    def close(self) -> None:
        """End the process; the next call starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # together with its child processes
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # unsent data
                    pipe.close()

    def __del__(self) -> None:
        self.close()


def _question(truth: Any, reply: str, rule: Rule) -> _Question | None:
    """The question; None without a true answer. Text around a marked answer is dropped."""
    if truth is None or not str(truth).strip():
        return None
    if rule == "whole":
        return str(truth), None, reply, rule
    reply = reply[-_LONGEST:]
    said = said_in(reply)
    return str(truth), said, reply if said is None else "", rule


def _result(answer: Mapping[str, Any] | None) -> tuple[float, float] | RewardError:
    if answer is None:
        return RewardError("maths: the environment's info has no ground_truth")
    if "error" in answer:
        return RewardError(f"maths: {answer['error']}")
    return float(answer["right"]), float(answer["unsettled"])


def _line(process: "subprocess.Popen[bytes]", deadline_s: float) -> bytes | None:
    """The next line of its output; None if it ended or the deadline passed."""
    assert process.stdout is not None
    end, line, fd = time.monotonic() + deadline_s, b"", process.stdout.fileno()
    while not line.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            return None
        chunk = os.read(fd, 65536)
        if not chunk:
            return None
        line += chunk
    return line
