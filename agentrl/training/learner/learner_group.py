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
import torch.distributed as dist

from agentrl.child_process import free_port
from agentrl.cluster import ray_cluster
from agentrl.cluster.machine_resources import cores
from agentrl.cluster.ray_actor_calls import short_reason
from agentrl.cluster.ray_actor_logs import redirect_output
from agentrl.cluster.reservation import Reservation
from agentrl.errors import AgentRLError, LearnerError, LearnerLost
from agentrl.rollout.nodes.job_files import JobFiles, JobOnNode
from agentrl.rollout.nodes.run_folder_on_nodes import RecordedRun, RunOnNodes
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.network.backbone import Backbone
from agentrl.training.learner.network.logprob_model import LogprobModel

_SIOCGIFADDR = 0x8915
"""Linux ioctl that returns an interface's IPv4 address; see netdevice(7)."""
_CLOSE_S = 10.0
"""Seconds that a rank gets to deliver its logs before it is killed."""
_NOTICE_S = 3.0
"""Seconds to wait for Ray to report a dead rank after another rank lost its connection to it."""

P = ParamSpec("P")
R = TypeVar("R")


def _on_all(
    method: Callable[Concatenate[Learner, P], R],
) -> Callable[Concatenate["LearnerGroup", P], R]:
    """Make a method call every rank and return rank 0's result; paths are made absolute."""

    @functools.wraps(method)
    def call(group: "LearnerGroup", /, *args: P.args, **kwargs: P.kwargs) -> R:
        import ray

        # Store samples and their images once instead of once per rank.
        shared = [ray.put(arg.absolute() if isinstance(arg, Path) else arg) for arg in args]
        actors = group._actors
        calls = [actor.call.remote(method, *shared, **kwargs) for actor in actors]
        result: R = group._wait(calls)[0]
        return result

    return call


