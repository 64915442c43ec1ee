"""The limit of open files is raised if it can be, or reported before any work starts."""

import resource
import subprocess
import sys

PROGRAM = """
import resource
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError
from agentrl.training.plan.job_plan import check_open_files
try:
    check_open_files(RolloutConfig(launcher="local", concurrency=8))
    print("allowed", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except ConfigError as error:
    print(error)
"""


def under_limit(soft: int, hard: int) -> str:
    """What the check says in a process with these limits."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def test_a_soft_limit_is_raised() -> None:
    assert under_limit(64, 512) == "allowed 512\n"


def test_a_hard_limit_that_is_too_low_says_what_it_must_be() -> None:
    said = under_limit(64, 64)
    assert "at most 64 open files on this machine (ulimit -n)" in said
    assert "needs at least 128" in said
