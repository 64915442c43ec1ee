"""Transformers as an engine: runs anywhere and is bit-for-bit reproducible.

The composition of a batch changes the last digits of its results. To keep it independent of timing,
a batch starts only when every running episode is waiting for a reply, and prompts are sorted by
content and seed. Batches do not wait for episodes whose environment is very slow.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentrl import accelerators
from agentrl.errors import EngineError, boundary
from agentrl.event_loop import off_the_clock
from agentrl.policies.engines.engine import (
    EngineCapabilities,
    EngineSettings,
    Sampling,
    TokenEngine,
)
from agentrl.policies.engines.weight_checks import check_digest, check_header
from agentrl.policies.models import load_model
from agentrl.types import Prompt, Reply

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True, frozen=True, eq=False)
class _Request:
    """A prompt waiting for its reply."""

    prompt: Prompt
    sampling: Sampling
    digest: bytes
    future: asyncio.Future[Reply]
    task: asyncio.Task[Any] | None
    """Task of the episode; None for a streamed reply, which is not batched."""


class HFEngine(TokenEngine):
    """Generates with transformers.

    Args:
        settings: see `EngineSettings`.
        device: `auto` uses a GPU if there is one.
        max_batch: maximum number of prompts in a batch.
        patience_s: how long a batch waits for the other running episodes. Slower episodes join a
            later batch, whose composition then depends on timing.
    """

    capabilities = EngineCapabilities(
        reproducible=True, uses_attention=True, samples_top_p=True, reports_top_logprobs=True
    )

    def __init__(
        self,
        settings: EngineSettings,
        *,
        device: str = "auto",
        max_batch: int = 64,
        patience_s: float = 60.0,
    ) -> None:
        super().__init__(settings)
        self._path = settings.model_folder
        self._device, self._max_batch = device, max_batch
        self._model: nn.Module | None = None
        self._version = settings.version
        self._patience_s = patience_s
        self._playing: list[asyncio.Task[Any] | None] = []
        """The task of each running episode."""
        self._late: set[asyncio.Task[Any] | None] = set()
        """Tasks of slow episodes. Batches do not wait for them until they request a reply again."""
        self._waiting: list[_Request] = []
        self._started = asyncio.Event()
        """Set when the batch of the waiting requests starts; each batch has its own event."""
        self._scheduled: asyncio.Handle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hf-engine")

    async def start(self) -> None:
        """Load the model."""
        self._encoder = self.settings.open_encoder()
        self._model = await self._in_thread(self._load)

    def _load(self) -> nn.Module:
        model = load_model(
            self._path,
            model_adapter=self._encoder.model_adapter,
            dtype=self.settings.dtype,
            attention=self.settings.attention,
            device=str(accelerators.device()) if self._device == "auto" else self._device,
        )
        return model.eval().requires_grad_(False)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Sample one reply, batched with the replies of the other running episodes."""
        from agentrl.policies.engines.hf_decoding import prompt_digest

        if self._model is None:
            raise EngineError("the hf engine has not been started or was closed")
        request = _Request(
            prompt=prompt,
            sampling=sampling,
            digest=prompt_digest(prompt),
            future=asyncio.get_running_loop().create_future(),
            task=asyncio.current_task(),
        )
        self._late.discard(request.task)
        self._waiting.append(request)
        self._start_batch_if_complete()
        try:
            with off_the_clock():
                await self._started.wait()
            return await request.future
        finally:
            self._waiting = [other for other in self._waiting if other is not request]

    async def stream(
        self, prompt: Prompt, sampling: Sampling, show: Callable[[tuple[int, ...]], None]
    ) -> Reply:
        """See `TokenEngine.stream`; the reply is generated on its own, not in a batch."""
        from agentrl.policies.engines.hf_decoding import prompt_digest

        loop = asyncio.get_running_loop()
        is_over = threading.Event()

        def report(token_ids: tuple[int, ...]) -> None:
            # The caller is gone, so stop generating.
            if is_over.is_set():
                raise EngineError("the reply was cancelled")
            loop.call_soon_threadsafe(show, token_ids)

        request = _Request(
            prompt=prompt,
            sampling=sampling,
            digest=prompt_digest(prompt),
            future=loop.create_future(),
            task=None,
        )
        try:
            with boundary(EngineError, "hf engine: generating a reply"):
                async with asyncio.timeout(self.settings.deadline_s):
                    (reply,) = await self._in_thread(lambda: self._replies([request], report))
        finally:
            is_over.set()
        return reply

    def begin_episode(self) -> None:
        """Register one more running episode, whose prompt batches wait for."""
        self._playing.append(asyncio.current_task())

    def end_episode(self) -> None:
        """Unregister a running episode that has ended."""
        assert self._playing, "more episodes ended than began"
        task = asyncio.current_task()
        self._playing.remove(task if task in self._playing else self._playing[0])
        self._late &= {*self._playing}
        self._start_batch_if_complete()

    async def load_weights(self, path: Path, version: int) -> None:
        """Load the weights of a safetensors file in place."""
        with boundary(EngineError, f"hf engine: loading weights from {path}"):
            await self._in_thread(lambda: self._copy_weights(path, version))

    def _copy_weights(self, path: Path, version: int) -> None:
        from safetensors.torch import load_file

        assert self._model is not None
        check_header(self._model, path)
        self._model.load_state_dict(load_file(path), strict=False)
        check_digest(path, self._model.state_dict())
        # Set here, not in load_weights, because the next batch may begin before that resumes.
        self._version = version

    async def close(self) -> None:
        """Fail all waiting requests and release the model."""
        for request in self._waiting:
            if not request.future.done():
                request.future.set_exception(EngineError("the hf engine was closed"))
        self._waiting.clear()
        self._started.set()
        self._model = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _start_batch_if_complete(self) -> None:
        """Start a batch in the next iteration of the event loop if all running episodes wait."""
        loop = asyncio.get_running_loop()
        if self._is_complete() and self._scheduled is None:
            self._scheduled = loop.call_soon(self._start_batch)
        elif self._waiting and self._patience is None:
            self._patience = loop.call_later(self._patience_s, self._stop_waiting)

    def _is_complete(self) -> bool:
        expected = sum(task not in self._late for task in self._playing)
        return bool(self._waiting) and len(self._waiting) >= expected

    def _stop_waiting(self) -> None:
        """Stop waiting for slow episodes, and start the batch without them."""
        self._patience = None
        if self._waiting and not self._tasks:
            late = {*self._playing} - {request.task for request in self._waiting}
            log.warning(
                "%d running episodes have not requested a reply within %g s; batches of the other "
                "episodes no longer wait for them and are not reproducible "
                "(rollout.engine_kwargs.patience_s)",
                len(late),
                self._patience_s,
            )
            self._late |= late
        self._start_batch_if_complete()

    def _start_batch(self) -> None:
        self._scheduled = None
        if not self._is_complete():
            return
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        # Sorting puts equal prompts next to each other, so that a batch prefills them once.
        complete = sorted(self._waiting, key=lambda one: (one.digest, one.sampling.seed))
        self._waiting = []
        self._started.set()
        self._started = asyncio.Event()
        for first in range(0, len(complete), self._max_batch):
            task = asyncio.ensure_future(self._run(complete[first : first + self._max_batch]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, batch: Sequence[_Request]) -> None:
        try:
            with boundary(EngineError, f"hf engine: generating a batch of {len(batch)} replies"):
                async with asyncio.timeout(self.settings.deadline_s):
                    replies = await self._in_thread(lambda: self._replies(batch))
        except EngineError as error:
            log.error("%s", error)
            for request in batch:
                if not request.future.done():
                    request.future.set_exception(EngineError(str(error)))
            return
        # Skip futures that are already done, because episodes may have been cancelled meanwhile.
        for request, reply in zip(batch, replies, strict=True):
            if not request.future.done():
                request.future.set_result(reply)

    def _replies(
        self,
        batch: Sequence[_Request],
        report: Callable[[tuple[int, ...]], None] | None = None,
    ) -> list[Reply]:
        """Generate a batch of replies; `report` gets the first reply's tokens as they are drawn."""
        from agentrl.policies.engines.hf_decoding import generate_batch

        if self._model is None:
            raise EngineError("the hf engine was closed")
        version = self._version
        sampled = generate_batch(
            self._model,
            self._encoder.model_adapter,
            [request.prompt for request in batch],
            [request.sampling for request in batch],
            self._encoder.eos_token_ids,
            [request.digest for request in batch],
            report,
        )
        return [
            Reply(
                token_ids=tuple(d.token_ids),
                logprobs=tuple(d.logprobs),
                version=version,
                top_logprobs=tuple(d.top_logprobs),
            )
            for d in sampled
        ]

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
