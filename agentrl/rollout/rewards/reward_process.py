"""The process that calls reward functions, always on its main thread.

User code may therefore set signal handlers and alarms, as math-verify does. A call that never
returns, or ends the process, affects only its own episode: see `reward_pool`.
"""

import asyncio
import faulthandler
import logging
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from agentrl import user_code
from agentrl.data.image_loading import load_image
from agentrl.data.reward_inputs import QueryFormat
from agentrl.errors import (
    AgentRLError,
    RewardError,
    describe_error,
    known_members,
    message_of,
    users_location,
)
from agentrl.rollout.rewards import reward_process_messages
from agentrl.rollout.rewards.lazy_episode_transfer import Contents, unpickled
from agentrl.rollout.rewards.loaded_reward import LoadedReward, load_rewards
from agentrl.rollout.rewards.reward_calls import (
    SENT_IMAGES,
    RewardInputs,
    awaited,
    inputs_of,
    per_turn,
    score_batch,
)
from agentrl.rollout.rewards.reward_process_messages import (
    FIELDS,
    MAX_IDS,
    STATUS_BYTES,
    Failure,
    LogForwarder,
    ProcessSpec,
    Result,
    failure_of,
    users_modules,
)
from agentrl.rollout.rewards.shared_memory_fields import FieldReceiver
from agentrl.rollout.user_code_guard import UserCodeGuard
from agentrl.types import Episode

log = logging.getLogger(__name__)

_FLUSH_S = 0.02
"""Seconds a result may wait to be sent together with others."""
_BEAT_S = 0.25
"""Seconds between heartbeats while asynchronous functions do not block the event loop."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """One episode and its results so far."""

    id: int
    episode: Episode | None = None
    prompt: str = ""
    """The last prompt in the model's chat format, for batch functions."""
    inputs: RewardInputs | None = None
    """Batch functions' inputs, made from the episode at the first batch call."""
    results: list[Result | None] = field(default_factory=list)
    failure: Failure | None = None
    open_calls: int = 0
    """Number of asynchronous calls that have not returned."""

    def batch_inputs(self, end: str) -> RewardInputs:
        """Return a copy of the inputs, as functions may modify their arguments.

        Args:
            end: the token that ends a reply in the model's chat format.
        """
        if self.inputs is None:
            assert self.episode is not None
            form = QueryFormat(prompt=lambda messages: self.prompt, end=end)
            self.inputs = inputs_of(self.episode, form)
        # Decode a reward server's images here, where the call has a deadline.
        elif self.episode is None:
            for name in SENT_IMAGES:
                if images := self.inputs.get(name):
                    self.inputs[name] = [load_image(image, Path()) for image in images]
        return dict(self.inputs)


