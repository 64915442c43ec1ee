"""math-verify in processes of their own, with a deadline and a bound on their memory.

Its own time-outs are signals, which only a process's main thread can have, and rewards are
computed in other threads. And what a model writes may take for ever to compare, or all memory.
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
from typing import Any

from agentrl.errors import RewardError
from agentrl.rewards.math_worker import SPARE_S, said_in

log = logging.getLogger(__name__)

_START_S = 60.0
"""For the process to come up: it imports sympy."""
_SLACK_S = 10.0
"""For it to answer, beyond what its questions may take."""
_LONGEST = 4000
"""Characters of the reply's end that are looked at; longer answers are none."""
_MOST_KNOWN = 4096
"""Answers that are known to be unsettled."""

_Question = tuple[str, str | None, str, bool]
"""The truth, the answer, the reply where it marks none, and whether words are compared."""
_UNSETTLED: Mapping[str, Any] = {"right": False, "unsettled": True}


class Verifier:
    """Compares answers, some at the same time; its process starts when it is first asked.

    It ends with this process, whatever ends it. An answer that was computed on and not settled is
    remembered, and is unsettled at once the next time.

    Args:
        deadline_s: of computing, for one comparison; by the clock a second more.
        at_once: comparisons at the same time; None for one a processor, from 2 to 4.
    """

    def __init__(self, deadline_s: float = 5.0, at_once: int | None = None) -> None:
        self._deadline_s = deadline_s
        self._at_once = at_once or max(2, min(4, os.cpu_count() or 1))
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._unsettled: dict[_Question, None] = {}

    def verify(self, truth: Any, reply: str, words: bool = False) -> tuple[float, float]:
        """Whether a reply's answer equals the truth.

        Args:
            truth: maths: a number, LaTeX with or without its dollars, a set, an interval.
            reply: any text.
            words: whether a truth that is no maths is compared as text.

        Returns:
            1.0 for a right answer, else 0.0; and 1.0 if it could not be compared, else 0.0.

        Raises:
            RewardError: the truth cannot be read, or the process does not work.
        """
        found = self.verify_all([(truth, reply)], words)[0]
        if isinstance(found, RewardError):
            raise found
        return found

    def verify_all(
        self, pairs: Sequence[tuple[Any, str]], words: bool = False
    ) -> list[tuple[float, float] | RewardError]:
        """The same for several truths and replies; a truth that cannot be read is its own alone.

        Raises:
            RewardError: the process does not work.
        """
        questions = [_question(truth, reply, words) for truth, reply in pairs]
        with self._lock:
            new = [q for q in dict.fromkeys(questions) if q and q not in self._unsettled]
            found = dict(zip(new, self._ask(new), strict=True)) if new else {}
            for question, answer in found.items():
                self._remember(question, answer)
        return [_told(question and found.get(question, _UNSETTLED)) for question in questions]

    def _remember(self, question: _Question, answer: Mapping[str, Any]) -> None:
        if not answer.get("unsettled"):
            return
        shown = (question[1] or question[2])[-80:]
        log.warning("maths: not compared within %g s: %r", self._deadline_s, shown)
        if answer.get("known"):
            self._unsettled[question] = None
            if len(self._unsettled) > _MOST_KNOWN:
                del self._unsettled[next(iter(self._unsettled))]

    def _ask(self, questions: Sequence[_Question]) -> list[Mapping[str, Any]]:
        process = self._running()
        assert process.stdin is not None
        told = [
            {"truth": truth, "said": said, "reply": reply, "words": words}
            for truth, said, reply, words in questions
        ]
        rounds = math.ceil(len(questions) / self._at_once)
        try:
            process.stdin.write(json.dumps(told).encode() + b"\n")
            process.stdin.flush()
            line = _line(process, rounds * (self._deadline_s + SPARE_S) + _SLACK_S)
        except OSError:
            line = None
        if line is None:
            self.close()
            raise RewardError("maths: the verifier's process has ended or fallen silent")
        answers: list[Mapping[str, Any]] = json.loads(line)
        return answers

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        arguments = [str(self._deadline_s), str(self._at_once)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "agentrl.rewards.math_worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # math-verify tells of each answer that it cannot read
            start_new_session=True,  # Ctrl-C is for us
            env={**os.environ, "PYTHONPATH": path},
        )
        ready = _line(self._process, _START_S)
        if ready is None:
            self.close()
            raise RewardError(
                f"maths: the verifier is not up after {_START_S:g} s; try "
                f"{sys.executable} -m agentrl.rewards.math_worker 5 2"
            )
        return self._process

    def close(self) -> None:
        """End the process; another is started when it is asked again."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it looks at
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what it had not read yet
                    pipe.close()

    def __del__(self) -> None:
        self.close()


def _question(truth: Any, reply: str, words: bool) -> _Question | None:
    """What is asked; None without a truth. What stands around an answer makes no difference."""
    if truth is None or not str(truth).strip():
        return None
    reply = reply[-_LONGEST:]
    said = said_in(reply)
    return str(truth), said, reply if said is None else "", words


def _told(answer: Mapping[str, Any] | None) -> tuple[float, float] | RewardError:
    if answer is None:
        return RewardError("maths: the environment's info has no ground_truth")
    if "error" in answer:
        return RewardError(f"maths: {answer['error']}")
    return float(answer["right"]), float(answer["unsettled"])


def _line(process: "subprocess.Popen[bytes]", deadline_s: float) -> bytes | None:
    """What it says next; None if that is nothing."""
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
