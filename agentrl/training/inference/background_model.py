"""A model on a background event loop, for the terminal and for web pages."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from agentrl.policies.model_policy import turn_seed
from agentrl.training.engine_check.engine_comparison import EngineComparison
from agentrl.training.inference.inference_model import (
    GeneratedReply,
    InferenceModel,
    InferenceTarget,
    Show,
    open_inference_model,
)
from agentrl.types import Message

_CLOSE_S = 30.0


class ModelThread:
    """Context manager that starts a model, replies to conversations one by one, and closes it.

    Args:
        target: the model; it runs in this process and its children.
        greedy: always take the most probable token.

    Raises:
        ConfigError: on entering the context: the model cannot be loaded.
        EngineError: on entering the context: the model's engine did not start.
        EngineMismatch: on entering the context: the engine disagrees with transformers.
    """

    def __init__(self, target: InferenceTarget, *, greedy: bool = False) -> None:
        self._target, self._greedy = target, greedy
        self._opened: Future[tuple[InferenceModel, asyncio.AbstractEventLoop]] = Future()
        self._end: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), name="model", daemon=True
        )
        self._num_replies = 0

    async def _run(self) -> None:
        try:
            async with open_inference_model(self._target) as model:
                await model.check_engine()
                self._opened.set_result((model, asyncio.get_running_loop()))
                await asyncio.wrap_future(self._end)
        except BaseException as error:
            # Until the model is open, report errors to the thread that waits for it.
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        if not self._end.done():
            self._end.set_result(None)
        self._thread.join(_CLOSE_S)

    @property
    def engine_check(self) -> EngineComparison | None:
        """Result of the engine's comparison with transformers; None without one."""
        return self._opened.result()[0].engine_check

    def start_reply(
        self, system: str, messages: Sequence[Message], show: Show
    ) -> "Future[GeneratedReply]":
        """Begin a reply; each reply has a different seed.

        Args:
            system: the system message; may be empty.
            messages: messages of the conversation, which ends with a question.
            show: called in the background thread with the reply so far.

        Returns:
            A future of the reply; `cancel` stops it. It may raise `PromptTooLong` or `EngineError`.
        """
        model, loop = self._opened.result()
        seed = turn_seed(self._target.plan.settings.seed, self._num_replies)
        self._num_replies += 1
        sampling = model.sampling(seed, greedy=self._greedy)
        reply = model.reply(system, list(messages), sampling, show)
        return asyncio.run_coroutine_threadsafe(reply, loop)
