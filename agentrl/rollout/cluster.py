"""The Ray cluster that the actors of a run live in."""

import logging
import os
import sys
from typing import Any

from agentrl.errors import ConfigError

log = logging.getLogger(__name__)


def join_cluster() -> Any:
    """Join the cluster of RAY_ADDRESS, or start one on this machine; returns the ray module.

    Raises:
        ConfigError: Ray is not installed.
    """
    # Ray's own report to its makers is not ours to send.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray makes its workers yield to everything else, also to the phones they wait for.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "rollout.launcher=ray: Ray is not installed. Install it with pip install "
            "'agentrl[ray]', or set rollout.launcher=local."
        ) from None
    if not ray.is_initialized():
        ray.init(
            address=os.environ.get("RAY_ADDRESS"),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    return ray


def leave_cluster() -> None:
    """Disconnect, and end the cluster if `join_cluster` started it; else nothing."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()


def gpus_per_actor(rollout_actors: int, learner_ranks: int) -> float:
    """The share of a GPU that each actor asks Ray for.

    One GPU each where there are enough; otherwise engines and learners share what is there,
    and take turns; 0 on a cluster without GPUs.
    """
    import ray

    total = float(ray.cluster_resources().get("GPU", 0))
    wanted = rollout_actors + learner_ranks
    if total >= wanted:
        return 1.0
    return total / wanted
