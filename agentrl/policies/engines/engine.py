"""The interface of engines, which sample replies; `rollout.engine` selects one.

A `TokenEngine` samples from a model folder on this machine: token ids in, token ids and their
log-probabilities out. A `ChatEngine` passes messages to a model on a server. The rest of the
package never checks an engine's name, only its `Engine.capabilities`.
"""

from __future__ import annotations

import ast
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from agentrl import extras
from agentrl.config import EndpointConfig, RolloutConfig
from agentrl.errors import ConfigError, EngineError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.text.name_suggestions import did_you_mean
from agentrl.types import Prompt, Reply, TopLogprobs

if TYPE_CHECKING:
    from agentrl.policies.models.model_adapter import ModelAdapter


@dataclass(slots=True, kw_only=True, frozen=True)
class Sampling:
    """Sampling parameters of one reply."""

    temperature: float = 1.0
    """0 is greedy decoding."""
    top_p: float = 1.0
    """Same as `rollout.top_p`."""
    max_new_tokens: int = 256
    seed: int = 0
    """The same seed gives the same tokens if the engine is `reproducible`."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the reply, in addition to the model's own end tokens."""
    stop_texts: tuple[str, ...] = ()
    """Strings that end the reply of a `ChatEngine`, which has no token ids."""
    top_logprobs: int = 0
    """How many of the most probable tokens to report at each position. The engine may report fewer,
    because banned tokens are left out."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Completion:
    """One reply from a server."""

    text: str
    prompt_ids: tuple[int, ...] = ()
    """[P], empty if the server does not report tokens."""
    reply_ids: tuple[int, ...] = ()
    """[R], empty if the server does not report tokens."""
    logprobs: tuple[float, ...] = ()
    """[R], as reported. vLLM reports them before applying the temperature, unless it was started
    with `--logprobs-mode processed_logprobs`."""
    top_logprobs: tuple[TopLogprobs, ...] = ()
    """[R], as reported; empty if the server does not report them by token id."""
    finish_reason: str | None = None
    """`stop` or `length`, as reported."""
    num_prompt_tokens: int | None = None
    num_reply_tokens: int | None = None


@dataclass(slots=True, kw_only=True, frozen=True)
class EngineCapabilities:
    """Capabilities and requirements of an engine, known without importing its libraries."""

    trains: bool = True
    """Whether the engine can load new weights, so that its model can be trained."""
    needs_model: bool = True
    """Whether the engine needs the model's folder on this machine."""
    reproducible: bool = False
    """Whether the same prompt and seed give the same tokens, whatever else is in the batch."""
    sleeps: bool = False
    """Whether the engine can release its GPU memory between weight updates."""
    max_lora_rank: int = 0
    """Maximum rank of LoRA adapters that the engine can apply; 0 if it does not support
    adapters."""
    max_temperature: float | None = None
    """Highest temperature; None if there is no maximum."""
    samples_top_p: bool = False
    """Whether the engine supports `Sampling.top_p`."""
    reports_top_logprobs: bool = False
    """Whether the engine supports `Sampling.top_logprobs`."""
    uses_attention: bool = False
    """Whether the engine uses the `model.attention` setting."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Additional packages that the engine imports, each with the message to show if it is
    missing."""
    tiny_turns_per_s: float | None = None
    """Turns per second of the built-in tiny model on two cores, with 32 virtual phones without
    effect delay and one screen per prompt; None if not measured."""


@dataclass(slots=True, kw_only=True, frozen=True)
class EngineSettings:
    """Settings that every engine receives; `rollout.engine_kwargs` is passed separately."""

    folder: Path | None = None
    """The model's folder; None only for engines that need no model folder."""
    version: int = 0
    """Version of the weights in the folder, reported with replies."""
    dtype: str = "float32"
    """`float32` or `bfloat16`."""
    attention: str = "auto"
    """Same as `model.attention`."""
    adapter: str = "auto"
    """Same as `model.adapter`."""
    chat: str = "auto"
    """Same as `model.chat`."""
    chat_options: Mapping[str, Any] = field(default_factory=dict)
    """Same as `model.chat_options`."""
    max_context: int = 4096
    """Maximum number of tokens in a prompt and its reply."""
    concurrency: int = 32
    """Maximum number of concurrent episodes."""
    deadline_s: float = 600.0
    """Time limit for one reply, and for a weight update."""
    start_deadline_s: float = 600.0
    """Time that the engine may take to start."""
    seed: int = 0
    """Seed of the shared random stream, in engines that use one stream for all prompts."""
    backend: str | None = None
    """Weight-transfer backend of the engine that `train.weight_transfer` selects, if any."""
    lora_rank: int = 0
    """Maximum rank of the adapters for `load_adapter`; 0 if no adapters will be loaded."""
    can_sleep: bool = False
    """Whether `sleep` will be called."""
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    """The server of a `ChatEngine`."""

    @property
    def model_folder(self) -> Path:
        """The model's folder, for engines that need one."""
        assert self.folder is not None, "this engine needs a model folder"
        return self.folder

    def open_encoder(self) -> ChatEncoder:
        """Open the model's encoder, with the adapter of its family.

        Raises:
            ConfigError: the model cannot be used for chats.
        """
        return ChatEncoder(
            self.model_folder, adapter=self.adapter, chat=self.chat, chat_options=self.chat_options
        )


