"""The model that a command names, and its replies to conversations."""

import asyncio
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentrl import config as configuration
from agentrl.config import Config, EndpointConfig, ModelConfig, RolloutConfig, RunConfig
from agentrl.config.bounds import path_of
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.encode_messages import encode_prompt
from agentrl.policies.engines.chat_completions import Part, encode_message
from agentrl.policies.engines.engine import ChatEngine, Sampling, TokenEngine, check_reply
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.models.model_source import check_model, find_config, model_origin
from agentrl.policies.open_model import open_encoder, open_engine, open_scaler
from agentrl.rollout.play_plan import plan_play
from agentrl.rollout.workers.open_rollouts import open_engines
from agentrl.text import did_you_mean
from agentrl.training.model_to_play import (
    check_checkpoint,
    checkpoint_of,
    is_served,
    model_folder,
    model_of_run,
    with_served_model,
)
from agentrl.training.plan.job_plan import check_inference
from agentrl.training.playable_target import open_target
from agentrl.types import Message, Prompt

_MAX_NEW_TOKENS = 1024
"""Reply limit of a model without a run, whose configuration would set it."""
_SERVERS = ("http://", "https://")

Show = Callable[[str], None]
"""Called with the text of a reply so far."""


class PromptTooLong(ValueError):
    """A prompt leaves no room for a reply."""


@dataclass(slots=True, kw_only=True, frozen=True)
class InferenceTarget:
    """A model, and how it is run."""

    config: Config
    """Configuration, of which only the model and its engines matter."""
    checkpoint: Path | None
    """Checkpoint of a run; None for its final model."""
    served: bool
    """Whether the model is behind a server."""

    def identity(self) -> dict[str, Any]:
        """Return everything that determines replies, except for sampling parameters and prompts."""
        model, rollout = self.config.model, self.config.rollout
        if self.served:
            return {"server": asdict(rollout.endpoint), "max_pixels": model.max_pixels}
        path = self.checkpoint or path_of(model.path, "model.path")
        read = {**asdict(model), "path": str(path.absolute()) if path.exists() else model.path}
        for name in ("attention", "freeze_vision", "lora"):  # for training
            del read[name]
        return {
            "model": read | {"tiny": model_origin(model)[1]},
            "weights": _files_of(path) if path.is_dir() else None,
            "rollout.engine": rollout.engine,
            "rollout.max_context": rollout.max_context,
            "seed": self.config.seed,
        }


def _files_of(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of the files below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    states = ((str(path.relative_to(folder)), path.stat()) for path in files)
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]


def open_inference_target(
    model: str, overrides: Sequence[str] = (), checkpoint: str | None = None
) -> InferenceTarget:
    """The model that a command names, checked.

    Args:
        model: a run's folder, a model's folder, an id on the Hugging Face Hub, `tiny`, or the URL
            of a chat completions server.
        overrides: `key=value` settings, such as `rollout.engine=hf`. Without them, a model that is
            no run is loaded in its own precision.
        checkpoint: of a run: `best`, `last` or a step; None takes its final model.

    Raises:
        ConfigError: it does not exist or cannot be used, or the server does not answer.
    """
    run: Path | None = None
    if (Path(model) / "config.yaml").is_file():
        config, run = open_target(model, overrides)
    else:
        config = configuration.resolve(_config_of(model), overrides)
        if not any(override.partition("=")[0].strip() == "model.dtype" for override in overrides):
            config = replace(config, model=_in_own_precision(config.model))
    kept = checkpoint_of(run, checkpoint)
    served = is_served(config.rollout, checkpoint)
    if run is not None and not served:
        config = replace(config, model=model_of_run(config.model, run, kept))
    config = Config(
        seed=config.seed,
        model=config.model,
        rollout=config.rollout,
        run=RunConfig(search_path=config.run.search_path),
    ).without_learner()
    check_inference(config)
    check_checkpoint(config.model, kept)
    if served:
        config = replace(config, rollout=with_served_model(config.rollout))
    return InferenceTarget(config=config, checkpoint=kept, served=served)


