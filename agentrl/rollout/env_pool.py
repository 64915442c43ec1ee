"""Pools of environments, on leased phones or in threads and processes of this machine."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from agentrl.devices.pool import Borrower
from agentrl.errors import ConfigError, DeviceError, NoDevice, PoolEmpty
from agentrl.phone_page import PageAssigner
from agentrl.replay.live_phone_states import LivePhones
from agentrl.rollout.environments.env_processes import EnvProcesses
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.environments.env_server import CLOSE_S
from agentrl.rollout.environments.load_translator_and_players import ResizeOf
from agentrl.rollout.environments.resolved_env import ResolvedEnv
from agentrl.rollout.nodes.shared_phone_pool import SharedPhones, SharedPool, open_phone_pool
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.types import Episode, Image, Split
from virtual_phone.phones_spec import AppSpec

log = logging.getLogger(__name__)

SaveFrame = Callable[[Image], str] | None
RunEpisode = Callable[[EnvRunner], Awaitable[Episode]]
EnvOf = Callable[[Split, str], ResolvedEnv]
"""Takes a split and the name of an environment in `mixture`, or of a ring, or '' for the job's
own."""


class EnvPool(Protocol):
    """Pool of environments for playing episodes concurrently."""

    count: int
    """Maximum number of concurrent episodes."""
    min_count: int
    """Number of concurrent episodes guaranteed even if other processes hold shared phones."""

    async def run_in_env(self, run: RunEpisode, split: Split = "train", name: str = "") -> Episode:
        """Play one episode with exclusive use of an environment.

        Args:
            run: plays the episode.
            split: the episode's split; held-out episodes may have their own settings
                (`eval.kwargs`).
            name: the environment's name in `mixture`, or a ring's; empty for the job's own.

        Raises:
            NoDevice: no phone is left, or no phone became free in time several times in a row.
        """

    def close(self) -> None:
        """Close all environments within a time limit, and shut down phones that were started."""


class _Closing:
    """Environments that are closing in their own threads."""

    def __init__(self) -> None:
        self._runners: list[EnvRunner] = []

    def add(self, runner: EnvRunner) -> None:
        """Start to close an environment without waiting."""
        runner.close()
        self._runners = [*(r for r in self._runners if not r.is_closed(0.0)), runner]

    def wait(self, hint: str = "") -> None:
        """Wait until all are closed, within one shared time limit."""
        end = time.monotonic() + CLOSE_S
        late = [r for r in self._runners if not r.is_closed(max(0.0, end - time.monotonic()))]
        if late:
            log.warning(
                "%d of %d environments (%s) did not close within %g s and were abandoned%s",
                len(late),
                len(self._runners),
                late[0].id,
                CLOSE_S,
                hint,
            )
        self._runners.clear()


class PhoneEnvPool:
    """One environment per lease of a phone, which takes up to `phone_wait_s` to be granted."""

    def __init__(
        self,
        env_of: EnvOf,
        pool: Borrower,
        save_frame: SaveFrame,
        phone_wait_s: float,
        count: int,
        num_processes: int = 1,
        on_close: Callable[[], None] = lambda: None,
        live: LivePhones | None = None,
        resize_of: ResizeOf | None = None,
        host: str | None = None,
    ) -> None:
        self.pool = pool
        self._resize_of, self._host = resize_of, host
        self._live = live
        self.count = count if pool.grows else min(count, len(pool))
        self.min_count = max(1, min(count, len(pool) // num_processes))
        self._env_of = env_of
        self._save_frame = save_frame
        self._phone_wait_s = phone_wait_s
        self._on_close = on_close
        self._closing = _Closing()

    async def run_in_env(self, run: RunEpisode, split: Split = "train", name: str = "") -> Episode:
        """See EnvPool.run_in_env; a device failure is counted against the phone."""
        for _ in range(len(self.pool)):
            try:
                return await self._run_on_leased_phone(run, split, name)
            except PoolEmpty:
                raise
            # Try again: another episode may end, or a phone may come back.
            except NoDevice as error:
                log.warning("%s", error)
                busy = error
        raise busy

    async def _run_on_leased_phone(self, run: RunEpisode, split: Split, name: str) -> Episode:
        async with self.pool.lease(self._phone_wait_s) as lease:
            runner = EnvRunner(
                self._env_of(split, name),
                self._frame_saver(lease.serial),
                lease.serial,
                lease.token,
                resize_of=self._resize_of,
                host=self._host,
            )
            try:
                episode = await run(runner)
            finally:
                self._closing.add(runner)
            if isinstance(episode.failure, DeviceError):
                lease.fail(episode.failure)
            # The phone may have caused a timeout, or an app to fail after its launch.
            elif episode.outcome.void:
                lease.doubt()
            return episode

    def _frame_saver(self, serial: str) -> SaveFrame:
        """Return a function that stores a phone's frames and passes their ids to the live view."""
        save, live = self._save_frame, self._live
        if save is None or live is None:
            return save

        def save_and_show(image: Image) -> str:
            frame = save(image)
            live.frame(serial, frame)
            return frame

        return save_and_show

    def close(self) -> None:
        """Close the environments and the pool, and shut down phones that were started."""
        self._closing.wait()
        self.pool.close()
        self._on_close()


