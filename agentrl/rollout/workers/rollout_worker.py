"""Play the episodes of a step with one engine, its environments and a recorder, without Ray."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import cv2

from agentrl.actions.dialect import Dialect, Resize
from agentrl.data.reward_inputs import CHATML
from agentrl.devices import DevicePool
from agentrl.errors import EngineError, RewardError, WorkerLost
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.engine import ChatEngine, Engine, Sampling, TokenEngine
from agentrl.policies.model_policy import ChatPolicy, ModelPolicy
from agentrl.policies.open_model import (
    engine_class,
    open_encoder,
    open_engine,
    open_scaler,
    resize_for,
)
from agentrl.policies.policy import Policy
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.replay.live_phones import LivePhones
from agentrl.replay.recorder import Recorder
from agentrl.rollout.collector import CollectionProgress, Collector
from agentrl.rollout.env_pool import EnvPool, open_env_pool
from agentrl.rollout.env_runner import EnvRunner
from agentrl.rollout.failure_log import FailureLog
from agentrl.rollout.load_translator_and_players import load_player
from agentrl.rollout.nodes.shared_phone_pool import SharedPhones, phone_states
from agentrl.rollout.play_plan import PlayPlan
from agentrl.rollout.run_episode import EpisodeLimits, EpisodeRequest, run_episode
from agentrl.rollout.scoring import RewardFunctions, score_or_void
from agentrl.types import Episode, Observation, Prompt, Reply, ScoredEpisode, Split, Turn
from agentrl.weight_sync.engine_link import EngineLink, LocalLink
from agentrl.weight_sync.weight_transport import StreamedTransport


class RolloutWorker:
    """Plays episodes with a model or a scripted player.

    Args:
        plan: what is played.
        folder: the model's configuration, tokenizer and initial weights; None if only scripted
            players or a server's model play, and nothing is trained on their episodes here.
        run: the run's folder, in which episodes are recorded; None records nothing.
        share: (k, n): this is the k-th of n workers that share phones and concurrency.
        phones: the pool shared by the workers; None if this process has its own phones.
        version: version of the weights in `folder`, in training steps.
        borrowed: plays instead of the configured engine; None opens that.
        digest: recorded with episodes; None for that of its configuration.
    """

    def __init__(
        self,
        plan: PlayPlan,
        folder: Path | None,
        run: Path | None,
        share: tuple[int, int] = (0, 1),
        phones: SharedPhones | None = None,
        version: int = 0,
        borrowed: TokenEngine | None = None,
        digest: str | None = None,
    ) -> None:
        self._borrowed = borrowed
        self._use(plan, digest)
        self._folder = folder
        self._run = run
        self._share = share
        self._phones = phones
        self._version = version
        self._encoder: ChatEncoder | None = None
        self._exit = AsyncExitStack()
        self._run_exit = AsyncExitStack()
        """Resources that `finish` closes."""
        self.engine: Engine | None = None
        self._engine_lock = asyncio.Lock()
        self._weights: tuple[Path, int] | None = None
        self._adapter: tuple[Path, int] | None = None
        self._live: LivePhones | None = None
        self.progress = CollectionProgress()
        self._failures = FailureLog()
        self._policies: dict[tuple[str | None, bool, Split, str], Policy] = {}

    def _use(self, plan: PlayPlan, digest: str | None) -> None:
        self._plan, self._digest = plan, digest
        self._has_played: set[tuple[Split, str]] = set()
        """Splits and environments that had an episode with a turn."""

    async def start(self) -> tuple[int, int]:
        """Open the phones and the recorder; the engine starts when the model first plays.

        Returns:
            The maximum and the minimum number of concurrent episodes; see `EnvPool`.

        Raises:
            ConfigError: a phone cannot be reached, or see `RewardFunctions`.
        """
        # As many threads as episodes convert and resize screens: OpenCV's own would only contend.
        cv2.setNumThreads(1)
        if self._folder is not None:
            self._encoder = open_encoder(self._plan.model, self._folder)
        form = CHATML if self._encoder is None else self._encoder.query_format
        deadline_s = self._plan.rollout.reward_deadline_s
        self._rewards: dict[str, RewardFunctions] = {}
        tasks = self._plan.tasks
        for name, task in tasks.items():
            same = (one for one in self._rewards if tasks[one].rewards == task.rewards)
            if (other := next(same, None)) is not None:
                self._rewards[name] = self._rewards[other]
                continue
            self._rewards[name] = RewardFunctions(task.rewards, deadline_s, form)
            self._run_exit.callback(self._rewards[name].close)
        if self._run is not None:
            self._recorder: Recorder | None = Recorder(
                self._run,
                frames=self._plan.run.frames,
                mask=self._plan.devices.mask,
                writer=f"rollout{self._share[0]}",
                config=self._digest or self._plan.source.digest(),
            )
            self._run_exit.callback(self._recorder.close)
        else:
            self._recorder = None
        keep = self._recorder.frame if self._recorder and self._frames == "device" else None
        if self._run is not None and tasks[""].train.app is not None:
            host = None if self._phones is None else self._phones.host
            self._live = LivePhones(self._run, f"rollout{self._share[0]}", host=host)
            self._run_exit.callback(self._live.close)
        self.env_pool: EnvPool = open_env_pool(
            self._plan, keep, self._share, self._phones, self._live, self.resize_of
        )
        self._run_exit.callback(self.env_pool.close)
        pool = getattr(self.env_pool, "pool", None)
        if self._live is not None and isinstance(pool, DevicePool):
            self._live.kept = partial(phone_states, pool)
        return self.env_pool.count, self.env_pool.min_count

    async def finish(self) -> None:
        """Close the phones, the environments and the recorder, but not the engine; see `switch`."""
        await self._run_exit.aclose()
        self._live = None

    async def switch(
        self,
        plan: PlayPlan,
        run: Path | None,
        phones: SharedPhones | None = None,
        digest: str | None = None,
    ) -> tuple[int, int]:
        """Play another environment from now on, with the same engine and weights.

        Args:
            plan: may have other environments, rewards, evaluation and run.
            run: see the class.
            phones: see the class.
            digest: see the class.

        Returns:
            See `start`.

        Raises:
            ConfigError: see `start`.
        """
        await self.finish()
        self._run, self._phones = run, phones
        self._use(plan, digest)
        self.progress, self._failures = CollectionProgress(), FailureLog()
        self._policies.clear()
        return await self.start()

    def resize_of(self, dialect: Dialect) -> Resize:
        """The resize that the model that plays applies to screens."""
        return resize_for(dialect, self._plan.model, self._encoder)

    async def get_progress(self) -> CollectionProgress:
        """Progress of the running collection."""
        return self.progress

    @property
    def _frames(self) -> str:
        return self._plan.run.frames

    num_engines = 1

    def worker_metrics(self) -> dict[str, float]:
        """See `RolloutWorkerGroup.worker_metrics`."""
        return {"workers": 1.0, "replaced_workers": 0.0}

    async def start_engine(self) -> None:
        """Start the engine, or connect to the server, before the model first plays.

        Raises:
            ConfigError: see `Engine.start`.
            EngineError: it did not start.
        """
        await self._started_engine()

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Reply to a worker that has no engine; see `BorrowedEngines`.

        Raises:
            EngineError: see `TokenEngine.generate`.
            WorkerLost: the engine has died.
        """
        await self._started_engine()
        engine = self._model_engine
        engine.begin_episode()
        try:
            return await engine.generate(prompt, sampling)
        except EngineError as error:
            if not engine.is_alive:
                raise WorkerLost(f"its engine died: {error}") from error
            raise
        finally:
            engine.end_episode()

    async def load_weights(self, path: Path, version: int) -> None:
        """Use these weights from now on.

        Raises:
            EngineError: the engine rejected them.
        """
        self._weights = (path, version)
        if self.engine is not None:
            await self._model_engine.load_weights(path, version)

    async def load_adapter(self, folder: Path, version: int) -> None:
        """Use these adapters from now on, on top of the weights that were loaded last.

        Raises:
            EngineError: the engine rejected them.
        """
        self._adapter = (folder, version)
        if self.engine is not None:
            await self._model_engine.load_adapter(folder, version)

    async def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """Start the engine if necessary; see `StreamedTransport.begin`.

        Raises:
            EngineError: the weights are of another model, or generation did not pause in time.
        """
        await self._started_engine()
        await self._transport.begin(self._model_engine, version, shapes, checked)

    async def receive_weights(self, message: Any) -> None:
        """See `StreamedTransport.receive`."""
        await self._transport.receive(self._model_engine, message)

    async def finish_weight_update(
        self, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        """Use the received weights; see `StreamedTransport.finish`."""
        await self._transport.finish(self._model_engine, version, names, digest)

    def link(self) -> EngineLink:
        """Return a link for the learner's messages to the engine, on this process's event loop."""
        rollout = self._plan.rollout
        workers = engine_class(rollout).num_workers(rollout.engine_kwargs)
        return LocalLink(self.receive_weights, workers, self._plan.message_s)

    async def sleep(self) -> None:
        """Free the engine's GPU memory for the learner, until the next weights arrive."""
        if self.engine is not None:
            await self._model_engine.sleep()

    @property
    def _model_engine(self) -> TokenEngine:
        assert isinstance(self.engine, TokenEngine), "it was started, and samples from a model here"
        return self.engine

    @cached_property
    def _transport(self) -> StreamedTransport:
        """The engine's end of the transport."""
        return cast("StreamedTransport", self._plan.transport.transport_class()())

    async def collect(
        self, requests: Sequence[EpisodeRequest], player: str | None = None, greedy: bool = False
    ) -> list[ScoredEpisode]:
        """Play these episodes concurrently, in any order.

        Args:
            requests: what to play; all of one split.
            player: a scripted player's name; None for the model.
            greedy: the model always takes its most probable token.

        Returns:
            One scored episode per request, in the order of the requests.

        Raises:
            WorldError: more than half of the episodes are void, or no phone is left.
            ConfigError: there is no such player, or the engine cannot start.
        """
        self.progress = CollectionProgress()
        max_refills = self._plan.rollout.max_refills
        collector = Collector(requests, max_refills, self.progress, self._failures)
        play = partial(self.play_request, player=player, greedy=greedy)
        slots = min(self.env_pool.count, len(requests))
        return await collector.collect(collector.play_requests(play) for _ in range(slots))

    async def play_request(
        self, request: EpisodeRequest, player: str | None = None, greedy: bool = False
    ) -> ScoredEpisode:
        """Play, score and record one episode.

        Args:
            request: what to play.
            player: see `collect`.
            greedy: see `collect`.

        Returns:
            The episode; void if it failed or could not be scored.

        Raises:
            WorldError: no phone is left.
            WorkerLost: the engine has died.
            RewardError: it cannot be scored, with `rollout.reward_failure=error`.
            ConfigError: see `collect`.
        """
        key = (player, greedy, request.split, request.env)
        if key not in self._policies:
            self._policies[key] = await self.policy(*key)
        episode = await self._play(request, self._policies[key])
        if episode.outcome.void and self.engine is not None and not self.engine.is_alive:
            raise WorkerLost(f"its engine died: {episode.error}")
        scored, failure = await self.record(request, episode)
        if failure is not None and self._plan.rollout.reward_failure == "error":
            raise RewardError(
                f"{episode.id}: {failure}. With rollout.reward_failure=void the episode would be "
                "replaced instead"
            )
        return scored

    async def flush(self) -> None:
        """Wait until all recorded frames are on the disk."""
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.flush)

    async def play(
        self,
        request: EpisodeRequest,
        policy: Policy,
        on_turn: Callable[[Turn], None],
        on_end: Callable[[Observation], None],
    ) -> Episode:
        """Play one episode with any policy; it is neither recorded nor refilled.

        Args:
            request: which episode.
            policy: the player.
            on_turn: called with each turn when it ends.
            on_end: called with the final observation, unless the player has replied to it.

        Raises:
            WorldError: no phone is available.
        """
        return await self._play(request, policy, on_turn, on_end)

    async def record(
        self, request: EpisodeRequest, episode: Episode
    ) -> tuple[ScoredEpisode, RewardError | None]:
        """Score and record an episode of `play`.

        Returns:
            The episode, and why it could not be scored, which makes it void.
        """
        scored, failure = await score_or_void(self._rewards[request.env].score_async, episode)
        self._record(request, scored)
        return scored, failure

    async def _play(
        self,
        request: EpisodeRequest,
        policy: Policy,
        on_turn: Callable[[Turn], None] | None = None,
        on_end: Callable[[Observation], None] | None = None,
    ) -> Episode:
        rollout, env = self._plan.rollout, self._plan.env(request.split, request.env)
        keep = self._recorder.frame if self._recorder and self._frames == "model" else None

        async def play(runner: EnvRunner) -> Episode:
            with self._show_live(runner, request, on_turn) as show_turn:
                return await run_episode(
                    request=request,
                    env_id=env.id,
                    runner=runner,
                    policy=policy,
                    seed=request.player_seed(self._plan.seed),
                    limits=EpisodeLimits(
                        max_turns=env.settings.max_turns,
                        deadline_s=rollout.deadline_s,
                        has_played=(request.split, request.env) in self._has_played,
                    ),
                    save_model_frame=keep,
                    on_turn=show_turn,
                    on_end=on_end,
                )

        episode = await self.env_pool.run_in_env(play, request.split, request.env)
        if episode.turns:
            self._has_played.add((request.split, request.env))
        return episode

    @contextmanager
    def _show_live(
        self, runner: EnvRunner, request: EpisodeRequest, on_turn: Callable[[Turn], None] | None
    ) -> Iterator[Callable[[Turn], None] | None]:
        """Show in the live view what is played on a phone, turn by turn."""
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

    def _record(self, request: EpisodeRequest, scored: ScoredEpisode) -> None:
        if self._recorder is not None:
            self._recorder.episode(scored, split=request.split, step=request.step)

    async def policy(
        self, player: str | None, greedy: bool, split: Split, name: str = ""
    ) -> Policy:
        """A scripted player, or the model, whose engine or server connection is started if needed.

        Args:
            player: a scripted player's name; None for the model.
            greedy: see `collect`.
            split: what the player's settings depend on.
            name: of an environment in `mixture`; empty for the job's own.

        Raises:
            ConfigError: there is no such player, the engine cannot start, or the server does not
                answer.
        """
        env = self._plan.env(split, name)
        if player is not None:
            return ScriptedPolicy(
                load_player(env, player, self.resize_of),
                encoder=self._encoder,
                history=env.history,
                scale=open_scaler(self._plan.model),
                max_tokens=self._plan.rollout.max_new_tokens if split == "demo" else None,
            )
        rollout = self._plan.rollout
        history, stop = env.history, env.stop_texts
        sampling = Sampling(
            temperature=0.0 if greedy else rollout.temperature,
            top_p=rollout.top_p,
            max_new_tokens=rollout.max_new_tokens,
            stop_token_ids=self._encoder.single_tokens(stop) if self._encoder else (),
            stop_texts=stop,
            top_logprobs=rollout.top_logprobs,
        )
        engine = await self._started_engine()
        if isinstance(engine, ChatEngine):
            return ChatPolicy(
                engine,
                history=history,
                sampling=sampling,
                scale=open_scaler(self._plan.model),
            )
        assert self._encoder is not None, "a model has a folder"
        return ModelPolicy(
            self._model_engine,
            self._encoder,
            history=history,
            sampling=sampling,
            max_context=rollout.max_context,
        )

    async def _started_engine(self) -> Engine:
        async with self._engine_lock:
            if self.engine is None:
                plan, transport = self._plan, self._plan.transport
                engine = self._borrowed or open_engine(
                    plan.rollout,
                    plan.model,
                    self._folder,
                    seed=plan.seed + 1000 * self._share[0],
                    version=self._version,
                    backend=transport.transport_class().needs.backend,
                    can_sleep=transport.sleeps(),
                )
                self._exit.push_async_callback(engine.close)
                await engine.start()
                self.engine = engine
                if self._weights is not None:
                    await self._model_engine.load_weights(*self._weights)
                if self._adapter is not None:
                    await self._model_engine.load_adapter(*self._adapter)
        return self.engine

    async def close(self) -> None:
        """Close the engine and the phones; may be called twice."""
        try:
            await self.finish()
        finally:
            await self._exit.aclose()
