"""Play, score and record episodes in this process."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from agentrl.actions.players.player import Player
from agentrl.data.reward_inputs import CHATML
from agentrl.devices import DevicePool
from agentrl.errors import RewardError, WorkerLost
from agentrl.policies.configured_image_size import open_scaler
from agentrl.policies.configured_sampling import configured_sampling
from agentrl.policies.engines.engine import ChatEngine, TokenEngine
from agentrl.policies.guided_policy import GuidedPolicy
from agentrl.policies.model_policy import ChatPolicy, ModelPolicy
from agentrl.policies.policy import Policy
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.replay.live_phone_states import LivePhones
from agentrl.replay.recorder import Recorder
from agentrl.rollout.collector import CollectionProgress, Collector, FailureLog
from agentrl.rollout.env_pool import EnvPool, PhoneEnvPool, open_env_pool
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.environments.load_translator_and_players import load_player
from agentrl.rollout.nodes.shared_phone_pool import SharedPhones, phone_states
from agentrl.rollout.rewards.scoring import RewardFunctions, score_or_void
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.run_episode import EpisodeLimits, EpisodeRequest, run_episode
from agentrl.rollout.workers.engine_host import EngineHost
from agentrl.types import Episode, Observation, ScoredEpisode, Split, TruncatedBy, Turn


class RolloutWorker:
    """The `Rollouts` of one process, the k-th of n processes that share phones and concurrency."""

    def __init__(
        self,
        plan: RolloutPlan,
        folder: Path | None,
        run: Path | None,
        share: tuple[int, int] = (0, 1),
        phones: SharedPhones | None = None,
        version: int = 0,
        borrowed: TokenEngine | None = None,
        digest: str | None = None,
    ) -> None:
        self.engines, self._share = EngineHost(plan, folder, share[0], version, borrowed), share
        self._open = ExitStack()
        """Resources that `finish` closes."""
        self._use(plan, run, phones, digest)

    def _use(
        self, plan: RolloutPlan, run: Path | None, phones: SharedPhones | None, digest: str | None
    ) -> None:
        self._plan, self._run, self._phones, self._digest = plan, run, phones, digest
        self._rewards: dict[str, RewardFunctions] = {}
        self._recorder: Recorder | None = None
        self._live: LivePhones | None = None
        self.progress, self._failures = CollectionProgress(), FailureLog()
        self._policies: dict[tuple[str | None, bool, Split, str], Policy] = {}
        self._guides: dict[str, Player] = {}
        """The player of `env.start`, by environment."""
        self._has_played: set[tuple[Split, str]] = set()
        """Splits and environments in which an episode has had a turn."""

    async def start(self) -> tuple[int, int]:
        """See Rollouts.start.

        Returns:
            The maximum and the minimum number of concurrent episodes; see `EnvPool`.
        """
        # Each episode converts and resizes screens in its own thread: OpenCV's own threads would
        # only compete with them.
        cv2.setNumThreads(1)
        self._open_rewards()
        if self._run is not None:
            self._recorder = Recorder(
                self._run,
                frames=self._plan.settings.run.frames,
                mask=self._plan.settings.devices.mask,
                writer=f"rollout{self._share[0]}",
                config=self._digest or self._plan.settings.digest(),
            )
            self._open.callback(self._recorder.close)
        if self._run is not None and self._plan.tasks[""].train.app is not None:
            host = None if self._phones is None else self._phones.host
            self._live = LivePhones(self._run, f"rollout{self._share[0]}", host=host)
            self._open.callback(self._live.close)
        self.env_pool: EnvPool = self._open_env_pool()
        self._open.callback(lambda: self.env_pool.close())
        # The process that owns shared phones publishes their state.
        pool = self.env_pool.pool if isinstance(self.env_pool, PhoneEnvPool) else None
        if self._live is not None and isinstance(pool, DevicePool):
            self._live.kept = partial(phone_states, pool)
        return self.room

    def _open_env_pool(self) -> EnvPool:
        recorder, of_device = self._recorder, self._plan.settings.run.frames == "device"
        keep = recorder.frame if recorder is not None and of_device else None
        return open_env_pool(
            self._plan, keep, self._share, self._phones, self._live, self.engines.resize_of
        )

    async def use_phones(self, phones: SharedPhones) -> bool:
        """Lease phones from another pool from now on, and end the leases of the old one.

        Returns:
            False, with no effect, if this pool is already in use.
        """
        assert self._phones is not None, "this process owns its phones"
        if phones.actor._actor_id == self._phones.actor._actor_id:
            return False
        old, self._phones = self.env_pool, phones
        self.env_pool = self._open_env_pool()
        await asyncio.to_thread(old.close)
        return True

    @property
    def number(self) -> int:
        """See EpisodeWorker.number."""
        return self._share[0]

    @property
    def room(self) -> tuple[int, int]:
        """See EpisodeWorker.room."""
        return self.env_pool.count, self.env_pool.min_count

    def _open_rewards(self) -> None:
        """Load the rewards of each task; tasks with equal rewards share one process."""
        encoder, tasks = self.engines.encoder, self._plan.playable
        form = CHATML if encoder is None else encoder.query_format
        deadline_s = self._plan.settings.rollout.reward_deadline_s
        for name, task in tasks.items():
            # Otherwise a reward model would be loaded once per environment of a mixture.
            same = (one for one in self._rewards if tasks[one].rewards == task.rewards)
            if (other := next(same, None)) is not None:
                self._rewards[name] = self._rewards[other]
                continue
            self._rewards[name] = RewardFunctions(task.rewards, deadline_s, form)
            self._open.callback(self._rewards[name].close)

    async def finish(self) -> None:
        """See Rollouts.finish."""
        self._open.close()
        self._live = None

    async def switch(
        self,
        plan: RolloutPlan,
        run: Path | None,
        phones: SharedPhones | None = None,
        digest: str | None = None,
    ) -> tuple[int, int]:
        """See Rollouts.switch; for `phones` and `digest` see the class, for the result `start`."""
        await self.finish()
        self._use(plan, run, phones, digest)
        return await self.start()

    def worker_metrics(self) -> dict[str, float]:
        """See Rollouts.worker_metrics."""
        return {"workers": 1.0, "replaced_workers": 0.0}

    async def collect(
        self, requests: Sequence[EpisodeRequest], player: str | None = None, greedy: bool = False
    ) -> list[ScoredEpisode]:
        """See Rollouts.collect."""
        self.progress = CollectionProgress()
        max_refills = self._plan.settings.rollout.max_refills
        collector = Collector(requests, max_refills, self.progress, self._failures)
        return await collector.collect_from([self], player, greedy)

    async def wait_until_ready(self) -> bool:
        """See EpisodeWorker.wait_until_ready; an engine in this process is not replaced."""
        return True

    async def play_request(
        self, request: EpisodeRequest, player: str | None = None, greedy: bool = False
    ) -> ScoredEpisode:
        """Play, score and record one episode, or play its `opening_turns`.

        Returns:
            The episode; void if it failed or could not be scored.

        Raises:
            WorldError: no phone is left.
            WorkerLost: the engine has died.
            RewardError: the episode cannot be scored, with `rollout.reward_failure=error`.
            ConfigError: see `collect`.
        """
        key = (player, greedy, request.split, request.env)
        if key not in self._policies:
            self._policies[key] = await self.policy(*key)
        episode = await self.play_episode(request, self._guided(request, self._policies[key]))
        if episode.outcome.void and self.engines.is_dead:
            raise WorkerLost(f"its engine died: {episode.error}")
        if request.opening_turns is not None:
            rewards = (0.0,) * len(episode.turns)
            return ScoredEpisode(episode=episode, components={}, rewards=rewards)
        scored, failure = await self.record(request, episode)
        if failure is not None and self._plan.settings.rollout.reward_failure == "error":
            raise RewardError(
                f"{episode.id}: {failure}. Set rollout.reward_failure=void to replace such "
                "episodes instead"
            )
        return scored

    def _start_turns(self, request: EpisodeRequest) -> int:
        """Return how many turns `env.start.player` makes, equal for the episodes of a seed."""
        most = self._plan.env(request.split, request.env).settings.start_turns(request.step)
        if request.split != "train" or not most:
            return 0
        return int(np.random.default_rng(self._start_seed(request)).integers(most + 1))

    def _start_seed(self, request: EpisodeRequest) -> list[int]:
        return [self._plan.settings.seed, request.step, request.seed]

    def _guided(self, request: EpisodeRequest, policy: Policy) -> Policy:
        """Return the policy, behind a scripted player if that makes the first turns."""
        turns = self._start_turns(request)
        if not turns or not isinstance(policy, ModelPolicy):
            return policy
        env = self._plan.env(request.split, request.env)
        assert env.settings.start is not None, "otherwise it makes no turns"
        name = env.settings.start.player
        if request.env not in self._guides:
            self._guides[request.env] = load_player(env, name, self.engines.resize_of)
        guide, seed = self._guides[request.env], self._start_seed(request)
        return GuidedPolicy(policy, guide, name, turns, seed)

    async def flush(self) -> None:
        """Wait until all recorded frames are on disk."""
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.flush)

    async def record(
        self, request: EpisodeRequest, episode: Episode
    ) -> tuple[ScoredEpisode, RewardError | None]:
        """Score and record an episode.

        Returns:
            The episode, and the scoring error, if any, which makes it void.
        """
        scored, failure = await score_or_void(self._rewards[request.env].score_async, episode)
        if self._recorder is not None:
            self._recorder.episode(scored, split=request.split, step=request.step)
        return scored, failure

    async def play_episode(
        self,
        request: EpisodeRequest,
        policy: Policy,
        on_turn: Callable[[Turn], None] | None = None,
        on_end: Callable[[Observation], None] | None = None,
    ) -> Episode:
        """Play one episode with any policy, without recording or refilling it.

        Raises:
            WorldError: no phone is available.
        """
        rollout, env = self._plan.settings.rollout, self._plan.env(request.split, request.env)
        recorder = self._recorder
        keep = recorder.frame if recorder and self._plan.settings.run.frames == "model" else None
        max_turns = env.settings.max_turns
        if request.split == "train":
            # What a scripted player does first is no part of a growing horizon.
            horizon = env.settings.training_turns(request.step) + self._start_turns(request)
            max_turns = min(max_turns, horizon)
        is_cut = max_turns < env.settings.max_turns
        if request.opening_turns is not None:
            max_turns = min(max_turns, request.opening_turns)

        async def run(runner: EnvRunner) -> Episode:
            with self._show_live(runner, request, on_turn) as show_turn:
                return await run_episode(
                    request=request,
                    env_id=env.id,
                    runner=runner,
                    policy=policy,
                    seed=request.player_seed(self._plan.settings.seed),
                    limits=EpisodeLimits(
                        max_turns=max_turns,
                        deadline_s=rollout.deadline_s,
                        turn_limit=TruncatedBy.HORIZON if is_cut else TruncatedBy.TURNS,
                        has_played=(request.split, request.env) in self._has_played,
                    ),
                    save_model_frame=keep,
                    on_turn=show_turn,
                    on_end=on_end,
                )

        episode = await self.env_pool.run_in_env(run, request.split, request.env)
        if episode.turns:
            self._has_played.add((request.split, request.env))
        return episode

    @contextmanager
    def _show_live(
        self, runner: EnvRunner, request: EpisodeRequest, on_turn: Callable[[Turn], None] | None
    ) -> Iterator[Callable[[Turn], None] | None]:
        """Show an episode on a phone in the live view, turn by turn."""
        live, serial = self._live, runner.device
        if live is None or serial is None:
            yield on_turn
            return
        number = 0

        def show(turn: Turn) -> None:
            nonlocal number
            number += 1
            live.turn(serial, number, turn.timings.get("act", 0.0))
            if on_turn is not None:
                on_turn(turn)

        live.playing(serial, request.id)
        try:
            yield show
        finally:
            live.idle(serial)

    async def policy(
        self, player: str | None, greedy: bool, split: Split, name: str = ""
    ) -> Policy:
        """Open a scripted player or the model, starting its engine if necessary.

        Raises:
            ConfigError: the player does not exist, the engine cannot start, or the server does not
                answer.
        """
        rollout, env = self._plan.settings.rollout, self._plan.env(split, name)
        encoder, history = self.engines.encoder, env.history
        scale = open_scaler(self._plan.settings.model)
        if player is not None:
            return ScriptedPolicy(
                load_player(env, player, self.engines.resize_of),
                encoder=encoder,
                history=history,
                scale=scale,
                max_tokens=rollout.max_new_tokens if split == "demo" else None,
            )
        sampling = configured_sampling(rollout, encoder, greedy=greedy, stop_texts=env.stop_texts)
        engine = await self.engines.start()
        if isinstance(engine, ChatEngine):
            return ChatPolicy(engine, history=history, sampling=sampling, scale=scale)
        assert isinstance(engine, TokenEngine), "the other kind"
        assert encoder is not None, "a model has a folder"
        return ModelPolicy(
            engine, encoder, history=history, sampling=sampling, max_context=rollout.max_context
        )

    async def close(self) -> None:
        """See Rollouts.close."""
        try:
            await self.finish()
        finally:
            await self.engines.close()