class LocalEnvPool:
    """Pool of environments without phones, each reused for many episodes."""

    def __init__(
        self,
        env_of: EnvOf,
        save_frame: SaveFrame,
        count: int,
        processes: Mapping[str, EnvProcesses] | None = None,
        deadline_s: float = 60.0,
        resize_of: ResizeOf | None = None,
    ) -> None:
        self._resize_of = resize_of
        self.count = self.min_count = count
        self._processes = processes or {}
        self._deadline_s = deadline_s
        self._env_of = env_of
        self._save_frame = save_frame
        self._free: dict[tuple[Split, str], list[EnvRunner]] = defaultdict(list)
        self._slots = asyncio.Semaphore(count)
        self._closing = _Closing()

    async def run_in_env(self, run: RunEpisode, split: Split = "train", name: str = "") -> Episode:
        """See EnvPool.run_in_env; an environment that failed is closed and replaced."""
        async with self._slots:
            free = self._free[split, name]
            runner = free.pop() if free else self._open(split, name)
            try:
                episode = await run(runner)
            except BaseException:
                self._closing.add(runner)
                raise
            # A failure may have left the environment in any state.
            if episode.outcome.void:
                self._closing.add(runner)
            else:
                free.append(runner)
            return episode

    def _open(self, split: Split, name: str) -> EnvRunner:
        env, processes = self._env_of(split, name), self._processes.get(name)
        if processes is None:
            make = partial(env.make, **env.remote_kwargs(self._deadline_s))
        else:
            make = partial(processes.make, env, deadline_s=self._deadline_s)
        return EnvRunner(env, self._save_frame, make=make, resize_of=self._resize_of)

    def close(self) -> None:
        """Close all environments within a time limit."""
        for free in self._free.values():
            while free:
                self._closing.add(free.pop())
        threads = ", and any processes they started keep running; set env.processes to end those"
        self._closing.wait("" if self._processes else threads)
        for processes in set(self._processes.values()):
            processes.close()


def open_env_pool(
    plan: RolloutPlan,
    save_frame: SaveFrame,
    share: tuple[int, int],
    phones: SharedPhones | None = None,
    live: LivePhones | None = None,
    resize_of: ResizeOf | None = None,
) -> EnvPool:
    """Open the environments of a job; see `check_mixture_pool`.

    Args:
        plan: the plan to play.
        save_frame: see EnvRunner.
        share: (k, n): this process is the k-th of n players.
        phones: the pool shared by all processes; None if there is only one process.
        live: receives each phone's state, for the live view.
        resize_of: see EnvRunner.

    Raises:
        ConfigError: a phone cannot be reached.
    """
    _, n = share
    rollout, own = plan.settings.rollout, plan.tasks[""]
    count = max(1, rollout.concurrency // n)
    if own.train.app is None:
        counts = {name: task.train.settings.processes for name, task in plan.tasks.items()}
        processes = {name: EnvProcesses(count) for name, count in counts.items() if count}
        if "" in processes:
            # Rings share the processes of the job's own environment, because the two never play
            # at the same time.
            processes |= dict.fromkeys(plan.rings, processes[""])
        deadline_s = rollout.deadline_s
        return LocalEnvPool(plan.env, save_frame, count, processes, deadline_s, resize_of)
    assert n == 1 or phones is not None, "several processes share one pool"
    pager = PageAssigner([AppSpec(app=own.train.app)], plan.settings.devices.app)
    try:
        pool = (
            open_phone_pool(plan.settings.devices, own.train.id, plan.settings.seed, pager.wrap)
            if phones is None
            else SharedPool(phones, pager.wrap)
        )
    except BaseException:
        pager.close()
        raise
    return PhoneEnvPool(
        plan.env,
        pool,
        save_frame,
        rollout.deadline_s,
        count,
        n,
        on_close=pager.close,
        live=live,
        resize_of=resize_of,
        host=None if phones is None else phones.host,
    )


def check_mixture_pool(own: ResolvedEnv, mixture: Mapping[str, ResolvedEnv]) -> None:
    """Check that one pool can serve all environments of a mixture.

    Any phone may be given to any episode, so either all environments use phones with the same app,
    or none uses a phone.

    Raises:
        ConfigError: the environments differ in this.
    """
    for name, one in mixture.items():
        if one.app != own.app:
            where = (
                "runs without a phone" if own.app is None else f"is played on phones, by {own.app}"
            )
            raise ConfigError(
                f"mixture: {name!r} ({one.id}) cannot be mixed with {own.id} (env.id), "
                f"which {where}; all environments of a job must use phones with the same app, or "
                f"none may use a phone. Train on {name!r} in a separate job"
            )
