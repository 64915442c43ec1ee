"""Placement and calls of Ray actors: deadlines, and short reasons for lost ones."""

import asyncio
from typing import Any

from agentrl.errors import WorkerLost


async def await_result(reference: Any, who: str, deadline_s: float | None) -> Any:
    """Wait for the result of an actor call; without a deadline, until the actor dies.

    Raises:
        WorkerLost: the actor died, or did not answer in time.
        Exception: raised by the call.
    """
    import ray.exceptions

    try:
        async with asyncio.timeout(deadline_s):
            return await asyncio.wrap_future(reference.future())
    except ray.exceptions.RayTaskError as error:
        # Raise the actor's original exception.
        raise error.cause from None
    except ray.exceptions.RayError as error:
        # The actor, its node or the result was lost.
        raise WorkerLost(f"{who} died: {short_reason(error)}") from None
    except TimeoutError:
        raise WorkerLost(f"{who} did not answer within {deadline_s:g} s") from None


_REASONS = {
    "its node has died": "its node stopped, or lost its connection to the cluster",
    "node specified via NodeAffinitySchedulingStrategy doesn't exist": (
        "its node is no longer part of the cluster"
    ),
    "running low on memory": "Ray ended it because its node was almost out of memory",
    "is unavailable: ": "the connection to its process was lost",
    "worker process has died": "its process crashed or was killed",
    "killed by `ray.kill`": "it was stopped",
}
"""Maps parts of Ray's messages to short reasons."""


def short_reason(error: Exception) -> str:
    """Return a short reason for a failed call, since Ray's messages have up to a dozen lines."""
    text = str(error)
    known = (reason for part, reason in _REASONS.items() if part in text)
    return next(known, text.rpartition("\n")[2].strip())


def on_node(node_id: str) -> dict[str, Any]:
    """Return the options of a Ray actor that runs on a node and needs no GPU."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return {"num_cpus": 0, "scheduling_strategy": strategy}
