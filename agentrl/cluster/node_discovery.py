"""The nodes that a job can use."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from agentrl import accelerators
from agentrl.cluster import ray_cluster
from agentrl.cluster.machine_resources import cores
from agentrl.cluster.placement import Node


def find_nodes(launcher: str) -> list[Node]:
    """List the nodes that a job can use, this machine first; join a running cluster, if any.

    Args:
        launcher: `rollout.launcher`; `local` uses one GPU of this machine.
    """
    ray = sys.modules.get("ray")
    joined = ray is not None and ray.is_initialized()
    if launcher == "local" or not (joined or os.environ.get("RAY_ADDRESS")):
        gpus = accelerators.count()
        return [
            Node(
                address="this machine",
                cpus=cores(),
                gpus=min(gpus, 1) if launcher == "local" else gpus,
            )
        ]
    ray = ray_cluster.join_cluster()
    here = ray.get_runtime_context().get_node_id()
    alive = [one for one in ray.nodes() if one["Alive"]]
    # Several nodes on one machine, as in tests, share an address, which then identifies no node.
    counts = Counter(one["NodeManagerAddress"] for one in alive)
    found = [_node(one, shared=counts[one["NodeManagerAddress"]] > 1) for one in alive]
    return sorted(found, key=lambda node: (node.id != here, node.address, node.id))


def _node(one: Mapping[str, Any], *, shared: bool) -> Node:
    """Convert an entry of `ray.nodes()`."""
    has = one["Resources"]
    resource = next((name for name in accelerators.RAY_RESOURCES if has.get(name)), "GPU")
    return Node(
        id=one["NodeID"],
        address=one["NodeManagerAddress"],
        hostname=one["NodeManagerHostname"],
        cpus=int(has.get("CPU", 0)),
        gpus=int(has.get(resource, 0)),
        resource=resource,
        shares_address=shared,
    )
