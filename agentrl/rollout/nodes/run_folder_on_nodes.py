"""A run's folder for actors, including those on nodes that cannot access it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.cluster.placement import Node
from agentrl.cluster.ray_actor_calls import on_node
from agentrl.cluster.reservation import Reservation
from agentrl.replay.remote_recording import Parcel, Spool, SpoolReceiver

_DELIVERY_S = 60.0
"""Time limit for delivering one parcel, in seconds; the spool retries after it."""
_CLOSE_S = 20.0


@dataclass(slots=True, frozen=True)
class RecordedRun:
    """A run's folder, in the form passed to an actor."""

    path: Path
    receiver: Any = None
    """The actor that writes into the folder; None if the folder is directly accessible."""

    def open(self) -> OpenedRun:
        """Return the folder to record into, in this process."""
        return OpenedRun(self)


class OpenedRun:
    """A folder to record into: the run's own, or a spool that delivers its contents there."""

    def __init__(self, run: RecordedRun) -> None:
        self._receiver, self._id = run.receiver, uuid.uuid4().hex
        self._spool = None if run.receiver is None else Spool(self._deliver)
        self.folder = run.path if self._spool is None else self._spool.folder

    def _deliver(self, parcel: Parcel) -> None:
        # `ray.get` would warn in every thread of an actor with coroutines.
        self._receiver.apply.remote(self._id, parcel).future().result(_DELIVERY_S)

    @property
    def is_spooled(self) -> bool:
        """Whether recordings pass through a spool before they reach the run's folder."""
        return self._spool is not None

    def flush(self) -> None:
        """Wait until everything recorded so far is in the run's folder."""
        if self._spool is not None:
            self._spool.flush()

    def close(self) -> None:
        """Deliver the remaining recordings; may be called twice."""
        if self._spool is not None:
            self._spool.close(_CLOSE_S)
            self._spool = None


class ReceiverActor:
    """`SpoolReceiver` in its own process, on the node with the run's folder."""

    def __init__(self, run: Path) -> None:
        self._receiver = SpoolReceiver(run)

    def apply(self, spool: str, parcel: Parcel) -> None:
        """See `SpoolReceiver.apply`."""
        self._receiver.apply(spool, parcel)

    def close(self) -> None:
        """See `SpoolReceiver.close`."""
        self._receiver.close()


class RunOnNodes:
    """A run's folder for the actors of a job."""

    def __init__(self, run: Path | None, reservation: Reservation) -> None:
        self._run = None if run is None else run.absolute()
        self._reservation = reservation
        self._receiver: Any = None
        self._remote: set[str] = set()
        self.find_nodes()

    def find_nodes(self) -> None:
        """Find the nodes that can access the folder; call again after an engine changed nodes."""
        if self._run is not None:
            self._remote = self._reservation.nodes_without(self._run)
        if self._remote and self._receiver is None:
            import ray

            here = on_node(self._reservation.layout.nodes[0].id)
            self._receiver = ray.remote(ReceiverActor).options(**here).remote(self._run)

    def is_away(self, node: Node) -> bool:
        """Return whether a node cannot access the folder."""
        return node.id in self._remote

    def on(self, node: Node) -> RecordedRun | None:
        """Return the folder for an actor on a node."""
        if self._run is None:
            return None
        return RecordedRun(self._run, self._receiver if self.is_away(node) else None)

    def close(self) -> None:
        """End the receiver, after all recording actors have ended; may be called twice."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            import ray

            ray.wait([receiver.close.remote()], timeout=_CLOSE_S)
            ray.kill(receiver)
