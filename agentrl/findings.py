"""Results of the checks of `agentrl doctor`, `devices doctor` and `agentrl check`.

Checks of foreign code run within a deadline, or in a process of their own.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Literal

from agentrl.child_process import adopt_orphans, describe_exit, kill_descendants

State = Literal["ok", "note", "wrong"]
"""`note` is worth knowing; `wrong` must be fixed before use."""
_LOADING = "loading"
_TICK_S = 1.0
_START_S = 30.0
"""How long the process may take to start, in addition to the deadline of a check."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Finding:
    """The result of one check."""

    what: str
    state: State
    detail: str
    fix: str = ""
    """Suggested fix; empty if none is needed."""


def ok(what: str, detail: str) -> Finding:
    """A check that passed."""
    return Finding(what=what, state="ok", detail=detail)


def note(what: str, detail: str, fix: str) -> Finding:
    """A remark that does not prevent use."""
    return Finding(what=what, state="note", detail=detail, fix=fix)


def wrong(what: str, detail: str, fix: str) -> Finding:
    """A problem that must be fixed."""
    return Finding(what=what, state="wrong", detail=detail, fix=fix)


def within_deadline(
    deadline_s: float,
    what: str,
    check: Callable[[], Finding],
    failed: Callable[[BaseException], Finding],
    fix: str = "no call may block",
) -> Finding:
    """The finding of a check, or that it took too long; a thread that hangs is abandoned.

    Args:
        deadline_s: of the check.
        what: names the check.
        check: returns a finding, or raises.
        failed: the finding for what it raised.
        fix: what to do if it took too long.
    """
    found: list[Finding] = []

    def work() -> None:
        try:
            found.append(check())
        except BaseException as error:
            found.append(failed(error))

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(deadline_s)
    late = wrong(what, f"not finished within {deadline_s:g} s", fix)
    return found[0] if found else late


def findings_in_process(
    findings: Callable[..., Iterator[Finding]],
    arguments: tuple[Any, ...],
    deadline_s: float,
    waiting: Callable[[str, float], None] = lambda what, seconds: None,
) -> Iterator[Finding]:
    """The findings of a function that runs in another process.

    So code that ends its process, or never releases the GIL, is a finding too. Everything that it
    has started ends with that process.

    Args:
        findings: a function of a module, which yields findings; its argument `begun` is called with
            the name of each check that begins.
        arguments: its other arguments; they are pickled.
        deadline_s: of each finding.
        waiting: called again and again with the name of the check that runs, and its seconds.

    Raises:
        Exception: what the function itself raised.
    """
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_findings, args=(findings, arguments, sender))
    child.start()
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
            yield wrong("It can be loaded", text, "move slow work from the import to the first use")
            return
        text = f"not finished within {deadline_s:g} s, and no other thread could run meanwhile"
        yield wrong(what, text, "it must release Python's GIL while it waits")
    except EOFError:
        child.join()
        how = describe_exit(child.exitcode or 0)
        fix = "it must neither exit nor crash; env.processes limits the damage of an environment"
        yield wrong(what, f"its process ended with {how}", fix)
    finally:
        kill_descendants(child.pid or 0)
        child.kill()
        child.join()
        receiver.close()


def _send_findings(
    findings: Callable[..., Iterator[Finding]], arguments: tuple[Any, ...], answer: Connection
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    adopt_orphans()
    try:
        for found in findings(*arguments, begun=answer.send):
            answer.send(found)
        answer.send(None)
    except Exception as error:
        answer.send(error)
    kill_descendants(os.getpid())
    answer.close()
    os._exit(0)  # do not wait for threads that hang