class RewardProcess:
    """Calls the functions with the episodes that the parent sends."""

    def __init__(
        self, jobs: Connection, fields: Connection, status: "np.ndarray[Any, Any]"
    ) -> None:
        self._jobs, self._fields, self._status = jobs, FieldReceiver(fields), status
        self._sending, self._fetching = threading.Lock(), threading.Lock()
        self._guard = UserCodeGuard((jobs, fields))
        self._rewards: list[LoadedReward] = []
        self._done: list[tuple[int, list[Result | None], Failure | None]] = []
        self._flushed = self._began = time.monotonic()
        self._computed = _busy_s()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: dict[asyncio.Task[None], _Job] = {}

    def run(self) -> None:
        """Load the functions, then score episodes until the parent closes the connection."""
        spec: ProcessSpec = self._jobs.recv()
        sys.path[:] = spec.path
        for root in spec.roots:
            user_code.look_below(root)
        logging.getLogger().setLevel(spec.log_level)
        logging.getLogger().addHandler(LogForwarder(self._send))
        reward_process_messages.is_loading = True
        try:
            self._rewards = load_rewards(spec.rewards)
        except AgentRLError as error:
            self._send(("failed", failure_of(error)))
            return
        reward_process_messages.is_loading = False
        self._spec = spec
        infos = [reward.info for reward in self._rewards]
        self._send(("loaded", infos, users_modules()))
        while (jobs := self._next_jobs()) is not None:
            self._score(jobs)
            self._flush()

    # --- messages -------------------------------------------------------------------------

    def _send(self, message: Any) -> None:
        with self._sending:
            self._jobs.send(message)

    def _next_jobs(self) -> list[_Job] | None:
        """Wait for episodes while running asynchronous functions; return None at the end."""
        jobs: list[_Job] = []
        try:
            while not jobs or self._jobs.poll():
                if self._pending and not self._jobs.poll():
                    self._run_loop()
                    continue
                message = self._jobs.recv()
                if message[0] == "explain":
                    known = (r.explain(message[1]) for r in self._rewards if r.explain is not None)
                    self._send(("explained", message[1], next(filter(None, known), None)))
                else:
                    jobs += [job for job in map(self._job, *message[1:]) if job is not None]
        except EOFError:
            return None
        self._began, self._computed = time.monotonic(), _busy_s()
        return jobs

    def _job(self, id: int, sent: bytes, prompt: str) -> _Job | None:
        try:
            value: Episode | RewardInputs = unpickled(sent, lambda: self._fetch(id))
        # The episode may contain a class that cannot be imported here.
        except Exception as error:
            why = RewardError(f"the episode cannot be read in the reward's process: {error}")
            self._send(("done", [(id, [], failure_of(why))], 0.0, 0.0))
            return None
        if isinstance(value, dict):
            return _Job(id=id, inputs=value)
        return _Job(id=id, episode=value, prompt=prompt)

    def _fetch(self, id: int) -> Contents:
        if self._guard.is_fork():
            raise RewardError("images and token ids must be read before a process is forked")
        with self._fetching:
            return self._fields.fetch(id)

    def _flush(self) -> None:
        """Send the results, the calls' total time, and how much of it was computing."""
        done, self._done = self._done, []
        now, computed = time.monotonic(), _busy_s()
        if done:
            self._send(("done", done, now - self._began, computed - self._computed))
        self._flushed = self._began = now
        self._computed = computed

    # --- calls ----------------------------------------------------------------------------

    def _score(self, jobs: Sequence[_Job]) -> None:
        """Call each function for all jobs before the next function, as batches are efficient."""
        for job in jobs:
            job.results = [None] * len(self._rewards)
        for index, reward in enumerate(self._rewards):
            valid = [job for job in jobs if job.failure is None]
            if reward.info.overlaps:
                for job in valid:
                    self._begin(index, job)
                continue
            size = reward.info.max_batch_size
            for start in range(0, len(valid), size):
                self._call(index, valid[start : start + size])

    def _call(self, index: int, jobs: Sequence[_Job]) -> None:
        """Call a function for some jobs, and store its results or the failure."""
        name = f"reward {self._rewards[index].info.name}"
        try:
            with self._marked(index, jobs):
                results = self._values(index, name, jobs)
        # Our own errors are deliberate, so the call is not retried.
        except AgentRLError as error:
            results = [error] * len(jobs)
        # Ctrl-C does not reach this process, so even a KeyboardInterrupt comes from the function.
        except BaseException as error:
            if len(jobs) > 1 and self._spec.retries:
                for job in jobs:
                    self._call(index, [job])
                return
            results = [_described(name, error)] * len(jobs)
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, BaseException):
                job.failure = failure_of(result)
            else:
                job.results[index] = result
            self._settle(job)

    def _values(self, index: int, name: str, jobs: Sequence[_Job]) -> Sequence[Any]:
        info, function = self._rewards[index].info, self._rewards[index].function
        # Single-episode functions get one job at a time: `max_batch_size` is 1.
        if info.is_batch:
            return score_batch(name, function, [job.batch_inputs(self._spec.end) for job in jobs])
        (job,) = jobs
        assert job.episode is not None
        return [per_turn(info.name, awaited(function(job.episode)), len(job.episode.turns))]

    def _settle(self, job: _Job) -> None:
        """Finish a job if all functions have returned or one has failed."""
        if job.open_calls or (job.failure is None and None in job.results):
            return
        self._done.append((job.id, job.results, job.failure))
        # Free the episode, whose images may be large.
        job.episode = job.inputs = None
        if time.monotonic() - self._flushed > _FLUSH_S:
            self._flush()

    @contextmanager
    def _marked(self, index: int, jobs: Sequence[_Job]) -> Iterator[None]:
        """Publish to the parent which function is running, for which jobs and since when."""
        self._mark(index, jobs)
        try:
            yield
        finally:
            self._guard.check(self._rewards[index].info.name)
            self._status[0] = 0
            # Clear any alarm that a function left behind, as math-verify does.
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _mark(self, index: int, jobs: Sequence[_Job]) -> None:
        ids = [job.id for job in jobs[:MAX_IDS]]
        self._status[FIELDS : FIELDS + len(ids)] = ids
        self._status[1:FIELDS] = index, len(ids)
        self._status[0] = time.monotonic_ns()

    # --- asynchronous functions -----------------------------------------------------------

    def _begin(self, index: int, job: _Job) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        task = self._loop.create_task(self._await(index, job))
        self._pending[task] = job
        job.open_calls += 1
        task.add_done_callback(self._ended)

    async def _await(self, index: int, job: _Job) -> None:
        info, episode = self._rewards[index].info, job.episode
        if job.failure is not None:
            return
        assert episode is not None
        name, deadline_s = f"reward {info.name}", self._spec.deadline_s
        limit = asyncio.timeout(deadline_s)
        try:
            async with limit:
                value = await self._rewards[index].function(episode)
            job.results[index] = per_turn(info.name, value, len(episode.turns))
        except AgentRLError as error:
            job.failure = failure_of(error)
        except BaseException as error:
            late = RewardError(f"{name}: no result within {self._spec.deadline}")
            job.failure = failure_of(late if limit.expired() else _described(name, error))
        finally:
            self._guard.check(info.name)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        job = self._pending.pop(task)
        job.open_calls -= 1
        self._settle(job)

    def _run_loop(self) -> None:
        """Run asynchronous functions until a message arrives or none is left.

        The loop does not run during synchronous functions, which may start their own loop.
        """
        assert self._loop is not None
        self._mark(-1, [*self._pending.values()])
        self._loop.run_until_complete(self._until_message())
        self._status[0] = 0

    async def _until_message(self) -> None:
        loop, message = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._jobs.fileno(), message.set)
        try:
            while self._pending and not message.is_set():
                self._mark(-1, [*self._pending.values()])
                tasks = [asyncio.ensure_future(message.wait()), *self._pending]
                await asyncio.wait(tasks, timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED)
                tasks[0].cancel()
                self._flush()
        finally:
            loop.remove_reader(self._jobs.fileno())


