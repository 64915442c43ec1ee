"""What answers a prompt with sampled tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentrl.types import Prompt, Reply


@dataclass(slots=True, kw_only=True, frozen=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float = 1.0
    """0 takes the most probable token."""
    max_new_tokens: int = 256
    seed: int = 0
    """Names this draw: with the `hf` engine the same seed gives the same tokens."""


class Engine(Protocol):
    """A model that answers. `start` before use, `close` after; all methods run on one event loop.

    Image tokens and other placeholders can never be sampled. The log-probabilities are those of
    the distribution that was sampled from.
    """

    async def start(self) -> None:
        """Load the model and warm up.

        Raises:
            ConfigError: the model cannot be loaded, or what the engine needs is not installed.
            EngineError: it did not come up.
        """

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Sample one reply.

        Raises:
            EngineError: the engine failed, or saw other tokens than the prompt's.
        """

    def begin_episode(self) -> None:
        """One more episode is being played; an engine that batches may wait for its prompt."""

    def end_episode(self) -> None:
        """One episode less is being played."""

    async def load_weights(self, path: Path, version: int) -> None:
        """Take the weights of a safetensors file and forget everything computed with the old.

        Raises:
            EngineError: the engine refused them.
        """

    async def close(self) -> None:
        """End every process and free every device; may be called twice."""


class WeightReceiver(Engine, Protocol):
    """An engine that also takes weights in other ways than as a file."""

    async def load_adapter(self, folder: Path, version: int) -> None:
        """Answer with other adapters, in PEFT's format, on the weights that it has.

        Raises:
            EngineError: the engine refused them.
        """

    async def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """Come to rest, and wait for weights; see `VLLMEngine.begin_weight_update`."""

    async def call_weight_transfer(self, method: str, *arguments: Any) -> None:
        """One call of vLLM's weight-transfer API."""

    async def finish_weight_update(
        self, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        """Answer with what has come; see `VLLMEngine.finish_weight_update`."""

    async def sleep(self) -> None:
        """Leave memory of the GPU to others until weights come.

        Raises:
            EngineError: it did not come to rest in time.
        """