class LearnerGroup:
    """Learner ranks in Ray actors; each call runs on all ranks at the same time.

    Args:
        actors: rank 0 first.
        deadline_s: time limit of any call; a dead rank is noticed immediately.
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
        self._saving: tuple[Path, Path] | None = None

    def start(
        self, files: JobFiles, folder: Path, wrap: type[Backbone], teacher: Path | None = None
    ) -> None:
        """Connect the ranks and load the model; see `Learner`.

        Raises:
            ConfigError: the model cannot be loaded.
            LearnerError: a rank did not start.
        """
        rendezvous = self._wait([self._actors[0].address.remote()])[0]
        count, model = len(self._actors), self._reservation.share(folder, keep=True)
        shared_teacher = None if teacher is None else self._reservation.share(teacher, keep=True)
        self._wait(
            [
                actor.start.remote(
                    files.on(node),
                    model.on(node),
                    rank,
                    count,
                    rendezvous,
                    self._run.on(node),
                    wrap,
                    None if shared_teacher is None else shared_teacher.on(node),
                )
                for rank, (actor, node) in enumerate(zip(self._actors, self._nodes, strict=True))
            ]
        )

    score_tokens = _on_all(Learner.score_tokens)
    score_teacher = _on_all(Learner.score_teacher)
    predict_tokens = _on_all(Learner.predict_tokens)
    update = _on_all(Learner.update)
    begin_offline = _on_all(Learner.begin_offline)
    offline_step = _on_all(Learner.offline_step)
    offline_loss = _on_all(Learner.offline_loss)
    end_offline = _on_all(Learner.end_offline)
    save_weights = _on_all(Learner.save_weights)
    save_base = _on_all(Learner.save_base)
    save_adapter = _on_all(Learner.save_adapter)
    shapes = _on_all(Learner.shapes)
    send_weights = _on_all(Learner.send_weights)

    def load_weights(self, path: Path) -> None:
        """See `Learner.load_weights`; every rank gets the file."""
        self._read(Learner.load_weights, path)

    def restore(self, folder: Path) -> None:
        """See `Learner.restore`; every rank gets the folder."""
        self._read(Learner.restore, folder)

    def export(self, folder: Path) -> None:
        """See `Learner.export`; the folder is written on this process's node."""
        self._bring_back(*self._begin_write(Learner.export, folder))

    def save_state(self, folder: Path) -> None:
        """See `Learner.save_state`; shards written on other nodes are copied to this node."""
        self._bring_back(*self._begin_write(Learner.save_state, folder))

    def begin_save_state(self, folder: Path) -> None:
        """See `Learner.begin_save_state`."""
        self._saving = self._begin_write(Learner.begin_save_state, folder)

    def is_state_saved(self) -> bool:
        """See `Learner.is_state_saved`; copies shards written on other nodes to this node.

        Waits for an update that the ranks are running.
        """
        calls = [actor.call.remote(Learner.is_state_saved) for actor in self._actors]
        if not all(self._wait(calls)):
            return False
        if self._saving is not None:
            self._bring_back(*self._saving)
            self._saving = None
        return True

    def _read(self, method: Callable[[Learner, Path], None], path: Path) -> None:
        shared = self._reservation.share(path, keep=True)
        try:
            self._call_each(method, [shared.on(node) for node in self._nodes])
        finally:
            self._reservation.forget(shared)

    def _begin_write(
        self, method: Callable[[Learner, Path], None], folder: Path
    ) -> tuple[Path, Path]:
        """Let each rank write; return the folder used on other nodes and the absolute `folder`."""
        folder = folder.absolute()
        outbox = Path(tempfile.gettempdir()) / f"agentrl-outbox-{uuid.uuid4().hex}"
        paths = [outbox if self._run.is_away(node) else folder for node in self._nodes]
        self._call_each(method, paths)
        return outbox, folder

    def _call_each(self, method: Callable[[Learner, Path], None], paths: Sequence[Path]) -> None:
        """Call a method on every rank, each with its own path."""
        ranks = zip(self._actors, paths, strict=True)
        self._wait([actor.call.remote(method, path) for actor, path in ranks])

    def _bring_back(self, outbox: Path, folder: Path) -> None:
        for node in {n.id: n for n in self._nodes if self._run.is_away(n)}.values():
            self._reservation.bring_back(outbox, node, folder)

    def close(self) -> None:
        """Kill the actors; may be called twice."""
        import ray

        ranks = zip(self._actors, self._nodes, strict=False)
        closing = [actor.close.remote() for actor, node in ranks if self._run.is_away(node)]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for actor in self._actors:
            ray.kill(actor)
        self._actors.clear()
        self._run.close()

    def _wait(self, references: list[Any]) -> list[Any]:
        """Wait for all results. Raise the first failure immediately: others may wait for that rank.

        Raises:
            LearnerLost: a rank died or did not respond in time.
            LearnerError: a rank failed.
        """
        import ray

        deadline = time.monotonic() + self._deadline_s
        pending = list(references)
        while pending:
            left = max(0.0, deadline - time.monotonic())
            done, pending = ray.wait(pending, num_returns=1, timeout=left)
            if not done:
                raise LearnerLost(f"the learner did not respond within {self._deadline_s:g} s")
            try:
                self._get(done[0], references.index(done[0]))
            except LearnerLost:
                self._raise_death(references, pending)
                raise
        return [self._get(reference, rank) for rank, reference in enumerate(references)]

    def _raise_death(self, references: Sequence[Any], pending: Sequence[Any]) -> None:
        """Raise an error for a pending rank that died, if Ray reports a dead one.

        Other ranks notice its death only as a lost connection.

        Raises:
            LearnerLost: a pending rank died.
        """
        import ray
        import ray.exceptions

        deadline = time.monotonic() + _NOTICE_S
        left = list(pending)
        while left and (wait_s := deadline - time.monotonic()) > 0:
            done, left = ray.wait(left, num_returns=1, timeout=wait_s)
            for reference in done:
                try:
                    ray.get(reference)
                except ray.exceptions.RayActorError as error:
                    raise _died(references.index(reference), error) from None
                except Exception:  # also caused by the rank's death
                    continue

    def _get(self, reference: Any, rank: int) -> Any:
        import ray
        import ray.exceptions

        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, AgentRLError | OSError) and not isinstance(cause, ConnectionError):
                raise cause from None
            kind = LearnerLost if _is_transient(cause) else LearnerError
            raise kind(f"rank {rank} of the learner failed: {error}") from error
        except ray.exceptions.RayActorError as error:
            raise _died(rank, error) from None
        except ray.exceptions.RayError as error:
            raise LearnerLost(
                f"rank {rank} of the learner was lost: {short_reason(error)}"
            ) from error


