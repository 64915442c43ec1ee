"""The parent's side of a reward process: start it, send episodes, enforce deadlines, end it."""

import logging
import mmap
import os
import pickle
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from agentrl import child_process, user_code
from agentrl.child_process import describe_exit
from agentrl.errors import AgentRLError, ConfigError, RewardError
from agentrl.rollout.rewards.loaded_reward import RewardInfo
from agentrl.rollout.rewards.reward_process_messages import (
    FIELDS,
    STATUS_BYTES,
    Failure,
    Result,
    error_of,
    show_log,
)
from agentrl.rollout.rewards.reward_queue import SHORT_S, Queue, ScoreRequest
from agentrl.rollout.rewards.shared_memory_fields import FieldSender
from agentrl.types import Episode

log = logging.getLogger(__name__)
_LOOK_S = 0.25
"""Seconds between checks of a call's deadline."""
_END_S = 2.0
"""Seconds that a process may take to end after its connection is closed."""
_LOAD_S = 330.0
"""Seconds that a process may take to import its functions; an import may compile a kernel."""
_PATIENCE = 3
"""Number of deadlines after which an episode that waits for hanging ones is given up."""


class PooledProcess:
    """One reward process, which restarts with the next episode after it ends.

    One thread starts the process and sends to it. Another receives, so that neither side blocks
    until the other reads.

    Args:
        queue: the episodes to score.
        is_lazy: whether to start only with the first episode, as the functions are already known.
    """

    def __init__(self, queue: Queue, *, is_lazy: bool = False) -> None:
        self._queue, self._is_lazy = queue, is_lazy
        self.loaded: Future[Sequence[RewardInfo]] = Future()
        if is_lazy:
            self.loaded.set_result(queue.infos)
        self._process: subprocess.Popen[bytes] | None = None
        self._jobs: Connection | None = None
        self._fields: Connection | None = None
        self._status = np.zeros(FIELDS, np.int64)
        self._sending = threading.Lock()
        self._outstanding: dict[int, ScoreRequest] = {}
        self._answering = 0
        """Number of episodes whose results are being delivered; callers then submit more, which are
        sent together."""
        self._mean_s: float | None = None
        """Moving average of the seconds to score an episode."""
        self._explained: dict[str, Future[str | None]] = {}
        self._thread = threading.Thread(target=self._work, name="rewards", daemon=True)
        self._thread.start()

    # --- start and end --------------------------------------------------------------------

    def _work(self) -> None:
        try:
            if not self._is_lazy:
                self._start()
        except AgentRLError as error:
            self.loaded.set_exception(error)
            return
        while (jobs := self._take()) is not None:
            try:
                if self._process is None:
                    self._start()
            # The functions have loaded before, so fail only the episodes, not the job.
            except ConfigError as error:
                self._fail(jobs, RewardError(str(error)))
                continue
            self._send_jobs(jobs)
        self._stop(_END_S)

    def _start(self) -> None:
        """Start the process, and wait until it has loaded the functions.

        Raises:
            ConfigError: the process cannot be started, or cannot load the functions.
        """
        try:
            process, jobs, fields = self._open()
        # The system may have too many open files.
        except OSError as error:
            raise ConfigError(f"rewards: cannot start a process for them: {error}") from error
        self._process, self._jobs, self._fields = process, jobs, fields
        try:
            infos = self._load(jobs)
        except BaseException:
            self._stop(0.0)
            raise
        if not self.loaded.done():
            self.loaded.set_result(infos)
        threading.Thread(
            target=self._receive, args=(process, jobs, fields), name="rewards", daemon=True
        ).start()

    def _open(self) -> "tuple[subprocess.Popen[bytes], Connection, Connection]":
        with ExitStack() as own:
            jobs, its_jobs = Pipe()
            own.callback(its_jobs.close)
            fields, its_fields = Pipe()
            own.callback(its_fields.close)
            memory = os.memfd_create("rewards")
            own.callback(os.close, memory)
            os.truncate(memory, STATUS_BYTES)
            self._status = np.frombuffer(mmap.mmap(memory, STATUS_BYTES), np.int64)
            fds = its_jobs.fileno(), its_fields.fileno(), memory
            path = self._queue.spec.path
            code = (
                f"import sys; sys.path[:] = {path!r}; "
                f"from agentrl.rollout.rewards.reward_process import main; main{fds}"
            )
            process = child_process.start(
                [sys.executable, "-c", code], stdin=subprocess.DEVNULL, pass_fds=fds
            )
        return process, jobs, fields

    def _load(self, jobs: Connection) -> list[RewardInfo]:
        names = ", ".join(reward.function for reward in self._queue.spec.rewards)
        try:
            jobs.send(self._queue.spec)
            while jobs.poll(_LOAD_S):
                kind, *content = jobs.recv()
                if kind == "loaded":
                    infos, files = content
                    user_code.remember_modules(files)
                    self._queue.note_files(files.values())
                    return list(infos)
                if kind == "failed":
                    raise error_of(content[0])
                show_log(*content)
        except (OSError, EOFError):
            assert self._process is not None
            how = describe_exit(self._process.wait())
            raise ConfigError(f"rewards: {names}: their process ended with {how}") from None
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ConfigError(f"rewards: their kwargs must be plain values: {error}") from error
        raise ConfigError(f"rewards: {names}: not loaded within {_LOAD_S:g} s")

    def _stop(self, wait_s: float) -> None:
        """End the process and its descendants, after `wait_s` seconds to end by itself."""
        with self._sending:
            process, self._process = self._process, None
            connections, self._jobs, self._fields = (self._jobs, self._fields), None, None
        with self._queue.changed:
            self._queue.changed.notify_all()
        if process is None:
            return
        for connection in connections:
            if connection is not None:
                connection.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
        child_process.end(process)

    def close(self) -> None:
        """Request the end of the process; return quickly."""
        process = self._process
        if process is not None and self._is_calling():
            # A process that is executing a call would not notice the closed connection.
            child_process.end(process)
        self._thread.join(_END_S + 1.0)
        self._fail([*self._outstanding.values()], RewardError("the reward functions were closed"))

    # --- jobs -----------------------------------------------------------------------------

    def _take(self) -> list[ScoreRequest] | None:
        """Wait for the next episodes to send; return None once the pool is closed."""
        queue = self._queue
        with queue.changed:
            while not queue.closed:
                held = self._outstanding.values()
                if jobs := queue.next_jobs(held, self._answering, self._mean_s):
                    self._outstanding |= {job.id: job for job in jobs}
                    queue.changed.notify_all()
                    return jobs
                queue.changed.wait()
        return None

    def _send_jobs(self, jobs: Sequence[ScoreRequest]) -> None:
        sent = []
        for job in jobs:
            try:
                sent.append(self._queue.to_message(job))
            except Exception as error:
                why = f"an episode cannot be sent to the reward's process: {error}"
                self._fail([job], RewardError(why))
        # If the process has ended, the receiving thread notices.
        with self._sending, suppress(OSError):
            if self._jobs is not None and sent:
                self._jobs.send(("score", *zip(*sent, strict=True)))

    def _fail(self, jobs: Sequence[ScoreRequest], error: AgentRLError) -> None:
        with self._queue.changed:
            for job in jobs:
                self._outstanding.pop(job.id, None)
            self._queue.changed.notify_all()
        for job in jobs:
            job.answer.set_exception(error)

    # --- answers --------------------------------------------------------------------------

    def _receive(
        self, process: "subprocess.Popen[bytes]", jobs: Connection, fields: Connection
    ) -> None:
        """Receive from one process until it ends."""
        late, selector, sender = False, selectors.DefaultSelector(), FieldSender(fields)
        try:
            selector.register(jobs, selectors.EVENT_READ)
            selector.register(fields, selectors.EVENT_READ)
            while not late:
                with self._queue.changed:
                    while self._process is process and not (self._outstanding or self._explained):
                        self._queue.changed.wait()
                if self._process is not process:
                    return
                ready = {key.fileobj for key, _ in selector.select(_LOOK_S)}
                if fields in ready:
                    self._send_fields(sender)
                if jobs in ready:
                    self._handle(*jobs.recv())
                late = self._is_late()
        except (OSError, EOFError):
            pass
        # A user's function may have written to the connection.
        except Exception:
            log.exception("the process of reward functions sent something other than scores")
        finally:
            selector.close()
            sender.close()
        self._after_end(process, late)

    def _handle(self, kind: str, *content: Any) -> None:
        if kind == "log":
            show_log(*content)
        elif kind == "explained":
            self._explained.pop(content[0]).set_result(content[1])
        else:
            self._settle(*content)

    def _settle(
        self,
        done: Sequence[tuple[int, list[Result | None], Failure | None]],
        wall_s: float,
        computing_s: float,
    ) -> None:
        # A moving average: functions may become slower, like the servers they query.
        if wall_s > 0:
            mean_s, before = wall_s / len(done), self._mean_s
            self._mean_s = mean_s if before is None else 0.5 * (mean_s + before)
        # Callers react to results by submitting their next episodes, which are sent together.
        with self._queue.changed:
            jobs = [self._outstanding.pop(id, None) for id, *_ in done]
            self._answering = len(jobs)
        for job, (_, results, failure) in zip(jobs, done, strict=True):
            if job is None:
                continue
            if failure is None:
                job.answer.set_result(results)
            else:
                job.answer.set_exception(error_of(failure))
        with self._queue.changed:
            self._answering = 0
            self._queue.changed.notify_all()
        if wall_s > 0:
            self._queue.grow(wall_s / len(done), computing_s / wall_s)

    def _send_fields(self, sender: FieldSender) -> None:
        """Send an episode's fields, and prepare the next episode's."""

        def find(id: int) -> Episode | None:
            job = self._outstanding.get(id)
            return job.value if job and isinstance(job.value, Episode) else None

        asked = sender.answer(find)
        if self._mean_s is not None and self._mean_s < SHORT_S:
            with self._queue.changed:
                following = next((id for id in self._outstanding if id > asked), None)
            if following is not None and (episode := find(following)) is not None:
                sender.prepare(following, episode)

    def explain(self, episode_id: str) -> str | None:
        """Return why an episode got its score; None if no function knows the episode."""
        answer: Future[str | None] = Future()
        with self._queue.changed:
            self._explained[episode_id] = answer
            self._queue.changed.notify_all()
        with suppress(OSError, TimeoutError), self._sending:
            if self._jobs is None:
                return None
            self._jobs.send(("explain", episode_id))
        with suppress(TimeoutError):
            return answer.result(self._queue.spec.deadline_s)
        return None

    # --- failures -------------------------------------------------------------------------

    def _is_calling(self) -> bool:
        return bool(self._status[0])

    def _is_late(self) -> bool:
        began = int(self._status[0])
        return bool(began) and time.monotonic_ns() - began > 1e9 * self._queue.spec.deadline_s

    def _after_end(self, process: "subprocess.Popen[bytes]", late: bool) -> None:
        """Void the episode that ended the process, and requeue the others."""
        _, index, count = map(int, self._status[:FIELDS])
        suspects = {int(id) for id in self._status[FIELDS : FIELDS + count]}
        was_calling = self._is_calling()
        child_process.end(process)
        infos = self._queue.infos
        names = [infos[index].name] if index >= 0 else [i.name for i in infos if i.overlaps]
        name = f"reward {' or '.join(names)}"
        queue = self._queue
        if late:
            how = f"no result within {queue.spec.deadline}; its process was killed"
        else:
            how = f"its process ended with {describe_exit(process.returncode)}"
        error = RewardError(f"{name}: {how}")
        guilty, again = list[ScoreRequest](), list[ScoreRequest]()
        with queue.changed:
            jobs, self._outstanding = [*self._outstanding.values()], {}
            suspected = [job for job in jobs if was_calling and job.id in suspects]
            limit = time.monotonic() - _PATIENCE * queue.spec.deadline_s
            # If the call was for one episode, it is certainly to blame. After a call for several,
            # each is scored again alone. Give up on episodes that waited too long for hanging ones.
            for job in jobs:
                job.alone = job in suspected
                is_guilty = suspected == [job] or job.since < limit
                (guilty if is_guilty else again).append(job)
            if queue.closed:
                guilty, again = [*guilty, *again], []
            queue.waiting.extendleft(reversed(again))
            self._explained, explained = {}, self._explained
            if self._process is process:
                self._process = self._jobs = self._fields = None
            queue.changed.notify_all()
        if again:
            log.warning("%s; scoring %d other episodes again", error, len(again))
        for job in guilty:
            job.answer.set_exception(error)
        for answer in explained.values():
            answer.set_result(None)
