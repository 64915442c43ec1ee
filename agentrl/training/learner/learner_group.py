"""The learner in this process, or its ranks in Ray actors, behind the same interface."""

import functools
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from agentrl import config as configuration
from agentrl.cluster import ray_cluster
from agentrl.cluster.reservation import Reservation
from agentrl.config import Config
from agentrl.errors import AgentRLError, ConfigError, LearnerError
from agentrl.training.learner.learner import Learner

P = ParamSpec("P")
R = TypeVar("R")


def _on_all(
    method: Callable[Concatenate[Learner, P], R],
) -> Callable[Concatenate["LearnerGroup", P], R]:
    """The same call on every rank; rank 0's result."""

    @functools.wraps(method)
    def call(group: "LearnerGroup", /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = group.call(method.__name__, *args, **kwargs)
        return result

    return call


class LearnerGroup:
    """Ranks in Ray actors; each call runs on all of them at the same time.

    Args:
        actors: rank 0 first.
        deadline_s: for any call; a rank that dies is noticed at once.
    """

    def __init__(self, actors: Sequence[Any], deadline_s: float) -> None:
        self._actors = list(actors)
        self._deadline_s = deadline_s

    def start(self, tree: dict[str, Any], folders: Sequence[Path], run: Path | None = None) -> None:
        """Connect the ranks and load the model.

        Args:
            tree: the job's configuration.
            folders: the model to start from, for each rank on its node.
            run: the run's folder, for logs.

        Raises:
            ConfigError: the model cannot be loaded.
            LearnerError: a rank did not start.
        """
        rendezvous = self._wait([self._actors[0].address.remote()])[0]
        count = len(self._actors)
        self._wait(
            [
                actor.start.remote(tree, folder, rank, count, rendezvous, run)
                for rank, (actor, folder) in enumerate(zip(self._actors, folders, strict=True))
            ]
        )

    score_tokens = _on_all(Learner.score_tokens)
    update = _on_all(Learner.update)
    begin_supervised = _on_all(Learner.begin_supervised)
    supervised_step = _on_all(Learner.supervised_step)
    end_supervised = _on_all(Learner.end_supervised)
    save_weights = _on_all(Learner.save_weights)
    save_base = _on_all(Learner.save_base)
    save_adapter = _on_all(Learner.save_adapter)
    shapes = _on_all(Learner.shapes)
    send_weights = _on_all(Learner.send_weights)
    load_weights = _on_all(Learner.load_weights)
    export = _on_all(Learner.export)
    save_state = _on_all(Learner.save_state)
    restore = _on_all(Learner.restore)

    def close(self) -> None:
        """End the actors; may be called twice."""
        import ray

        for actor in self._actors:
            ray.kill(actor)
        self._actors.clear()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the learner on every rank; paths are made absolute.

        Returns:
            Rank 0's result.

        Raises:
            LearnerError: a rank failed, died, or did not answer in time.
        """
        import ray

        shared = [ray.put(arg.absolute() if isinstance(arg, Path) else arg) for arg in args]
        calls = [actor.call.remote(method, *shared, **kwargs) for actor in self._actors]
        return self._wait(calls)[0]

    def _wait(self, references: list[Any]) -> list[Any]:
        """All results; the first failure is raised at once, as other ranks may block on it."""
        import ray

        deadline = time.monotonic() + self._deadline_s
        pending = list(references)
        while pending:
            left = max(0.0, deadline - time.monotonic())
            done, pending = ray.wait(pending, num_returns=1, timeout=left)
            if not done:
                raise LearnerError(f"the learner did not answer within {self._deadline_s:g} s")
            self._get(done[0], references.index(done[0]))
        return [self._get(reference, rank) for rank, reference in enumerate(references)]

    def _get(self, reference: Any, rank: int) -> Any:
        import ray
        import ray.exceptions

        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, AgentRLError):
                raise error.cause from None
            raise LearnerError(f"rank {rank} of the learner failed: {error}") from error
        except ray.exceptions.RayActorError as error:
            raise LearnerError(
                f"rank {rank} of the learner died: {ray_cluster.short_reason(error)} "
                "Continue the run with --resume."
            ) from None


class LearnerActor:
    """One rank in a process of its own."""

    def pid(self) -> int:
        """The actor's process id."""
        return os.getpid()

    def address(self) -> str:
        """A free port of this machine, for the process group of the ranks."""
        import ray.util

        host = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return f"tcp://{host}:{probe.getsockname()[1]}"

    def start(
        self,
        tree: dict[str, Any],
        folder: Path,
        rank: int,
        world_size: int,
        rendezvous: str,
        run: Path | None,
    ) -> None:
        """Create the learner; see `Learner`."""
        if run is not None:
            ray_cluster.redirect_output(run, f"learner{rank}")
        # Ray gives an actor one thread; on the CPU the ranks share the machine.
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
        config = configuration.from_dict(tree)
        self._learner = Learner(config, folder, rank, world_size, rendezvous)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the learner."""
        return getattr(self._learner, method)(*args, **kwargs)


AnyLearner = Learner | LearnerGroup
"""The learner wherever it runs, as the training loop uses it; every call blocks."""


def open_learner(
    config: Config, folder: Path, reservation: Reservation, run: Path | None = None
) -> AnyLearner:
    """Start the learner in this process or in Ray actors, by `rollout.launcher`.

    Args:
        config: job configuration, as `Layout.applied_to` returns it.
        folder: the model to start from, in the Hugging Face format.
        reservation: where the ranks run.
        run: the run's folder, for the logs of the ranks; None keeps no logs.

    Raises:
        ConfigError: the model cannot be loaded.
        LearnerError: a rank did not start.
    """
    if config.rollout.launcher == "local":
        return Learner(config, folder)
    ray = ray_cluster.join_cluster()
    if run is not None:
        _check_common_disk(reservation, run.absolute())
    remote = ray.remote(LearnerActor)
    actors = [
        remote.options(**reservation.options(slot)).remote() for slot in reservation.layout.ranks
    ]
    group = LearnerGroup(actors, config.train.deadline_s)
    try:
        shared = reservation.share(folder, keep=True)
        folders = [shared.on(slot.node) for slot in reservation.layout.ranks]
        group.start(config.to_dict(), folders, run and run.absolute())
    except BaseException:
        group.close()
        raise
    return group


def _check_common_disk(reservation: Reservation, run: Path) -> None:
    """Check that all ranks can write checkpoints.

    Raises:
        ConfigError: a rank's node does not see the run's folder.
    """
    without = reservation.nodes_without(run)
    if found := [s.node.address for s in reservation.layout.ranks if s.node.id in without]:
        raise ConfigError(
            f"run.dir={run.parent}: node {found[0]}, where a rank of the learner runs, does not "
            "see it, so that checkpoints would be lost. Set run.dir to a folder on a disk that all "
            "nodes share, or train.ranks so that all ranks run on the node where the job starts; "
            "engines and phones may be on any node"
        )
