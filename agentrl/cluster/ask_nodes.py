"""Run a function on every node of a cluster within a deadline."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from agentrl import accelerators
from agentrl.cluster.node_report import Clock
from agentrl.cluster.placement import Node
from agentrl.cluster.ray_actor_calls import on_node, short_reason

_CLOCK_QUESTIONS = 5
_OF_DEADLINE = 0.8
"""Fraction of a deadline given to a node's own processes, so that it replies even if they hang."""
_Result = TypeVar("_Result")


@dataclass(slots=True, kw_only=True, frozen=True)
class NodeReply(Generic[_Result]):
    """A node's result, or the reason why there is none."""

    node: Node
    result: _Result | None = None
    error: str = ""
    """Reason why there is no result."""
    clock: Clock | None = None
    """Offset of the node's clock; None for the node that asks."""


def ask_nodes(
    nodes: Sequence[Node],
    function: Callable[[], _Result] | Sequence[Callable[[], _Result]],
    deadline_s: float,
) -> list[NodeReply[_Result]]:
    """Call a function on every node at the same time.

    Args:
        nodes: nodes from `find_nodes`, this machine first; without Ray, the function is called
            directly.
        function: a function from a module that all nodes have, or a partial of it; or a sequence
            with one function per node.
        deadline_s: deadline for all nodes together.

    Returns:
        One reply per node, in the same order.
    """
    ray = sys.modules.get("ray")
    calls = [function] * len(nodes) if callable(function) else function
    asked = list(zip(nodes, calls, strict=True))
    if ray is None or not all(node.id for node in nodes):
        return [NodeReply(node=node, result=call()) for node, call in asked]
    # Ask all nodes before waiting for the first reply.
    ends = time.monotonic() + deadline_s
    references = [_on(ray, node, call) for node, call in asked]
    ray.wait(references, num_returns=len(references), timeout=deadline_s)
    answers = []
    for number, (node, reference) in enumerate(zip(nodes, references, strict=True)):
        answer = _result(ray, node, reference, deadline_s)
        if number and not answer.error:
            clock = _clock(ray, node, ends - time.monotonic())
            answer = NodeReply(node=node, result=answer.result, clock=clock)
        answers.append(answer)
    return answers


def smallest_gpu(nodes: Sequence[Node], deadline_s: float) -> int | None:
    """Return the memory in bytes of the nodes' smallest accelerator; None if unknown."""
    examine = partial(accelerators.of_machine, _OF_DEADLINE * deadline_s)
    try:
        answers = ask_nodes(nodes, examine, deadline_s)
    except RuntimeError:  # this machine could not list its devices
        return None
    found = set[int]()
    for answer in answers:
        cards = answer.result.cards if answer.result else ()
        sizes = {memory for _, memory in cards if memory}
        # If Ray counts more cards, some don't exist; if it counts fewer, the job can't use all.
        misses = answer.node.gpus - len(cards)
        if not sizes or misses > 0 or (misses < 0 and len(sizes) > 1):
            return None
        found |= sizes
    return min(found, default=None)


def _on(ray: Any, node: Node, function: Callable[[], Any]) -> Any:
    """Start a call on a node without claiming its resources; return the reference."""

    def call() -> Any:  # Ray takes functions, not partials
        return function()

    task = ray.remote(max_retries=0, **on_node(node.id))(call)
    return task.remote()


def _result(ray: Any, node: Node, reference: Any, deadline_s: float) -> NodeReply[Any]:
    from ray.exceptions import GetTimeoutError

    try:
        return NodeReply(node=node, result=ray.get(reference, timeout=0))
    except GetTimeoutError:
        ray.cancel(reference, force=True)
        return NodeReply(node=node, error=f"no answer within {deadline_s:g} s")
    except Exception as error:  # also raised by the function, or by importing it there
        return NodeReply(node=node, error=short_reason(error))


def _clock(ray: Any, node: Node, deadline_s: float) -> Clock | None:
    """Measure the clock several times in a running process; return the most precise result."""
    from ray.exceptions import RayError

    ends = time.monotonic() + max(deadline_s, 1.0)
    found = []
    for _ in range(_CLOCK_QUESTIONS):
        sent = time.time()
        try:
            there = ray.get(_on(ray, node, time.time), timeout=max(ends - time.monotonic(), 0.1))
        except RayError:
            break
        found.append(Clock.measured(sent, there, time.time()))
    return min(found, key=lambda one: one.bound_s, default=None)