class Engine(ABC):
    """Base class of the engines that `rollout.engine` names.

    Args:
        settings: settings common to all engines. Subclasses take `engine_kwargs` as keyword-only
            arguments; `check` reads their names from the signature.
    """

    capabilities: ClassVar[EngineCapabilities] = EngineCapabilities()

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    @classmethod
    def check(cls, rollout: RolloutConfig) -> None:
        """Validate an engine's settings before any work starts, without importing its libraries.

        Raises:
            ConfigError: the engine does not support a setting.
        """
        most = cls.capabilities.max_temperature
        if most is not None and rollout.temperature > most:
            raise ConfigError(
                f"rollout.temperature={rollout.temperature} is too high for "
                f"rollout.engine={rollout.engine}; the maximum is {most:g}"
            )
        if rollout.top_p < 1 and not cls.capabilities.samples_top_p:
            raise ConfigError(
                f"rollout.top_p={rollout.top_p} is not supported by "
                f"rollout.engine={rollout.engine}; set rollout.top_p=1"
            )
        if rollout.top_logprobs and not cls.capabilities.reports_top_logprobs:
            raise ConfigError(
                f"rollout.top_logprobs={rollout.top_logprobs} is not supported by "
                f"rollout.engine={rollout.engine}; set rollout.top_logprobs=0"
            )
        known = cls.known_kwargs() if rollout.engine_kwargs else None
        for name in rollout.engine_kwargs:
            if known is not None and name not in known:
                raise ConfigError(
                    f"rollout.engine_kwargs.{name}: {rollout.engine} has no such argument"
                    f"{did_you_mean(name, known)}"
                )

    @classmethod
    def why_not_train(cls, folder: Path, family: type[ModelAdapter], gpus: int) -> str | None:
        """Return why the engine's sampling probabilities differ from the learner's, or None.

        Args:
            folder: folder with the model's config.json.
            family: class of the model's adapter.
            gpus: number of GPUs of the job.
        """
        return None

    @classmethod
    def known_kwargs(cls) -> list[str] | None:
        """Return the names allowed in `rollout.engine_kwargs`; None if they are unknown."""
        # A class that takes any keyword passes them on to its library.
        parameters = inspect.signature(cls.__init__).parameters.values()
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            return None
        return _keyword_only(cls)

    @classmethod
    def with_named_kwargs(cls, known: list[str]) -> list[str]:
        """Add the constructor's keyword arguments to the names that a library accepts."""
        return [*known, *(name for base in cls.__mro__ for name in _keyword_only(base))]

    @classmethod
    def missing_packages(cls, rollout: RolloutConfig) -> list[str]:
        """Return one message for each required package that is missing, with how to install it."""
        return extras.missing(cls.capabilities.packages)

    @classmethod
    def num_workers(cls, engine_kwargs: Mapping[str, Any]) -> int:
        """Return an engine's number of worker processes, each of which uses one GPU.

        Raises:
            ConfigError: a parallel size is not a whole number of at least 1.
        """
        return 1

    @classmethod
    def num_gpus(cls, engine_kwargs: Mapping[str, Any]) -> int:
        """Return the number of GPUs that an engine uses, if the machine has any."""
        return cls.num_workers(engine_kwargs)

    @classmethod
    def memory_share(cls, engine_kwargs: Mapping[str, Any], free: float) -> float:
        """Return the share of a GPU's memory used for weights, activations and KV cache.

        Args:
            engine_kwargs: see `rollout.engine_kwargs`.
            free: share of the memory that is free when the engine starts.
        """
        return free

    @abstractmethod
    async def start(self) -> None:
        """Load the model and warm up, or connect to the server.

        Raises:
            ConfigError: the model cannot be loaded, or a required package is not installed.
            EngineError: the engine did not start.
        """

    @property
    def is_alive(self) -> bool:
        """Whether a started engine can still answer; False if its processes have died."""
        return True

    @abstractmethod
    async def close(self) -> None:
        """End all processes and release all devices. Idempotent."""


def parallel_size(engine_kwargs: Mapping[str, Any], name: str) -> int:
    """Read a parallel size (default 1); an engine's number of workers is their product.

    Raises:
        ConfigError: the size is not a whole number of at least 1.
    """
    size = engine_kwargs.get(name, 1)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ConfigError(
            f"rollout.engine_kwargs.{name} must be a whole number of at least 1 (the GPUs that an "
            f"engine is split across), got {size!r}"
        )
    return size


def class_in_source(package: str, file: str, name: str) -> ast.ClassDef | None:
    """Parse a class from the source of an engine's library, which takes over 10 s to import.

    Return None if the package is not installed or has no such file or class.
    """
    spec = find_spec(package)
    source = Path(spec.origin or "").parent / file if spec else Path()
    if not source.is_file():
        return None
    body = ast.parse(source.read_text(encoding="utf-8")).body
    return next((n for n in body if isinstance(n, ast.ClassDef) and n.name == name), None)


