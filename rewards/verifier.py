"""math-verify in a process of its own, with a deadline and a bound on its memory.

Its own time-outs are signals, which only a process's main thread can have, and rewards are
computed in other threads. And what a model writes may take for ever to compare, or all memory.
"""

import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from agentrl.errors import RewardError

log = logging.getLogger(__name__)

_START_S = 60.0
"""For the process to come up: it imports sympy."""
_SPARE_S = 1.0
"""After which the process ends by itself where nobody has ended it at the deadline."""
_LONGEST = 4000
"""Characters of the reply's end that are looked at; longer answers are none."""


class Verifier:
    """Compares answers, one at a time; its process starts when it is first asked.

    It ends with this process, whatever ends it.

    Args:
        deadline_s: for one comparison.
    """

    def __init__(self, deadline_s: float = 5.0) -> None:
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

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
        if truth is None or not str(truth).strip():
            raise RewardError("maths: the environment's info has no ground_truth")
        told = {"truth": str(truth), "words": words}
        with self._lock:
            known = self._ask({**told, "reply": None})
            if known is None:
                raise RewardError(
                    f"maths: the truth {str(truth)[:80]!r} is not read within "
                    f"{self._deadline_s:g} s"
                )
            _check(known)
            found = self._ask({**told, "reply": reply[-_LONGEST:]})
        if found is None:
            log.warning("maths: not compared within %g s: %r", self._deadline_s, reply[-80:])
            return 0.0, 1.0
        _check(found)
        return float(found["right"]), float(found["unsettled"])

    def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The process's answer; None if it gives none in time, or dies over it."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            line = _line(process, self._deadline_s)
        except OSError:
            line = None
        if line is None:
            self.close()
            return None
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "agentrl.rewards.verify", str(self._deadline_s + _SPARE_S)],
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
                f"{sys.executable} -m agentrl.rewards.verify 5"
            )
        return self._process

    def close(self) -> None:
        """End the process; another is started when it is asked again."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what it had not read yet
                    pipe.close()

    def __del__(self) -> None:
        self.close()


def _check(answer: Mapping[str, Any]) -> None:
    if "error" in answer:
        raise RewardError(f"maths: {answer['error']}")


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
