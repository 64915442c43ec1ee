"""The interface of engines, which sample replies to prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentrl.types import Prompt, Reply


@dataclass(slots=True, kw_only=True, frozen=True)
class Sampling:
    """Sampling parameters of one reply."""

    temperature: float = 1.0
    """0 is greedy decoding."""
    max_new_tokens: int = 256
    seed: int = 0
    """With the `hf` engine, the same seed gives the same tokens."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the reply besides the model's own."""


class Engine(Protocol):
    """Samples replies from a model. Call `start` first and `close` last, all on one event loop.

    Image tokens and other placeholders can never be sampled. Log-probabilities are those of the
    distribution that was sampled from.
    """

    async def start(self) -> None:
        """Load the model and warm up.

        Raises:
            ConfigError: the model cannot be loaded, or a required package is not installed.
            EngineError: it did not start.
        """

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Sample one reply.

        Raises:
            EngineError: the engine failed, or saw other tokens than the prompt's.
        """

    def begin_episode(self) -> None:
        """Announce one more running episode; a batching engine may wait for its prompt."""

    def end_episode(self) -> None:
        """Announce that a running episode has ended."""

    async def load_weights(self, path: Path, version: int) -> None:
        """Load the weights of a safetensors file and drop all caches of the old ones.

        Raises:
            EngineError: the engine rejected them.
        """

    async def close(self) -> None:
        """End all processes and release all devices; may be called twice."""


class WeightReceiver(Engine, Protocol):
    """An engine that can also receive adapters and transferred weights."""

    async def load_adapter(self, folder: Path, version: int) -> None:
        """Load other LoRA adapters, in PEFT's format, on top of the current weights.

        Raises:
            EngineError: the engine rejected them.
        """

    async def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """Finish all requests and prepare for weights; see `VLLMEngine.begin_weight_update`."""

    async def call_weight_transfer(self, method: str, *arguments: Any) -> None:
        """One call of vLLM's weight-transfer API."""

    async def finish_weight_update(
        self, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        """Use the weights that have arrived; see `VLLMEngine.finish_weight_update`."""

    async def sleep(self) -> None:
        """Release GPU memory until weights are loaded.

        Raises:
            EngineError: its requests did not finish in time.
        """
