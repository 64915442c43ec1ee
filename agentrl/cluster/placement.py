"""Place a job's engines and learner ranks, before any of them starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.text.formatting import pluralize

if TYPE_CHECKING:
    from agentrl.config import RolloutConfig, TrainConfig


@dataclass(slots=True, kw_only=True, frozen=True)
class Node:
    """A machine of the cluster."""

    address: str
    """The node's IP address, or a descriptive name if Ray is not running."""
    cpus: int
    gpus: int = 0
    """Number of accelerators of any vendor."""
    id: str = ""
    """Ray's id; empty if Ray is not running."""
    hostname: str = ""
    resource: str = "GPU"
    """Ray's name for its accelerators."""
    shares_address: bool = False
    """Whether another node of the cluster has the same address."""

    @property
    def name(self) -> str:
        """The node's address, with its id if another node has the same address."""
        return f"{self.address}-{self.id[:8]}" if self.shares_address else self.address


@dataclass(slots=True, kw_only=True, frozen=True)
class Slot:
    """The node and GPUs of an engine or rank."""

    node: Node
    gpus: tuple[int, ...] = ()
    """GPU numbers of the slot, counted from 0 on each node; empty if it uses no GPU."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Layout:
    """The slots of all engines and ranks."""

    nodes: tuple[Node, ...]
    """All nodes of the cluster, in the order in which they are filled."""
    engines: tuple[Slot, ...]
    ranks: tuple[Slot, ...]
    phones: tuple[Node, ...] = ()
    """The nodes named in `devices.hosts`, in that order."""

    @property
    def together(self) -> bool:
        """True if each engine shares its GPU with a rank."""
        return any(slot.gpus for slot in self.ranks) and self.engines == self.ranks

    @property
    def apart(self) -> bool:
        """True if no engine shares a GPU with a rank."""
        return not {*self.engines} & {slot for slot in self.ranks if slot.gpus}

    @property
    def num_unused_gpus(self) -> int:
        """The number of GPUs with neither an engine nor a rank."""
        slots = (*self.engines, *self.ranks)
        used = {(slot.node, gpu) for slot in slots for gpu in slot.gpus}
        return sum(node.gpus for node in self.nodes) - len(used)

    @property
    def num_nodes(self) -> int:
        """The number of nodes with an engine or a rank."""
        return len({slot.node for slot in (*self.engines, *self.ranks)})

    def applied_to(
        self, rollout: RolloutConfig, train: TrainConfig
    ) -> tuple[RolloutConfig, TrainConfig]:
        """Return the sections with the planned numbers of engines and ranks and `rollout.place`."""
        if self.engines:  # without engines, these settings do not matter
            rollout = replace(rollout, actors=len(self.engines))
        if self.engines and any(slot.gpus for slot in self.ranks):
            rollout = replace(rollout, place="together" if self.together else "apart")
        if self.ranks:
            train = replace(train, ranks=len(self.ranks))
        return rollout, train

    def describe(self) -> dict[str, Any]:
        """Describe the processes on each GPU, or on each node without GPUs, for `--dry-run`."""
        what: dict[tuple[Node, int | None], list[str]] = {}
        for kind, slots in (("rank", self.ranks), ("engine", self.engines)):
            for number, slot in enumerate(slots):
                for gpu in slot.gpus or (None,):
                    what.setdefault((slot.node, gpu), []).append(f"{kind} {number}")
        for node in self.phones:
            what.setdefault((node, None), []).append("phones")
        found: dict[str, Any] = {}
        for node in self.nodes:
            on_node = ", ".join(what.get((node, None), ()))
            gpus = {g: ", ".join(what.get((node, g), ["unused"])) for g in range(node.gpus)}
            found[node.name] = (
                {f"{node.resource} {gpu}": user for gpu, user in gpus.items()}
                | ({"no GPU": on_node} if on_node else {})
                if gpus
                else on_node or "unused"
            )
        return found


def plan_layout(
    nodes: Sequence[Node],
    rollout: RolloutConfig,
    train: TrainConfig | None,
    gpus_per_engine: int = 1,
) -> Layout:
    """Decide where engines and ranks run.

    Args:
        nodes: the cluster's nodes, in the order in which to fill them.
        rollout: section with the number of engines, and whether they share GPUs with ranks.
        train: section with the number of ranks; None without a learner.
        gpus_per_engine: GPUs that an engine needs, all on one node, if the cluster has any; 0 for
            a server elsewhere.

    Raises:
        ConfigError: the engines and ranks do not fit.
    """
    with_gpus = [node for node in nodes if node.gpus]
    if not with_gpus or not (gpus_per_engine or train):
        return _without_gpus(nodes, rollout, train, gpus_per_engine)
    plan = _Plan(with_gpus, rollout, train, gpus_per_engine)
    engines, ranks = plan.place()
    if not gpus_per_engine:
        engines = _spread(plan.num_engines, nodes)
    return Layout(nodes=tuple(nodes), engines=engines, ranks=ranks)


def unused_gpus(
    layout: Layout, rollout: RolloutConfig, train: TrainConfig | None, gpus_per_engine: int
) -> str | None:
    """Warn about GPUs that a layout leaves unused, and suggest settings that use more of them.

    Args:
        layout: result of `plan_layout` for the other arguments.
        rollout: see `plan_layout`.
        train: see `plan_layout`.
        gpus_per_engine: see `plan_layout`.

    Returns:
        The warning; None if all GPUs are used, or the job uses none.
    """
    total, unused = sum(node.gpus for node in layout.nodes), layout.num_unused_gpus
    if not unused or unused == total:
        return None
    said = f"{unused} of {pluralize(total, 'GPU')} are unused"
    candidates = _alternatives(layout.nodes, rollout, train, gpus_per_engine)
    best = min(candidates, key=lambda one: one.num_unused_gpus, default=layout)
    if best.num_unused_gpus >= unused:
        return f"{said}, and no other numbers of engines and ranks would use more"
    settings = [f"rollout.actors={len(best.engines)}"]
    if train is not None:
        settings.append(f"train.ranks={len(best.ranks)}")
        settings.append(f"rollout.place={'together' if best.together else 'apart'}")
    return f"{said}; {' '.join(settings)} would use {total - best.num_unused_gpus}"


def _alternatives(
    nodes: Sequence[Node], rollout: RolloutConfig, train: TrainConfig | None, gpus_per_engine: int
) -> Iterator[Layout]:
    """Yield layouts with other numbers of engines and ranks, starting with shared GPUs."""
    if train is None:
        yield plan_layout(nodes, replace(rollout, actors="auto"), None, gpus_per_engine)
        return
    total = sum(node.gpus for node in nodes)
    automatic = [replace(train, ranks="auto")]
    exact = [replace(train, ranks=n) for n in range(0, total + 1, train.ranks_multiple) if n]
    together = replace(rollout, actors="auto", place="together")
    apart = replace(rollout, actors="auto", place="apart")
    for wanted, choices in ((together, automatic), (apart, automatic + exact)):
        for learner in choices:
            with suppress(ConfigError):  # these numbers do not fit
                yield plan_layout(nodes, wanted, learner, gpus_per_engine)


def _without_gpus(
    nodes: Sequence[Node],
    rollout: RolloutConfig,
    train: TrainConfig | None,
    gpus_per_engine: int,
) -> Layout:
    """Spread engines and ranks over nodes; `auto` means one engine per node and a single rank."""
    if rollout.place != "auto":
        raise ConfigError(
            f"rollout.place={rollout.place}: has no effect without GPUs, since it decides which "
            "GPUs engines and ranks use; remove it"
        )
    engines = rollout.actors
    if isinstance(engines, str):
        engines = len(nodes) if gpus_per_engine else 1
    ranks = 0
    if train is not None:
        ranks = train.ranks_multiple if isinstance(train.ranks, str) else train.ranks
    cores = sum(node.cpus for node in nodes)
    if ranks > max(2, cores):
        raise ConfigError(
            f"train.ranks={ranks}: without a GPU, ranks share the {cores} cores of "
            f"{_list(node.name for node in nodes)}; set train.ranks={max(2, cores)} or fewer"
        )
    return Layout(nodes=tuple(nodes), engines=_spread(engines, nodes), ranks=_spread(ranks, nodes))


def _spread(count: int, nodes: Sequence[Node]) -> tuple[Slot, ...]:
    """Spread slots evenly over the nodes, keeping neighbors on the same node."""
    return tuple(Slot(node=nodes[number * len(nodes) // count]) for number in range(count))


def node_named(name: str, nodes: Sequence[Node], remedy: str = "") -> Node:
    """Find a node by its address, hostname or id; the first eight digits of an id suffice.

    Args:
        name: address, hostname or id.
        nodes: nodes of the cluster.
        remedy: advice for the message if no node has this name.

    Raises:
        ConfigError: no node, or more than one, has this name.
    """
    found = [
        node
        for node in nodes
        if name in (node.address, node.hostname) or (len(name) >= 8 and node.id.startswith(name))
    ]
    if len(found) == 1:
        return found[0]
    known = _list(f"{n.address} ({', '.join(filter(None, (n.hostname, n.id[:8])))})" for n in nodes)
    if not found:
        raise ConfigError(f"{name} is not a node of the cluster, which has {known}{remedy}")
    raise ConfigError(f"{name} matches {len(found)} nodes; use an id: {known}")


class _Plan:
    """Places engines and ranks on GPUs."""

    def __init__(
        self,
        nodes: Sequence[Node],
        rollout: RolloutConfig,
        train: TrainConfig | None,
        gpus_per_engine: int,
    ) -> None:
        self._nodes, self._each = nodes, gpus_per_engine
        self._rollout, self._train = rollout, train
        self._total = sum(node.gpus for node in nodes)
        self._engines = None if isinstance(rollout.actors, str) else rollout.actors
        self._ranks: int | None = 0
        self._multiple = 1
        if train is not None:
            self._multiple = train.ranks_multiple
            self._ranks = None if isinstance(train.ranks, str) else train.ranks

    @property
    def num_engines(self) -> int:
        """The number of engines that use no GPU."""
        return 1 if self._engines is None else self._engines

    def place(self) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
        """Return the slots of engines and ranks."""
        if self._train is not None and self._each and self._shares():
            engines, ranks = self._together()
        else:
            engines, ranks = self._apart()
        if self._train is not None:
            self._check_neighbors(ranks, self._train.tensor_parallel)
        return engines, ranks

    def _check_neighbors(self, ranks: Sequence[Slot], count: int) -> None:
        """Check that ranks that share layers are on the same node."""
        for first in range(0, len(ranks), count):
            if len({slot.node for slot in ranks[first : first + count]}) > 1:
                raise ConfigError(
                    f"train.tensor_parallel={count}: ranks {first} to {first + count - 1} share "
                    f"layers and must be on one node, but the cluster has {self._has()}. Lower it, "
                    "or set train.ranks and rollout.actors so that each node has a multiple of it"
                )

    def _shares(self) -> bool:
        """Return whether engines share GPUs with ranks."""
        place = self._rollout.place
        if place == "auto":
            asynchronous = self._train is not None and self._train.mode == "async"
            if self._each > 1 or (asynchronous and self._total > 1):
                return False
            if self._engines is None or self._ranks is None:
                return True
            return self._engines * self._each + self._ranks > self._total
        return place == "together"

    def _together(self) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
        if self._each > 1:
            raise ConfigError(
                f"rollout.place=together: an engine on {self._each} GPUs cannot share them with "
                "ranks; set rollout.place=apart, or rollout.engine_kwargs to one GPU per engine"
            )
        known = self._ranks or self._engines
        count = known or self._total // self._multiple * self._multiple
        engines, ranks = self._engines or count, self._ranks or count
        if engines != ranks:
            raise ConfigError(
                f"rollout.actors={engines}, train.ranks={ranks}: to share GPUs, each engine needs "
                f"one rank; without sharing they need {pluralize(engines + ranks, 'GPU')}, but the "
                f"cluster has {self._has()}. Set both to the same number"
            )
        if count > self._total or not count:
            raise ConfigError(
                f"train.ranks={ranks or self._multiple}: each rank needs a GPU, but the cluster "
                f"has {self._has()}; set train.ranks and rollout.actors to {self._total} or fewer"
            )
        if self._train is not None:
            self._train.check_ranks(count)
        slots = tuple(self._cards()[:count])
        return slots, slots

    def _apart(self) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
        # What the user fixed decides the other number; with neither, ranks get about half.
        engines, ranks = self._engines, self._ranks
        if engines is None and ranks is None:
            ranks = self._ranks_for_half()
        if engines is None:
            assert ranks is not None
            engines = max(1, self._room(reserved=ranks)) if self._each else 1
        if ranks is None:
            left = self._total - engines * self._each
            ranks = max(1, left // self._multiple) * self._multiple
        placed, free = self._place_engines(engines)
        if len(placed) < engines or sum(free) < ranks:
            raise self._too_small(engines, ranks, free)
        taken = {(slot.node, gpu) for slot in placed for gpu in slot.gpus}
        left_over = [s for s in self._cards() if (s.node, s.gpus[0]) not in taken]
        return placed, tuple(left_over[:ranks])

    def _ranks_for_half(self) -> int:
        """Return the number of ranks that leaves the fewest GPUs unused; on ties, nearest half."""
        each, half = self._each, self._total / 2
        room = {n: self._room(n) for n in range(self._multiple, self._total, self._multiple)}
        fits = [n for n, engines in room.items() if engines]
        unused = {n: self._total - n - room[n] * each for n in fits}
        return min(fits, key=lambda n: (unused[n], abs(n - half), n), default=self._multiple)

    def _place_engines(self, count: int) -> tuple[tuple[Slot, ...], list[int]]:
        """Place engines, last node first, since ranks use the first; also return free GPUs."""
        free = [node.gpus for node in self._nodes]
        found: list[Slot] = []
        # `free` is a number per node: an engine takes the last GPUs that are left there.
        for index in reversed(range(len(free))):
            node = self._nodes[index]
            while self._each and len(found) < count and free[index] >= self._each:
                free[index] -= self._each
                gpus = tuple(range(free[index], free[index] + self._each))
                found.append(Slot(node=node, gpus=gpus))
        if not self._each:
            return tuple(Slot(node=self._nodes[0]) for _ in range(count)), free
        return tuple(reversed(found)), free

    def _room(self, reserved: int) -> int:
        """Return the number of engines that fit on the GPUs not used by ranks."""
        for count in range(self._total // self._each, 0, -1):
            placed, free = self._place_engines(count)
            if len(placed) == count and sum(free) >= reserved:
                return count
        return 0

    def _cards(self) -> list[Slot]:
        """Return every GPU, node by node."""
        return [Slot(node=node, gpus=(gpu,)) for node in self._nodes for gpu in range(node.gpus)]

    def _has(self) -> str:
        counts = _list(f"{node.gpus} on {node.name}" for node in self._nodes)
        return f"{self._total} ({counts})" if len(self._nodes) > 1 else str(self._total)

    def _too_small(self, engines: int, ranks: int, free: Sequence[int]) -> ConfigError:
        need = f"{engines} x {self._each} for rollout.actors={engines}"
        if self._train is not None:
            need += f" + {ranks} for train.ranks={ranks}"
        total = engines * self._each + ranks
        reason = f"the cluster has {self._has()}"
        if total <= self._total:
            reason += f", and the {self._each} GPUs of an engine must be on one node"
        remedy = "Lower one of them"
        if self._each == 1 and self._rollout.place == "apart":
            remedy += ", or set rollout.place=together"
        elif self._each > 1:
            remedy += ", or the GPUs of an engine in rollout.engine_kwargs"
        return ConfigError(
            f"the job needs {pluralize(total, 'GPU')} ({need}), but {reason}. {remedy}"
        )


def _list(items: Iterable[str]) -> str:
    return ", ".join(items)