def field_names(found: ast.ClassDef) -> list[str]:
    """Return the names of a dataclass's own fields."""
    return [ast.unparse(node.target) for node in found.body if isinstance(node, ast.AnnAssign)]


def _keyword_only(cls: type) -> list[str]:
    parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
    return [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]


class TokenEngine(Engine):
    """Samples replies from a model on this machine.

    Image tokens and other placeholders are never sampled. Log-probabilities refer to the
    distribution that was sampled from.
    """

    @abstractmethod
    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Sample one reply, including its end token unless the reply was truncated.

        Raises:
            EngineError: the engine failed, or the tokens it saw differ from the prompt's.
        """

    async def stream(
        self, prompt: Prompt, sampling: Sampling, show: Callable[[tuple[int, ...]], None]
    ) -> Reply:
        """Generate one reply, showing partial results if the engine supports it.

        Args:
            prompt: as in `generate`.
            sampling: as in `generate`.
            show: called on the event loop with the reply's tokens so far.

        Raises:
            EngineError: as in `generate`.
        """
        self.begin_episode()
        try:
            reply = await self.generate(prompt, sampling)
        finally:
            self.end_episode()
        show(reply.token_ids)
        return reply

    def begin_episode(self) -> None:
        """Register one more running episode; a batching engine may wait for its prompt."""

    def end_episode(self) -> None:
        """Unregister a running episode that has ended."""

    @abstractmethod
    async def load_weights(self, path: Path, version: int) -> None:
        """Load the weights of a safetensors file and drop all caches of the old weights.

        Args:
            path: safetensors file with every parameter of the model once, under its Hugging Face
                name; tied parameters may be missing. The file may be removed once this method
                returns.
            version: version of these weights, reported with replies from now on.

        Raises:
            EngineError: the engine rejected them.
        """

    async def load_adapter(self, folder: Path, version: int) -> None:
        """Replace the LoRA adapters, in PEFT's format, on top of the current weights.

        Raises:
            EngineError: the engine rejected them.
        """
        raise EngineError(
            f"{type(self).__name__} does not support LoRA adapters; set model.lora.serve=merged"
        )

    async def sleep(self) -> None:
        """Release GPU memory until weights are loaded.

        Raises:
            EngineError: running requests did not finish in time.
        """
        raise EngineError(f"{type(self).__name__} cannot sleep; remove rollout.sleep")


class ChatEngine(Engine):
    """Passes messages to a model on a server, whose weights cannot be changed."""

    capabilities = EngineCapabilities(trains=False, needs_model=False)

    model: str = ""
    """The model's name on the server; known after `start`."""

    @abstractmethod
    async def chat(
        self, messages: Sequence[Mapping[str, Any]], sampling: Sampling
    ) -> Completion | None:
        """Request one reply; None if the messages exceed the model's context.

        Args:
            messages: in the format of OpenAI's chat completions API.
            sampling: sampling parameters. A reply that ends with one of the `stop_texts` includes
                it.

        Raises:
            EngineError: the server failed, did not answer in time, refused, or sent no reply.
        """


def most_probable(logprobs: Iterable[tuple[int, float]], count: int) -> TopLogprobs:
    """Return the `count` most probable tokens, leaving out tokens that cannot be sampled.

    Args:
        logprobs: id and log-probability of each token; banned tokens have -inf, or a large negative
            bias.
        count: maximum number of tokens to return.
    """
    possible = [(token, logprob) for token, logprob in logprobs if logprob > _BANNED]
    return tuple(sorted(possible, key=lambda pair: -pair[1])[:count])


# Below the log-probability of any sampled token.
_BANNED = -1e6
LARGEST_LOGPROB = 1e-3
"""Probabilities are at most 1, up to rounding."""


def check_reply(reply: Reply, vocab_size: int) -> None:
    """Check that a reply has only tokens of the model, each with a valid log-probability.

    Args:
        reply: reply from an engine.
        vocab_size: vocabulary size of the engine's model.

    Raises:
        EngineError: a token or log-probability is invalid, or there are not equally many of both.
    """
    tokens, logprobs = reply.token_ids, reply.logprobs
    if len(tokens) != len(logprobs):
        raise EngineError(
            f"the engine's reply has {len(tokens)} tokens and {len(logprobs)} log-probabilities"
        )
    if len(reply.token_versions) != len(tokens):
        raise EngineError(
            f"the engine's reply has {len(tokens)} tokens and {len(reply.versions)} versions"
        )
    if reply.top_logprobs and len(reply.top_logprobs) != len(tokens):
        raise EngineError(
            f"the engine's reply has {len(tokens)} tokens but top_logprobs for "
            f"{len(reply.top_logprobs)} positions"
        )
    alternatives = (pair for position in reply.top_logprobs for pair in position)
    for token, logprob in (*zip(tokens, logprobs, strict=True), *alternatives):
        if not (0 <= token < vocab_size and -math.inf < logprob <= LARGEST_LOGPROB):
            raise EngineError(
                f"the engine's reply has token {token} with log-probability {logprob}; token ids "
                f"must be 0 to {vocab_size - 1}, and log-probabilities finite and at most 0"
            )
