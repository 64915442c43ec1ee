"""Start the rollouts of a job, in this process or in Ray actors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from agentrl.cluster import ray_cluster
from agentrl.cluster.placement import Layout, plan_layout
from agentrl.cluster.reservation import Reservation, find_nodes
from agentrl.config import Config
from agentrl.policies.engines.engine import TokenEngine
from agentrl.policies.open_model import engine_class, open_engine
from agentrl.rollout.nodes.phone_hosts import nodes_of_hosts
from agentrl.rollout.workers.rollout_actor import ActorStarter
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.rollout.workers.rollout_worker_group import RolloutWorkerGroup

AnyRollouts = RolloutWorker | RolloutWorkerGroup
"""Rollouts of the training loop, in this process or in Ray actors."""


def plan_job(config: Config, *, learns: bool, plays: bool = True) -> Layout:
    """Decide where the engines and ranks of a job run, by the nodes that it can use.

    Args:
        config: the job.
        learns: whether it has a learner.
        plays: whether a model plays, which takes engines.

    Raises:
        ConfigError: they do not fit.
        ClusterError: the cluster of RAY_ADDRESS cannot be joined.
    """
    rollout, gpus_per_engine = config.rollout, 0
    nodes = find_nodes(rollout.launcher)
    if plays:
        gpus_per_engine = engine_class(rollout).num_gpus(rollout.engine_kwargs)
    else:
        rollout = replace(rollout, actors=0, place="auto")
    layout = plan_layout(nodes, rollout, config.train if learns else None, gpus_per_engine)
    return replace(layout, phones=nodes_of_hosts(config.devices.hosts, nodes))


def reserve(config: Config, *, learns: bool = True, plays: bool = True) -> Reservation:
    """Start or join Ray if the job uses it, and reserve the GPUs that the job needs.

    Args:
        config: the job.
        learns: see `plan_job`.
        plays: see `plan_job`.

    Raises:
        ConfigError: Ray is not installed, or see `plan_job`.
        ClusterError: Ray did not start, or see `Reservation`.
    """
    if config.rollout.launcher == "ray":
        ray_cluster.join_cluster()
    layout = plan_job(config, learns=learns, plays=plays)
    return Reservation(layout, config.rollout.start_deadline_s)


async def open_rollouts(
    config: Config,
    folder: Path | None,
    run: Path | None,
    version: int = 0,
    reservation: Reservation | None = None,
) -> AnyRollouts:
    """Start rollouts with the launcher of the configuration.

    Args:
        config: the job; if GPUs are reserved for it, as `Layout.applied_to` returns it.
        folder: model folder; None if only scripted players or a server's model play, which
            happens in this process, except on the phones of `devices.hosts`.
        run: the run's folder; None records nothing.
        version: version of the weights in `folder`, in training steps.
        reservation: where the engines run; None reserves for them alone.

    Raises:
        ConfigError: Ray is not installed, or a phone cannot be reached.
        ClusterError: see `reserve`.
    """
    rollouts: AnyRollouts
    if config.rollout.launcher == "local" or (folder is None and not config.devices.hosts):
        rollouts = RolloutWorker(config, folder, run, version=version)
    else:
        owns_it = reservation is None
        if reservation is None:
            reservation = reserve(config, learns=False, plays=folder is not None)
        if reservation.layout.engines:
            config = reservation.layout.applied_to(config)
        ray_cluster.join_cluster()
        starter = ActorStarter(config, folder, run, version, reservation, owns_reservation=owns_it)
        rollouts = RolloutWorkerGroup(starter)
    try:
        await rollouts.start()
    except BaseException:
        await rollouts.close()
        raise
    return rollouts


@asynccontextmanager
async def open_engines(config: Config, folder: Path) -> AsyncIterator[tuple[TokenEngine, int]]:
    """Start only the engines of a job; in Ray actors, those that die are replaced.

    Args:
        config: the job; its environment is not opened.
        folder: model folder.

    Yields:
        All engines as one, and how many there are.

    Raises:
        ConfigError: Ray is not installed, or an engine rejects its settings.
        ClusterError: see `reserve`.
        EngineError: an engine did not start.
    """
    if config.rollout.launcher == "local":
        engine = open_engine(config.rollout, config.model, folder, seed=config.seed)
        assert isinstance(engine, TokenEngine), "it has a model folder"
        try:
            await engine.start()
            yield engine, 1
        finally:
            await engine.close()
        return
    reservation = reserve(config, learns=False)
    config = reservation.layout.applied_to(config)
    group = RolloutWorkerGroup(
        ActorStarter(config, folder, None, 0, reservation, owns_reservation=True, only_engines=True)
    )
    try:
        await group.start()
        await group.start_engine()
        yield group.borrow(), group.num_engines
    finally:
        await group.close()
        ray_cluster.leave_cluster()