def open_chat_target(
    model: str, overrides: Sequence[str] = (), checkpoint: str | None = None
) -> InferenceTarget:
    """Open a target with a single engine in this process, which replies one by one.

    Raises:
        ConfigError: see `open_inference_target`.
    """
    local = ["rollout.launcher=local", "rollout.actors=1", "rollout.concurrency=1"]
    return open_inference_target(model, [*overrides, *local], checkpoint)


def _config_of(model: str) -> Config:
    rollout = RolloutConfig(max_new_tokens=_MAX_NEW_TOKENS)
    if model.startswith(_SERVERS):
        return Config(rollout=replace(rollout, engine="remote", endpoint=EndpointConfig(url=model)))
    is_in_folder = "/" not in model or Path(model).parent.is_dir()
    if model != "tiny" and is_in_folder and not path_of(model, "model").is_dir():
        folders = [*configuration.known_runs(), *configuration.known_models()]
        hint = did_you_mean(model, folders) or (
            ". agentrl runs lists the runs; a model may also be an id on the Hugging Face Hub, "
            "such as Qwen/Qwen2.5-VL-3B-Instruct, or the URL of a server"
        )
        raise ConfigError(f"{model}: no such folder of a run or model{hint}")
    return Config(model=configuration.model_config(model), rollout=rollout)


def _in_own_precision(model: ModelConfig) -> ModelConfig:
    """The model in the precision of its files, as far as engines have it."""
    if model.path == "tiny":
        return model
    check_model(model)
    found = read_json(find_config(model) / "config.json")
    parts = [found, *(part for part in found.values() if isinstance(part, dict))]
    named = (part.get("dtype") or part.get("torch_dtype") for part in parts)
    own = next((name for name in named if name), "float32")
    return replace(model, dtype="float32" if own == "float32" else "bfloat16")


@dataclass(slots=True, kw_only=True, frozen=True)
class GeneratedReply:
    """A reply, and what is known about its end and length."""

    text: str
    finish_reason: str | None
    """`stop` at the end of a reply, `length` at its limit; None if a server does not say."""
    prompt_tokens: int | None
    reply_tokens: int | None


class InferenceModel(ABC):
    """Replies to conversations.

    Args:
        rollout: its limits.
        num_engines: how many prompts take turns in, each with many at once.
    """

    def __init__(self, rollout: RolloutConfig, num_engines: int = 1) -> None:
        self.rollout, self.num_engines = rollout, num_engines

    def sampling(self, seed: int, *, greedy: bool = False) -> Sampling:
        """The configured parameters of a reply."""
        return Sampling(
            temperature=0.0 if greedy else self.rollout.temperature,
            top_p=self.rollout.top_p,
            max_new_tokens=self.rollout.max_new_tokens,
            seed=seed,
        )

    @abstractmethod
    def encode(self, system: str, messages: Sequence[Message]) -> Any:
        """The prompt of a conversation, for `generate`; may take a while.

        Args:
            system: the system message; may be empty.
            messages: questions and replies in turns, from a question to a question.

        Raises:
            PromptTooLong: it leaves no room for a reply.
            ValueError: the number of `<image>` placeholders and of images differ.
        """

    @abstractmethod
    async def generate(
        self, prompt: Any, sampling: Sampling, show: Show | None = None
    ) -> GeneratedReply:
        """Sample one reply.

        Args:
            prompt: of `encode`.
            sampling: its parameters.
            show: called with the reply so far, if the engine shows it.

        Raises:
            PromptTooLong: the server's model has no room for a reply.
            EngineError: the engine failed.
        """

    async def reply(
        self, system: str, messages: Sequence[Message], sampling: Sampling, show: Show | None = None
    ) -> GeneratedReply:
        """`encode` and `generate`."""
        prompt = await asyncio.to_thread(self.encode, system, messages)
        return await self.generate(prompt, sampling, show)


