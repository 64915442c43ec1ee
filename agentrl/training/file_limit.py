"""The limit of files that a process may have open, compared with what a job opens."""

import resource

from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError

_LOCAL, _RAY = 256, 1024
"""Open files of a job in this process, and of one with Ray's processes, which inherit the limit."""
_PER_EPISODE = 4
"""Open files of an episode in flight: sockets of a phone or server, and recordings."""


def check_open_files(rollout: RolloutConfig) -> None:
    """Raise the soft limit if it is too low, as many systems set it far below the hard one.

    Raises:
        ConfigError: the hard limit is too low for the job.
    """
    needed = (_LOCAL if rollout.launcher == "local" else _RAY) + _PER_EPISODE * rollout.concurrency
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return
    if hard != unlimited and hard < needed:
        raise ConfigError(
            f"a process may have only {hard:,} files open here (ulimit -n), and "
            f"rollout.launcher={rollout.launcher} with rollout.concurrency={rollout.concurrency} "
            f"needs {needed:,}: run `ulimit -n {needed}` as a user who may raise it, or set nofile "
            "in /etc/security/limits.conf"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
