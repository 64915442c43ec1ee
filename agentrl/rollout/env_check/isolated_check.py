"""Check an environment in another process, which it may crash or block."""

import os
import signal
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection

from agentrl.config import EnvConfig
from agentrl.findings import Finding, wrong
from agentrl.rollout.env_check import check_environment

_SPARE_S = 30.0
"""For the process to start, in addition to the deadline of a check."""


def check_environment_isolated(
    config: EnvConfig, steps: int = 50, deadline_s: float = 120.0
) -> Iterator[Finding]:
    """As `check_environment`; also finds one that ends its process or never releases the GIL."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_send_findings, args=(config, steps, deadline_s, theirs))
    child.start()
    theirs.close()
    last = "made"
    try:
        while ours.poll(deadline_s + _SPARE_S):
            found: Finding | Exception | None = ours.recv()
            if found is None:
                return
            if isinstance(found, Exception):
                raise found
            yield found
            last = found.what
        what = f"no answer within {deadline_s:g} s, and no other thread could run meanwhile"
        yield wrong(f"after {last}", what, "it must release Python's lock (GIL)")
    except EOFError:
        child.join()
        what = f"it ended its process with code {child.exitcode}"
        yield wrong(f"after {last}", what, "it must not end the process")
    finally:
        child.kill()
        child.join()
        ours.close()


def _send_findings(config: EnvConfig, steps: int, deadline_s: float, answer: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    try:
        for found in check_environment(config, steps, deadline_s):
            answer.send(found)
        answer.send(None)
    except Exception as error:
        answer.send(error)
    answer.close()
    os._exit(0)  # do not wait for threads that hang