def _busy_s() -> float:
    """Return the seconds this process has computed, including its wait for a free core."""
    try:
        _, queued_ns, _ = Path("/proc/self/schedstat").read_text().split()
    # The file is missing on systems other than Linux, and on kernels without these statistics.
    except (OSError, ValueError):
        queued_ns = "0"
    return time.process_time() + int(queued_ns) / 1e9


def _described(name: str, cause: BaseException) -> RewardError:
    own = users_location(cause)
    what = f"{type(cause).__name__}: {message_of(cause)}{own}" if own else describe_error(cause)
    error = RewardError(f"{name}: {what}{known_members(cause)}")
    error.__cause__ = cause
    return error


def main(jobs: int, fields: int, status: int) -> None:
    """Run until the parent closes its connection."""
    # Make a crash in native code print the Python line that led to it.
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        # Streams may be closed, as in `agentrl ... >&-`.
        if stream is not None:
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    memory = np.frombuffer(mmap.mmap(status, STATUS_BYTES), np.int64)
    for fd in (jobs, fields, status):
        # Child processes of a function must not keep the descriptors open.
        os.set_inheritable(fd, False)
    process = RewardProcess(Connection(jobs), Connection(fields), memory)
    try:
        process.run()
    except (BrokenPipeError, ConnectionResetError):
        # The parent has closed the connection.
        return
