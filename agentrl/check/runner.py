"""Run checks, each within a deadline, and checks of users' code in a separate process."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from agentrl.check.finding import Finding, ok, wrong
from agentrl.child_process import adopt_orphans, describe_exit, kill_descendants
from agentrl.errors import (
    AgentRLError,
    describe_error,
    known_members,
    message_of,
    users_location,
)

_LOADING = "loading"
_TICK_S = 1.0
"""Seconds between calls of `waiting`."""
_START_S = 30.0
"""Maximum time for the process to start, in addition to the deadline of a check."""


def _failed(what: str, error: BaseException) -> Finding:
    return wrong(what, describe_failure(error), "")


@dataclass(slots=True, kw_only=True, frozen=True)
class Check:
    """One check; calling it raises AssertionError if it fails."""

    name: str
    """Unique name among the checks of a kind; also the pytest id."""
    description: str
    run: Callable[[], Finding | None]
    """Runs the check: raises if it fails, and returns a finding, or None if there is none."""
    failed: Callable[[str, BaseException], Finding] = _failed
    """Makes the finding for an exception of `run` from the description and the exception."""
    fix_if_late: str = "no call may block"

    @property
    def __name__(self) -> str:
        """The name, from which pytest derives a test's id."""
        return self.name

    def __call__(self) -> None:
        """Run the check.

        Raises:
            Exception: the check failed.
        """
        found = self.run()
        if found is not None and found.state == "wrong":
            raise AssertionError(f"{found.what}: {found.detail}. To fix: {found.fix}")

    def finding(self, deadline_s: float) -> Finding:
        """Run the check in a thread, and abandon the thread at the deadline."""
        found: list[Finding] = []

        def work() -> None:
            try:
                found.append(self.run() or ok(self.description, ""))
            except BaseException as error:
                # A SystemExit of users' code would otherwise end the thread without a finding.
                found.append(self.failed(self.description, error))

        thread = Thread(target=work, daemon=True)
        thread.start()
        thread.join(deadline_s)
        late = wrong(self.description, f"not finished within {deadline_s:g} s", self.fix_if_late)
        return found[0] if found else late


def run_checks(
    checks: Sequence[Check], deadline_s: float, begun: Callable[[str], None] = lambda what: None
) -> Iterator[Finding]:
    """Run checks one after another.

    Args:
        checks: checks to run.
        deadline_s: time limit of each check.
        begun: called with the description of each check when it starts.
    """
    for check in checks:
        begun(check.description)
        yield check.finding(deadline_s)


def findings_in_process(
    findings: Callable[..., Iterator[Finding]],
    arguments: tuple[Any, ...],
    deadline_s: float,
    waiting: Callable[[str, float], None] = lambda what, seconds: None,
) -> Iterator[Finding]:
    """Run a function in another process and yield its findings.

    Code that ends its process or never releases the GIL thus becomes a finding as well. All
    processes that the code starts end together with that process.

    Args:
        findings: a module-level function that yields findings; it calls its argument `begun` with
            the name of each check when it starts.
        arguments: the function's other arguments, which are pickled.
        deadline_s: time limit of each finding.
        waiting: called repeatedly with the name of the running check and its seconds so far.

    An exception of the function itself is raised here.
    """
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_findings, args=(findings, arguments, sender))
    child.start()
    # While this end is open, the child's death would not raise EOFError here.
    sender.close()
    what, begun_at = _LOADING, time.monotonic()
    try:
        while (spent_s := time.monotonic() - begun_at) < deadline_s + _START_S:
            waiting(what, spent_s)
            if not receiver.poll(_TICK_S):
                continue
            found: Finding | str | Exception | None = receiver.recv()
            if found is None:
                return
            if isinstance(found, Exception):
                raise found
            if isinstance(found, Finding):
                yield found
            else:
                what = found
            begun_at = time.monotonic()
        if what == _LOADING:
            text = f"not imported within {deadline_s + _START_S:g} s"
            fix = "do slow work on first use, not on import"
            yield wrong("The target can be loaded", text, fix)
            return
        text = f"not finished within {deadline_s:g} s, and no other thread could run meanwhile"
        yield wrong(what, text, "release Python's GIL while the code waits")
    except EOFError:
        child.join()
        how = describe_exit(child.exitcode or 0)
        fix = "the code must neither exit nor crash; env.processes isolates an environment"
        yield wrong(what, f"its process ended with {how}", fix)
    finally:
        # Kill its children first, since they can't be identified once the process is gone.
        kill_descendants(child.pid or 0)
        child.kill()
        child.join()
        receiver.close()


def _send_findings(
    findings: Callable[..., Iterator[Finding]], arguments: tuple[Any, ...], answer: Connection
) -> None:
    # Ctrl-C reaches the whole process group; ignore it here, since the parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Adopt orphaned grandchildren, so that they can be found and killed.
    adopt_orphans()
    try:
        for found in findings(*arguments, begun=answer.send):
            answer.send(found)
        answer.send(None)
    except Exception as error:
        answer.send(error)
    kill_descendants(os.getpid())
    answer.close()
    # Don't exit normally, because that would wait for hanging threads.
    os._exit(0)


def describe_failure(error: BaseException) -> str:
    """Describe why a check failed, including the location of an exception in the user's code."""
    own, text = users_location(error), message_of(error)
    if isinstance(error, AgentRLError):
        where = "" if error.__cause__ is None else users_location(error.__cause__)
        return f"{text}{'' if where in text else where}{known_members(error.__cause__)}"
    # A failed assertion in the user's code ends with its location; a check's is just its message.
    is_ours = not own or not describe_error(error).endswith(own)
    if isinstance(error, AssertionError) and is_ours:
        return text or "the check failed"
    if not own:
        return f"{describe_error(error)}{known_members(error)}"
    message = f": {text}" if text else ""
    return f"{type(error).__name__}{message}{own}{known_members(error)}"
