"""The nodes that a job can use, and the GPUs that Ray reserves for it, card by card."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from agentrl import accelerators
from agentrl.cluster import ray_cluster
from agentrl.cluster.placement import Layout, Node, Slot
from agentrl.errors import ClusterError


def find_nodes(launcher: str) -> list[Node]:
    """The nodes that a job can use, this machine first; joins a cluster that runs already.

    Args:
        launcher: `rollout.launcher`; `local` uses one GPU of this machine.

    Raises:
        ClusterError: the cluster cannot be joined.
    """
    ray = sys.modules.get("ray")
    joined = ray is not None and ray.is_initialized()
    if launcher == "local" or not (joined or os.environ.get("RAY_ADDRESS")):
        gpus = accelerators.count()
        return [
            Node(
                address="this machine",
                cpus=ray_cluster.cores(),
                gpus=min(gpus, 1) if launcher == "local" else gpus,
            )
        ]
    ray = ray_cluster.join_cluster()
    here = ray.get_runtime_context().get_node_id()
    found = [_node(one) for one in ray.nodes() if one["Alive"]]
    return sorted(found, key=lambda node: (node.id != here, node.address, node.id))


def _node(one: Mapping[str, Any]) -> Node:
    """One of `ray.nodes()`."""
    has = one["Resources"]
    resource = next((name for name in accelerators.RAY_RESOURCES if has.get(name)), "GPU")
    return Node(
        id=one["NodeID"],
        address=one["NodeManagerAddress"],
        cpus=int(has.get("CPU", 0)),
        gpus=int(has.get(resource, 0)),
        resource=resource,
    )


class Reservation:
    """The places of a layout, for the actors of its engines and ranks.

    Args:
        layout: planned for the nodes of the cluster that this process has joined; or, without
            Ray, for this machine, whose process then runs everything.
        deadline_s: for GPUs that other jobs still use.

    Raises:
        ClusterError: GPUs are in use, or a node is gone.
    """

    def __init__(self, layout: Layout, deadline_s: float) -> None:
        self.layout = layout
        self._users = Counter(s for s in (*layout.ranks, *layout.engines) if s.gpus)
        self._bundles = {slot: index for index, slot in enumerate(self._users)}
        self._group: Any = None
        if self._bundles and all(slot.node.id for slot in self._bundles):
            self._group = self._reserve(deadline_s)

    def _reserve(self, deadline_s: float) -> Any:
        from ray.util.placement_group import placement_group, remove_placement_group

        started = time.monotonic()
        group = placement_group(
            [{slot.node.resource: len(slot.gpus)} for slot in self._bundles],
            bundle_label_selector=[{"ray.io/node-id": slot.node.id} for slot in self._bundles],
        )
        if not group.wait(deadline_s):
            remove_placement_group(group)
            cards = sum(len(slot.gpus) for slot in self._bundles)
            waited = time.monotonic() - started
            raise ClusterError(
                f"the cluster did not give this job {cards} GPUs within {waited:.0f} s: other jobs "
                "use them, or a node is gone (ray status shows both). Wait for them, lower "
                "rollout.actors and train.ranks, or raise rollout.start_deadline_s"
            )
        return group

    def options(self, slot: Slot) -> dict[str, Any]:
        """Options of the Ray actor that uses a slot of the layout."""
        from ray.util.scheduling_strategies import (
            NodeAffinitySchedulingStrategy,
            PlacementGroupSchedulingStrategy,
        )

        if self._group is None or not slot.gpus:
            strategy: Any = NodeAffinitySchedulingStrategy(slot.node.id, soft=False)
            return {"num_cpus": 0, "scheduling_strategy": strategy}
        strategy = PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=self._bundles[slot]
        )
        share = len(slot.gpus) / self._users[slot]
        wanted: dict[str, Any] = {"resources": {slot.node.resource: share}}
        if slot.node.resource == "GPU":
            wanted = {"num_gpus": share}
        return {"num_cpus": 0, "scheduling_strategy": strategy, **wanted}

    def release(self) -> None:
        """Give the GPUs back; may be called twice. Actors that still use them are killed."""
        group, self._group = self._group, None
        if group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(group)
