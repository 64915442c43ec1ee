"""Reserve GPUs for a job in Ray, card by card, and share its files with its nodes."""

from __future__ import annotations

import logging
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentrl.cluster.ask_nodes import ask_nodes
from agentrl.cluster.machine_resources import Space
from agentrl.cluster.node_discovery import find_nodes
from agentrl.cluster.node_files import NodeFiles
from agentrl.cluster.node_report import ENLARGE_SHM, WeightSpace, room
from agentrl.cluster.placement import Layout, Node, Slot
from agentrl.cluster.ray_actor_calls import on_node
from agentrl.errors import ClusterError, ConfigError, WorkerLost

log = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class SharedPath:
    """A file or folder on the nodes of a job."""

    path: Path
    copies: Mapping[str, Path]
    """Maps node ids to paths of copies; other nodes have the original under `path`."""

    def on(self, node: Node) -> Path:
        """Return the path on a node; raise WorkerLost if the node did not get it."""
        if self.copies and node.id not in self.copies:
            raise WorkerLost(f"node {node.name} died before it received {self.path.name}")
        return self.copies.get(node.id, self.path)


class Reservation:
    """Reserves the slots of a layout for the actors of its engines and ranks.

    Args:
        layout: layout planned for the cluster that this process has joined or, without Ray, for
            this machine, where this process then runs everything.
        deadline_s: seconds to wait for GPUs that other jobs still use.

    Raises:
        ClusterError: GPUs are in use, or a node is gone.
    """

    def __init__(self, layout: Layout, deadline_s: float) -> None:
        self.layout = layout
        self._users = Counter(s for s in (*layout.ranks, *layout.engines) if s.gpus)
        self._bundles: dict[Slot, tuple[Any, int]] = {}
        """Placement group and bundle index of each slot with GPUs."""
        self._groups: list[Any] = []
        self._files: NodeFiles | None = None
        self._weight_folders: dict[str, Path] = {}
        self._deadline_s = deadline_s
        if self._users and all(slot.node.id for slot in self._users):
            self._reserve([*self._users])

    def _reserve(self, slots: Sequence[Slot]) -> None:
        from ray.util.placement_group import placement_group, remove_placement_group

        # Labels pin each bundle to its node, whereas strategies such as PACK are only preferences.
        started = time.monotonic()
        group = placement_group(
            [{slot.node.resource: len(slot.gpus)} for slot in slots],
            bundle_label_selector=[{"ray.io/node-id": slot.node.id} for slot in slots],
        )
        if not group.wait(self._deadline_s):
            remove_placement_group(group)  # or it would take the GPUs once they are free
            cards = sum(len(slot.gpus) for slot in slots)
            waited = time.monotonic() - started
            raise ClusterError(
                f"the cluster did not give this job {cards} GPUs within {waited:.0f} s, because "
                "other jobs use them or a node is gone (see ray status). Wait for other jobs, "
                "lower rollout.actors and train.ranks, or raise rollout.start_deadline_s"
            )
        self._groups.append(group)
        self._bundles |= {slot: (group, index) for index, slot in enumerate(slots)}

    def find_again(self, node: Node) -> Node | None:
        """Find a node of the layout by id, else by address, because a restart changes the id."""
        found = {one.id: one for one in find_nodes("ray") if one.address == node.address}
        if node.id in found:
            return node
        planned = {one.id for one in self.layout.nodes}  # several nodes may share an address
        return next((one for one in found.values() if one.id not in planned), None)

    def readmit(self, old: Node, node: Node) -> None:
        """Move a lost node's engines and phones to the node that `find_again` returned."""
        if self._files is not None:
            self._files.add(node)
        layout = self.layout
        if node.id == old.id or old not in layout.nodes:
            return
        # The old bundles ended with the node's id, so reserve new ones.
        slots = {slot: replace(slot, node=node) for slot in layout.engines if slot.node == old}
        if with_gpus := [slot for slot in slots.values() if slot.gpus]:
            self._users |= Counter(with_gpus)
            self._reserve(with_gpus)
        self.layout = replace(
            layout,
            nodes=tuple(node if one == old else one for one in layout.nodes),
            engines=tuple(slots.get(slot, slot) for slot in layout.engines),
            phones=tuple(node if one == old else one for one in layout.phones),
        )

    def options(self, slot: Slot) -> dict[str, Any]:
        """Return the options of the Ray actor that uses a slot of the layout."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if slot not in self._bundles:
            return on_node(slot.node.id)
        group, index = self._bundles[slot]
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        # A rank and an engine on the same card share one bundle, with half of it each.
        share = len(slot.gpus) / self._users[slot]
        wanted: dict[str, Any] = {"resources": {slot.node.resource: share}}
        if slot.node.resource == "GPU":
            wanted = {"num_gpus": share}
        return {"num_cpus": 0, "scheduling_strategy": strategy, **wanted}

    @property
    def has_other_nodes(self) -> bool:
        """Return whether any engines, ranks or phones are on other nodes than this process."""
        return self._files_beyond(self.layout.nodes[0]) is not None

    def share(
        self,
        path: Path,
        source: Node | None = None,
        *,
        keep: bool = False,
        without_weights: Iterable[Node] | None = None,
    ) -> SharedPath:
        """Make a file or folder available on the nodes of all engines and ranks.

        Args:
            path: path of the file or folder.
            source: the node that has it; None for this process's node.
            keep: see `NodeFiles.share`.
            without_weights: share it with these nodes instead, and without its weights.
        """
        path, source = path.absolute(), source or self.layout.nodes[0]
        files = self._files_beyond(source)
        if files is None:
            return SharedPath(path, {})
        slots = (*self.layout.engines, *self.layout.ranks)
        nodes = (slot.node for slot in slots) if without_weights is None else without_weights
        to, weights = {node.id for node in nodes}, without_weights is None
        return SharedPath(path, files.share(path, source, keep=keep, to=to, weights=weights))

    def place_weights(self, needed: int, what: str) -> Path | None:
        """Find room for new weights; return rank 0's folder, or None for shared memory."""
        slots = (*self.layout.ranks[:1], *self.layout.engines)
        nodes = list(dict.fromkeys(slot.node for slot in slots))
        # Choose each node's folder once, since `NodeFiles` and rank 0 write all versions to it.
        for reply in ask_nodes(nodes, room, self._deadline_s):
            if reply.result is None:
                raise ClusterError(f"node {reply.node.name}: {reply.error}")
            folder = weights_folder(reply.node, reply.result, needed, what)
            if folder is not None:
                self._weight_folders[reply.node.id] = folder
        return self._weight_folders.get(nodes[0].id)

    def publishes_in_memory(self, node: Node) -> bool:
        """Return whether `place_weights` chose a node's shared memory for new weights."""
        return node.id not in self._weight_folders

    def mirror(self, folders: Mapping[Path, Sequence[str]]) -> dict[str, Path]:
        """Make files of this process's node available on all used nodes; see `NodeFiles.mirror`."""
        here = self.layout.nodes[0]
        files = self._files_beyond(here)
        return {} if files is None else files.mirror(folders, here, self._nodes_in_use())

    def forget(self, shared: SharedPath) -> None:
        """Remove the copies made by `share`."""
        copies = {n: path for n, path in shared.copies.items() if path != shared.path}
        if copies and self._files is not None:
            self._files.remove(copies)

    def bring_back(self, path: Path, node: Node, to: Path) -> None:
        """Move the files of another node's folder, if it exists, into a folder on this node."""
        files = self._files_beyond(self.layout.nodes[0])
        assert files is not None, "another node has engines or ranks"
        files.bring(path, node, self.layout.nodes[0], to)

    def nodes_without(self, folder: Path) -> set[str]:
        """Return the ids of the nodes that do not see a folder of this process's node."""
        here = self.layout.nodes[0]
        if (files := self._files_beyond(here)) is None:
            return set()
        # Write unique content, because a node may have a different folder with the same name.
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".seen-") as file:
            file.write(secrets.token_hex())
            file.flush()
            return files.without(Path(file.name), here)

    def _nodes_in_use(self) -> dict[str, Node]:
        """Return the nodes of engines, ranks and phones, by id."""
        slots = (*self.layout.engines, *self.layout.ranks)
        return {node.id: node for node in (*(slot.node for slot in slots), *self.layout.phones)}

    def _files_beyond(self, source: Node) -> NodeFiles | None:
        """Return the job's files on all nodes; None if the whole job is on this process's node."""
        here, users = self.layout.nodes[0], self._nodes_in_use()
        if source.id == here.id and users.keys() <= {here.id}:
            return None
        if self._files is None:
            nodes = [here, *users.values()]
            self._files = NodeFiles(nodes, self._deadline_s, self._weight_folders)
        return self._files

    def release(self) -> None:
        """Release the GPUs, killing actors that still use them; may be called twice."""
        files, self._files = self._files, None
        if files is not None:
            files.close()
        groups, self._groups = self._groups, []
        for group in groups:  # empty without Ray
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(group)


def weights_folder(node: Node, room: WeightSpace, needed: int, what: str) -> Path | None:
    """Return a folder for a node's new weights; None if they fit into its shared memory."""
    if room.shm is not None and room.shm.free >= needed:
        return None
    shm = "there is no /dev/shm" if room.shm is None else f"{_megabytes(room.shm)} in /dev/shm"
    detail = (
        f"{node.name}: {what} need {needed / 1e6:,.0f} MB; {shm}, "
        f"{_megabytes(room.temporary)} in {room.temporary_folder}"
    )
    if room.temporary.free < needed:
        raise ConfigError(f"{detail}. Free up space, or {ENLARGE_SHM}")
    if room.shm is not None:
        folder = room.temporary_folder
        log.warning(
            "%s; they are written to %s, which is slower. To avoid this, %s",
            detail,
            folder,
            ENLARGE_SHM,
        )
    return Path(room.temporary_folder)


def _megabytes(space: Space) -> str:
    return f"{space.free / 1e6:,.0f} MB are free"