def _died(rank: int, error: Exception) -> LearnerLost:
    return LearnerLost(f"rank {rank} of the learner died: {short_reason(error)}")


def _is_transient(error: BaseException) -> bool:
    """Whether a rank failed because of another rank, its accelerator or lack of memory."""
    known = (dist.DistError, torch.OutOfMemoryError, torch.AcceleratorError, MemoryError)
    # Gloo raises plain RuntimeErrors.
    return isinstance(error, known) or (isinstance(error, RuntimeError) and "gloo" in str(error))


class LearnerActor:
    """One rank of the learner in its own process."""

    def pid(self) -> int:
        """Return the actor's process id."""
        return os.getpid()

    def address(self) -> str:
        """Return a free address of this machine for the ranks' process group."""
        host = self._host()
        return f"tcp://{host}:{free_port(host)}"

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
        wrap: type[Backbone],
        teacher: Path | None,
    ) -> None:
        """Create the learner; see `Learner`."""
        self._run = None if run is None else run.open()
        if self._run is not None:
            redirect_output(self._run.folder, f"learner{rank}")
        # By default, gloo uses the interface that the host name resolves to, often the loopback.
        if (interface := _interface_of(self._host())) is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        # Ray gives an actor only one thread. On the CPU, the ranks share the machine's cores.
        torch.set_num_threads(max(1, cores() // world_size))
        self._learner = Learner(
            LearnerSettings.of(job.open()), folder, rank, world_size, rendezvous, wrap, teacher
        )

    def call(
        self, method: Callable[Concatenate[Learner, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call a learner method."""
        return method(self._learner, *args, **kwargs)

    def close(self) -> None:
        """Deliver the remaining logs."""
        if self._run is not None:
            self._run.close()


def _interface_of(address: str) -> str | None:
    """Return the network interface with an IPv4 address; None if not found or not on Linux."""
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
"""The learner as the training loop uses it, wherever it runs; every call blocks."""


def open_learner(
    settings: LearnerSettings,
    folder: Path,
    reservation: Reservation,
    files: JobFiles,
    run: Path | None = None,
    wrap: type[Backbone] = LogprobModel,
    teacher: Path | None = None,
) -> AnyLearner:
    """Start the learner in this process or in Ray actors, depending on `rollout.launcher`.

    Args:
        settings: settings of the ranks, with as many ranks as the reservation.
        folder: the model to start from, in the Hugging Face format.
        reservation: where the ranks run.
        files: the job's files, from which ranks on other nodes read their settings.
        run: the run's folder, for the logs of the ranks; None keeps no logs.
        wrap: see `Learner`.
        teacher: see `Learner`.

    Raises:
        ConfigError: the model cannot be loaded.
        LearnerError: a rank did not start.
    """
    if settings.rollout.launcher == "local":
        return Learner(settings, folder, wrap=wrap, teacher=teacher)
    ray = ray_cluster.join_cluster()
    remote = ray.remote(LearnerActor)
    actors = [
        remote.options(**reservation.options(slot)).remote() for slot in reservation.layout.ranks
    ]
    group = LearnerGroup(actors, settings.train.deadline_s, reservation, run)
    try:
        own = None if teacher is None else teacher.absolute()
        group.start(files, folder.absolute(), wrap, own)
    except BaseException:
        group.close()
        raise
    return group
