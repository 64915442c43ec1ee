"""Start the rollouts of a job, in this process or in Ray actors."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from agentrl.cluster import ray_cluster
from agentrl.cluster.node_discovery import find_nodes
from agentrl.cluster.placement import Layout, plan_layout
from agentrl.cluster.reservation import Reservation
from agentrl.config import RolloutConfig, TrainConfig
from agentrl.policies.engines.engine import TokenEngine
from agentrl.policies.open_engine import engine_class, open_engine
from agentrl.rollout.nodes.phone_hosts import nodes_of_hosts
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.workers.actor_starter import ActorStarter
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.rollout.workers.rollout_worker_group import RolloutWorkerGroup
from agentrl.rollout.workers.rollouts_interface import Rollouts


def layout_of_job(
    rollout: RolloutConfig,
    train: TrainConfig | None,
    hosts: Collection[str] = (),
    *,
    plays: bool = True,
) -> Layout:
    """Assign the engines and ranks of a job to the nodes that it can use.

    Args:
        rollout: the job's `rollout` section, which defines the engines.
        train: the job's `train` section; None for a job without a learner.
        hosts: the nodes with phones (`devices.hosts`).
        plays: whether a model plays, which requires engines.

    Raises:
        ConfigError: the engines and ranks do not fit on the nodes.
        ClusterError: the cluster of RAY_ADDRESS cannot be joined.
    """
    gpus_per_engine = 0
    nodes = find_nodes(rollout.launcher)
    if plays:
        gpus_per_engine = engine_class(rollout).num_gpus(rollout.engine_kwargs)
    else:
        rollout = replace(rollout, actors=0, place="auto")
    layout = plan_layout(nodes, rollout, train, gpus_per_engine)
    return replace(layout, phones=nodes_of_hosts(hosts, nodes))


def reserve(
    rollout: RolloutConfig,
    train: TrainConfig | None,
    hosts: Collection[str] = (),
    *,
    plays: bool = True,
) -> Reservation:
    """Start or join Ray if the job uses it, and reserve the GPUs that the job needs.

    Raises:
        ConfigError: Ray is not installed, or see `layout_of_job`.
        ClusterError: Ray did not start, or see `Reservation`.
    """
    if rollout.launcher == "ray":
        ray_cluster.join_cluster()
    layout = layout_of_job(rollout, train, hosts, plays=plays)
    return Reservation(layout, rollout.start_deadline_s)


async def open_rollouts(
    plan: RolloutPlan,
    folder: Path | None,
    run: Path | None,
    version: int = 0,
    reservation: Reservation | None = None,
) -> Rollouts:
    """Start rollouts with the configured launcher.

    Args:
        plan: what to play; if GPUs are reserved for it, the result of `placed`.
        folder: model folder; None if only scripted players or a server's model play, which
            happens in this process, except on the phones of `devices.hosts`.
        run: the run's folder; None records nothing.
        version: version of the weights in `folder`, in training steps.
        reservation: where the engines run; None makes a reservation for the engines only.

    Raises:
        ConfigError: Ray is not installed, or a phone cannot be reached.
        ClusterError: see `reserve`.
    """
    rollouts: Rollouts
    rollout, hosts = plan.settings.rollout, plan.settings.devices.hosts
    if rollout.launcher == "local" or (folder is None and not hosts):
        rollouts = RolloutWorker(plan, folder, run, version=version)
    else:
        owns_it = reservation is None
        if reservation is None:
            reservation = reserve(rollout, None, hosts, plays=folder is not None)
        if reservation.layout.engines:
            plan = plan.placed(reservation.layout)
        ray_cluster.join_cluster()
        starter = ActorStarter(plan, folder, run, version, reservation, owns_reservation=owns_it)
        rollouts = RolloutWorkerGroup(starter)
    # A half-started group already holds phones, GPUs and processes.
    try:
        await rollouts.start()
    except BaseException:
        await rollouts.close()
        raise
    return rollouts


@asynccontextmanager
async def open_engines(plan: RolloutPlan, folder: Path) -> AsyncIterator[tuple[TokenEngine, int]]:
    """Start only the engines of a job; engines in Ray actors are replaced if they die.

    Yields:
        A single engine that combines all, and their number.

    Raises:
        ConfigError: Ray is not installed, or an engine rejects its settings.
        ClusterError: see `reserve`.
        EngineError: an engine did not start.
    """
    settings = plan.settings
    if settings.rollout.launcher == "local":
        engine = open_engine(settings.rollout, settings.model, folder, seed=settings.seed)
        assert isinstance(engine, TokenEngine), "it has a model folder"
        try:
            await engine.start()
            yield engine, 1
        finally:
            await engine.close()
        return
    reservation = reserve(settings.rollout, None)
    plan = plan.placed(reservation.layout)
    group = RolloutWorkerGroup(
        ActorStarter(plan, folder, None, 0, reservation, owns_reservation=True, only_engines=True)
    )
    try:
        await group.start()
        await group.engines.start()
        yield group.borrow(), group.engines.count
    finally:
        await group.close()
        ray_cluster.leave_cluster()