class LocalModel(InferenceModel):
    """A model in engines of this job.

    Args:
        engine: started.
        encoder: of the model.
        rollout: see the base class.
        num_engines: see the base class.
    """

    def __init__(
        self,
        engine: TokenEngine,
        encoder: ChatEncoder,
        rollout: RolloutConfig,
        num_engines: int = 1,
    ) -> None:
        super().__init__(rollout, num_engines)
        self._engine, self._encoder = engine, encoder

    def encode(self, system: str, messages: Sequence[Message]) -> Prompt:
        """See the base class."""
        prompt = encode_prompt(self._encoder, system, messages)
        tokens, limits = len(prompt.token_ids), self.rollout
        if tokens + limits.max_new_tokens > limits.max_context:
            raise PromptTooLong(
                f"{tokens} prompt tokens and rollout.max_new_tokens={limits.max_new_tokens} exceed "
                f"rollout.max_context={limits.max_context}"
            )
        return prompt

    async def generate(
        self, prompt: Prompt, sampling: Sampling, show: Show | None = None
    ) -> GeneratedReply:
        """See the base class."""
        engine, encoder = self._engine, self._encoder
        if show is None:
            engine.begin_episode()
            try:
                reply = await engine.generate(prompt, sampling)
            finally:
                engine.end_episode()
        else:
            reply = await engine.stream(prompt, sampling, lambda ids: show(encoder.text(ids)))
        check_reply(reply, encoder.vocab_size)
        ended = bool(reply.token_ids) and reply.token_ids[-1] in encoder.eos_token_ids
        return GeneratedReply(
            text=encoder.text(reply.token_ids),
            finish_reason="stop" if ended else "length",
            prompt_tokens=len(prompt.token_ids),
            reply_tokens=len(reply.token_ids),
        )


class ServedModel(InferenceModel):
    """A model behind a chat completions server.

    Args:
        engine: started.
        rollout: see the base class.
        model: sizes of images.
    """

    def __init__(self, engine: ChatEngine, rollout: RolloutConfig, model: ModelConfig) -> None:
        super().__init__(rollout)
        self._engine, self._scale = engine, open_scaler(model)

    def encode(self, system: str, messages: Sequence[Message]) -> list[Part]:
        """See the base class; only the server knows the length."""
        parts: list[Part] = [{"role": "system", "content": system}] if system else []
        for message in messages:
            if message.role == "assistant":  # its text may contain anything
                parts.append({"role": "assistant", "content": message.text})
            else:
                images = tuple(map(self._scale, message.images))
                parts.append(encode_message(replace(message, images=images)))
        return parts

    async def generate(
        self, prompt: list[Part], sampling: Sampling, show: Show | None = None
    ) -> GeneratedReply:
        """See the base class."""
        found = await self._engine.chat(prompt, sampling)
        if found is None:
            raise PromptTooLong("the prompt exceeds the context of the server's model")
        if show is not None:
            show(found.text)
        return GeneratedReply(
            text=found.text,
            finish_reason=found.finish_reason,
            prompt_tokens=len(found.prompt_ids) or found.num_prompt_tokens,
            reply_tokens=len(found.reply_ids) or found.num_reply_tokens,
        )


@asynccontextmanager
async def open_inference_model(
    target: InferenceTarget, engine_seed: int = 0
) -> AsyncIterator[InferenceModel]:
    """Start the engines of a model, or connect to its server; they are closed at the end.

    Args:
        target: the model.
        engine_seed: of the random streams of engines that have one for all prompts.

    Raises:
        ConfigError: the model cannot be loaded, or an engine rejects its settings.
        EngineError: an engine did not start, or the server fails.
    """
    model, rollout = target.config.model, target.config.rollout
    if target.served:
        server = open_engine(rollout, model, None)
        assert isinstance(server, ChatEngine), "a model without a folder is behind a server"
        try:
            await server.start()
            yield ServedModel(server, rollout, model)
        finally:
            await server.close()
        return
    with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
        folder = model_folder(model, target.config.seed, Path(scratch), target.checkpoint)
        encoder = open_encoder(model, folder)
        config = replace(target.config, seed=target.config.seed + engine_seed)
        async with open_engines(plan_play(config), folder) as (engine, count):
            yield LocalModel(engine, encoder, rollout, count)
