"""The limit of files that a process may have open, compared with what a job opens."""

import resource

from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError

_LEAST = {"local": 128, "ray": 256}
"""Open files below which a job fails at its start, by `rollout.launcher`."""
_PLENTY = 8192
"""Open files that are enough for any job."""


def check_open_files(rollout: RolloutConfig) -> None:
    """Raise the soft limit, which many systems set far below the hard one.

    Raises:
        ConfigError: the hard limit is too low for any job.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited, least = resource.RLIM_INFINITY, _LEAST[rollout.launcher]
    if hard != unlimited and hard < least:
        raise ConfigError(
            f"a process may have only {hard:,} files open here (ulimit -n), and a job with "
            f"rollout.launcher={rollout.launcher} needs at least {least}: run "
            f"`ulimit -n {_PLENTY}` as an administrator, or raise nofile in "
            "/etc/security/limits.conf"
        )
    wanted = _PLENTY if hard == unlimited else min(hard, _PLENTY)
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
