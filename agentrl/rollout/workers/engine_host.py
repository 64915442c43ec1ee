"""The engine of one process, and its weights."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from agentrl.actions.dialect import Dialect, Resize
from agentrl.errors import EngineError, WorkerLost
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.configured_image_size import resize_for
from agentrl.policies.engines.engine import Engine, Sampling, TokenEngine
from agentrl.policies.open_encoder import open_encoder
from agentrl.policies.open_engine import engine_class, open_engine
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.types import Prompt, Reply
from agentrl.weight_sync.engine_link import EngineLink, LocalLink
from agentrl.weight_sync.weight_transport import StreamedTransport


class EngineHost:
    """One engine, which starts on first use with the most recent weights.

    Args:
        plan: defines the model, the engine, and the transport of weights.
        folder: the model's configuration, tokenizer and initial weights; None if only scripted
            players or a server's model play, and nothing is trained on their episodes here.
        number: the engine's number in the job; part of its seed.
        version: version of the weights in `folder`, in training steps.
        borrowed: engine to use instead of the configured one; None opens the configured engine.
    """

    count = 1

    def __init__(
        self,
        plan: RolloutPlan,
        folder: Path | None,
        number: int = 0,
        version: int = 0,
        borrowed: TokenEngine | None = None,
    ) -> None:
        self._plan, self._folder = plan, folder
        self._number, self._version, self._borrowed = number, version, borrowed
        self.engine: Engine | None = None
        self._lock = asyncio.Lock()
        self._weights: tuple[Path, int] | None = None
        self._adapter: tuple[Path, int] | None = None

    @cached_property
    def encoder(self) -> ChatEncoder | None:
        """The model's chat template and tokenizer; None without a folder."""
        model, folder = self._plan.settings.model, self._folder
        return None if folder is None else open_encoder(model, folder)

    def resize_of(self, dialect: Dialect) -> Resize:
        """Return how the playing model resizes screens."""
        return resize_for(dialect, self._plan.settings.model, self.encoder)

    @property
    def is_dead(self) -> bool:
        """Whether the engine has died since it was started."""
        return self.engine is not None and not self.engine.is_alive

    async def start(self) -> Engine:
        """Return the engine, starting it if necessary; see Engines.start."""
        async with self._lock:
            if self.engine is None:
                settings, transport = self._plan.settings, self._plan.transport
                engine = self._borrowed or open_engine(
                    settings.rollout,
                    settings.model,
                    self._folder,
                    seed=settings.seed + 1000 * self._number,
                    version=self._version,
                    backend=transport.transport_class().needs.backend,
                    can_sleep=transport.sleeps(),
                )
                try:
                    await engine.start()
                except BaseException:
                    await engine.close()
                    raise
                self.engine = engine
                if self._weights is not None:
                    await self._model_engine.load_weights(*self._weights)
                if self._adapter is not None:
                    await self._model_engine.load_adapter(*self._adapter)
        return self.engine

    @property
    def _model_engine(self) -> TokenEngine:
        assert isinstance(self.engine, TokenEngine), "it was started, and samples from a model here"
        return self.engine

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Generate a reply for a worker without an engine; see `BorrowedEngines`.

        Raises:
            EngineError: see `TokenEngine.generate`.
            WorkerLost: the engine has died.
        """
        await self.start()
        engine = self._model_engine
        # Count each prompt as an episode, as this process does not know where episodes end.
        engine.begin_episode()
        try:
            return await engine.generate(prompt, sampling)
        except EngineError as error:
            if not engine.is_alive:
                raise WorkerLost(f"its engine died: {error}") from error
            raise
        finally:
            engine.end_episode()

    async def sleep(self) -> None:
        """Free the engine's GPU memory for the learner, until the next weights arrive."""
        if self.engine is not None:
            await self._model_engine.sleep()

    # --- weights --------------------------------------------------------------------------

    async def load_weights(self, path: Path, version: int) -> None:
        """Use these weights from now on.

        Raises:
            EngineError: the engine rejected them.
        """
        self._weights = (path, version)
        if self.engine is not None:
            await self._model_engine.load_weights(path, version)

    async def load_adapter(self, folder: Path, version: int) -> None:
        """Use these adapters from now on, on top of the most recently loaded weights.

        Raises:
            EngineError: the engine rejected them.
        """
        self._adapter = (folder, version)
        if self.engine is not None:
            await self._model_engine.load_adapter(folder, version)

    @cached_property
    def _transport(self) -> StreamedTransport:
        """The engine's end of the transport."""
        return cast("StreamedTransport", self._plan.transport.transport_class()())

    async def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """Start the engine if necessary; see `StreamedTransport.begin`.

        Raises:
            EngineError: the weights belong to another model, or generation did not pause in time.
        """
        await self.start()
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
        rollout = self._plan.settings.rollout
        workers = engine_class(rollout).num_workers(rollout.engine_kwargs)
        return LocalLink(self.receive_weights, workers, self._plan.settings.train.deadline_s)

    async def close(self) -> None:
        """Close the engine; may be called twice."""
        engine, self.engine = self.engine, None
        if engine is not None:
            await engine.close()
