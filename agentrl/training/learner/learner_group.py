"""The learner in this process, or its ranks in Ray actors, behind the same interface."""

import contextlib
import functools
import os
import socket
import struct
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from agentrl.cluster import ray_cluster
from agentrl.cluster.reservation import Reservation
from agentrl.config import Config
from agentrl.errors import AgentRLError, LearnerError
from agentrl.rollout.job_files import JobFiles, JobOnNode
from agentrl.rollout.recorded_run import RecordedRun, RunOnNodes
from agentrl.training.learner.learner import Learner

_SIOCGIFADDR = 0x8915
"""Linux: the IPv4 address of an interface (netdevice(7))."""
_CLOSE_S = 10.0
"""For a rank to deliver its logs; then it is killed."""

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
        reservation: where the ranks run.
        run: the run's folder, for checkpoints and the logs of the ranks.
    """

    def __init__(
        self,
        actors: Sequence[Any],
        deadline_s: float,
        reservation: Reservation,
        run: Path | None = None,
    ) -> None:
        self._actors = list(actors)
        self._deadline_s = deadline_s
        self._reservation = reservation
        self._run = RunOnNodes(run, reservation)
        self._nodes = [slot.node for slot in reservation.layout.ranks]

    def start(self, files: JobFiles, folder: Path) -> None:
        """Connect the ranks and load the model.

        Args:
            files: the job's, with its configuration.
            folder: the model to start from.

        Raises:
            ConfigError: the model cannot be loaded.
            LearnerError: a rank did not start.
        """
        rendezvous = self._wait([self._actors[0].address.remote()])[0]
        count, model = len(self._actors), self._reservation.share(folder, keep=True)
        self._wait(
            [
                actor.start.remote(
                    files.on(node), model.on(node), rank, count, rendezvous, self._run.on(node)
                )
                for rank, (actor, node) in enumerate(zip(self._actors, self._nodes, strict=True))
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

    def load_weights(self, path: Path) -> None:
        """See Learner.load_weights; every rank gets the file."""
        self._read("load_weights", path)

    def restore(self, folder: Path) -> None:
        """See Learner.restore; every rank gets the folder."""
        self._read("restore", folder)

    def export(self, folder: Path) -> None:
        """See Learner.export; the folder is written on this process's node."""
        self._write("export", folder)

    def save_state(self, folder: Path) -> None:
        """See Learner.save_state; what ranks write on other nodes is brought to this one."""
        self._write("save_state", folder)

    def _read(self, method: str, path: Path) -> None:
        shared = self._reservation.share(path, keep=True)
        try:
            self._call_each(method, [(shared.on(node),) for node in self._nodes])
        finally:
            self._reservation.forget(shared)

    def _write(self, method: str, folder: Path) -> None:
        folder = folder.absolute()
        away = {n.id: n for n in self._nodes if self._run.is_away(n)}
        outbox = Path(tempfile.gettempdir()) / f"agentrl-outbox-{uuid.uuid4().hex}"
        paths = [outbox if node.id in away else folder for node in self._nodes]
        self._call_each(method, [(path,) for path in paths])
        for node in away.values():
            self._reservation.bring_back(outbox, node, folder)

    def close(self) -> None:
        """End the actors; may be called twice."""
        import ray

        ranks = zip(self._actors, self._nodes, strict=False)
        closing = [actor.close.remote() for actor, node in ranks if self._run.is_away(node)]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for actor in self._actors:
            ray.kill(actor)
        self._actors.clear()
        self._run.close()

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

    def _call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
        """Call a method on every rank with arguments of its own."""
        self._wait(
            [
                actor.call.remote(method, *own)
                for actor, own in zip(self._actors, arguments, strict=True)
            ]
        )

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
        host = self._host()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return f"tcp://{host}:{probe.getsockname()[1]}"

    def _host(self) -> str:
        import ray.util

        return str(ray.util.get_node_ip_address())

    def start(
        self,
        job: JobOnNode,
        folder: Path,
        rank: int,
        world_size: int,
        rendezvous: str,
        run: RecordedRun | None,
    ) -> None:
        """Create the learner; see `Learner`."""
        self._run = None if run is None else run.open()
        if self._run is not None:
            ray_cluster.redirect_output(self._run.folder, f"learner{rank}")
        # Otherwise gloo takes the interface that the host's name has, often the loopback.
        if (interface := _interface_of(self._host())) is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        # Ray gives an actor one thread; on the CPU the ranks share the machine.
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
        self._learner = Learner(job.open(), folder, rank, world_size, rendezvous)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the learner."""
        return getattr(self._learner, method)(*args, **kwargs)

    def close(self) -> None:
        """Deliver the rest of the logs."""
        if self._run is not None:
            self._run.close()


def _interface_of(address: str) -> str | None:
    """The network interface with an IPv4 address; None if there is none, as on other systems."""
    if sys.platform != "linux":
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an IPv4 address
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None


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
    remote = ray.remote(LearnerActor)
    actors = [
        remote.options(**reservation.options(slot)).remote() for slot in reservation.layout.ranks
    ]
    group = LearnerGroup(actors, config.train.deadline_s, reservation, run)
    try:
        group.start(JobFiles(config, reservation), folder.absolute())
    except BaseException:
        group.close()
        raise
    return group
