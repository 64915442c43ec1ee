"""Opens the model named in a command, and samples its replies to conversations."""

import asyncio
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentrl.config import Config, ModelConfig, RolloutConfig, RunConfig
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.encode_messages import encode_prompt
from agentrl.policies.configured_image_size import open_scaler
from agentrl.policies.configured_sampling import configured_sampling
from agentrl.policies.engines.chat_completions_format import Part, encode_message
from agentrl.policies.engines.engine import ChatEngine, Sampling, TokenEngine, check_reply
from agentrl.policies.models.model_source import local_folder, model_origin
from agentrl.policies.open_engine import open_engine
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.workers.open_rollouts import open_engines
from agentrl.training.chosen_policy import ChosenPolicy, choose_policy
from agentrl.training.command_target import open_model_target
from agentrl.training.engine_check.compared_prompts import ComparedPrompt, chat_prompts
from agentrl.training.engine_check.engine_comparison import EngineComparison
from agentrl.training.engine_check.reference_copy import ReferenceCopy
from agentrl.training.plan.job_plan import check_inference
from agentrl.types import Message, Prompt, Reply

Show = Callable[[str], None]
"""Function that is called with the text of a reply so far."""


class PromptTooLong(ValueError):
    """The prompt leaves no room for a reply."""


@dataclass(slots=True, kw_only=True, frozen=True)
class InferenceTarget:
    """A model and its inference settings."""

    policy: ChosenPolicy
    plan: RolloutPlan
    """The model's rollout plan; only its model and engine settings are used."""

    def identity(self) -> dict[str, Any]:
        """Return everything that determines replies, except for sampling parameters and prompts."""
        model, rollout = self.plan.settings.model, self.plan.settings.rollout
        if self.policy.is_served:
            return {"server": asdict(rollout.endpoint), "max_pixels": model.max_pixels}
        path = self.policy.checkpoint or local_folder(model)
        read = {**asdict(model), "path": str(path.absolute()) if path.exists() else model.path}
        for name in ("attention", "freeze_vision", "lora"):  # for training
            del read[name]
        return {
            "model": read | {"tiny": model_origin(model)[1]},
            "weights": _files_of(path) if path.is_dir() else None,
            "rollout.engine": rollout.engine,
            "rollout.max_context": rollout.max_context,
            "seed": self.plan.settings.seed,
        }


def _files_of(folder: Path) -> list[tuple[str, int, int]]:
    """Return the name, size and modification time of each file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    states = ((str(path.relative_to(folder)), path.stat()) for path in files)
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]


def open_inference_target(
    model: str, overrides: Sequence[str] = (), checkpoint: str | None = None
) -> InferenceTarget:
    """Resolve and check the model named in a command.

    Args:
        model: see `open_model_target`.
        overrides: `key=value` settings, such as `rollout.engine=hf`.
        checkpoint: checkpoint of a run: `best`, `last` or a step; None takes its final model.

    Raises:
        ConfigError: the model does not exist or cannot be used, or the server does not answer.
    """
    target = open_model_target(model, overrides)
    policy = choose_policy(target, checkpoint=checkpoint)
    config = target.config
    # Reset a run's environment, learner and loggers, which are not used and need not be valid.
    only_model = Config(
        seed=config.seed,
        model=config.model,
        rollout=config.rollout,
        run=RunConfig(search_path=config.run.search_path),
    )
    return InferenceTarget(policy=policy, plan=policy.plan(only_model, check_inference))


def open_chat_target(
    model: str, overrides: Sequence[str] = (), checkpoint: str | None = None
) -> InferenceTarget:
    """Open a target with a single engine in this process, which answers one prompt at a time.

    Raises:
        ConfigError: see `open_inference_target`.
    """
    local = ["rollout.launcher=local", "rollout.actors=1", "rollout.concurrency=1"]
    return open_inference_target(model, [*overrides, *local], checkpoint)


@dataclass(slots=True, kw_only=True, frozen=True)
class GeneratedReply:
    """A reply with its finish reason and length, as far as known."""

    text: str
    finish_reason: str | None
    """`stop` at the end of a reply, `length` at its limit; None if the server does not report
    it."""
    prompt_tokens: int | None
    reply_tokens: int | None


class InferenceModel(ABC):
    """Replies to conversations.

    Args:
        rollout: limits of prompts and replies.
        encoder: the model's encoder; None for a model behind a server.
        num_engines: number of engines that share the prompts.
    """

    def __init__(
        self, rollout: RolloutConfig, encoder: ChatEncoder | None, num_engines: int = 1
    ) -> None:
        self.rollout, self._encoder, self.num_engines = rollout, encoder, num_engines
        self.engine_check: EngineComparison | None = None
        """Result of the engine's comparison with transformers; None without one."""

    @abstractmethod
    async def check_engine(self, prompts: Sequence[Any] | None = None) -> None:
        """Compare the engine with transformers (`rollout.engine_check`).

        Args:
            prompts: what to reply to, from `encode`; None for prompts that suit a chat.

        Raises:
            EngineMismatch: they disagree.
        """

    def sampling(self, seed: int, *, greedy: bool = False) -> Sampling:
        """Return the configured sampling parameters of a reply."""
        return configured_sampling(self.rollout, self._encoder, greedy=greedy, seed=seed)

    @abstractmethod
    def encode(self, system: str, messages: Sequence[Message]) -> Any:
        """Encode a conversation as a prompt for `generate`; may take a while.

        Args:
            system: the system message; may be empty.
            messages: alternating questions and replies, starting and ending with a question.

        Raises:
            PromptTooLong: the prompt leaves no room for a reply.
            ValueError: the number of `<image>` placeholders and of images differ.
        """

    @abstractmethod
    async def generate(
        self, prompt: Any, sampling: Sampling, show: Show | None = None
    ) -> GeneratedReply:
        """Sample one reply.

        Args:
            prompt: prompt returned by `encode`.
            sampling: sampling parameters.
            show: called with the reply so far, if the engine streams it.

        Raises:
            PromptTooLong: the prompt leaves no room for a reply in the server's context.
            EngineError: the engine failed.
        """

    async def reply(
        self, system: str, messages: Sequence[Message], sampling: Sampling, show: Show | None = None
    ) -> GeneratedReply:
        """Encode a conversation and sample one reply."""
        prompt = await asyncio.to_thread(self.encode, system, messages)
        return await self.generate(prompt, sampling, show)


class LocalModel(InferenceModel):
    """A model that runs in this process's engines.

    Args:
        engine: a started engine.
        reference: the model in transformers.
        rollout: see the base class.
        num_engines: see the base class.
    """

    def __init__(
        self,
        engine: TokenEngine,
        reference: ReferenceCopy,
        rollout: RolloutConfig,
        num_engines: int = 1,
    ) -> None:
        super().__init__(rollout, reference.encoder, num_engines)
        self._engine, self._reference = engine, reference

    async def check_engine(self, prompts: Sequence[Prompt] | None = None) -> None:
        """See the base class."""
        if not await asyncio.to_thread(self._reference.is_wanted):
            return
        chosen = chat_prompts(self._reference.encoder, self.rollout)
        if prompts is not None:
            chosen = [ComparedPrompt(prompt=prompt) for prompt in prompts]
        if chosen:
            self.engine_check = await self._reference.compare(chosen, self._sample)

    def encode(self, system: str, messages: Sequence[Message]) -> Prompt:
        """See the base class."""
        prompt = encode_prompt(self._reference.encoder, system, messages)
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
        engine, encoder = self._engine, self._reference.encoder
        if show is None:
            reply = await self._sample(prompt, sampling)
        else:
            reply = await engine.stream(prompt, sampling, lambda ids: show(encoder.text(ids)))
        check_reply(reply, encoder.vocab_size)
        ends = (*encoder.eos_token_ids, *sampling.stop_token_ids)
        ended = bool(reply.token_ids) and reply.token_ids[-1] in ends
        return GeneratedReply(
            text=encoder.text(reply.token_ids),
            finish_reason="stop" if ended else "length",
            prompt_tokens=len(prompt.token_ids),
            reply_tokens=len(reply.token_ids),
        )

    async def _sample(self, prompt: Prompt, sampling: Sampling) -> Reply:
        # A batching engine waits for a prompt from each registered episode, so register this one.
        self._engine.begin_episode()
        try:
            return await self._engine.generate(prompt, sampling)
        finally:
            self._engine.end_episode()


class ServedModel(InferenceModel):
    """A model behind a chat completions server.

    Args:
        engine: a started engine.
        rollout: see the base class.
        model: model settings, which limit image sizes.
    """

    def __init__(self, engine: ChatEngine, rollout: RolloutConfig, model: ModelConfig) -> None:
        super().__init__(rollout, None)
        self._engine, self._scale = engine, open_scaler(model)

    async def check_engine(self, prompts: Sequence[Any] | None = None) -> None:
        """Do nothing, because the server's model is not on this machine."""

    def encode(self, system: str, messages: Sequence[Message]) -> list[Part]:
        """See the base class; only the server can determine the prompt's length."""
        parts: list[Part] = [{"role": "system", "content": system}] if system else []
        for message in messages:
            if message.role == "assistant":  # a reply may contain any text
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
    """Start a model's engines, or connect to its server; close them at the end.

    Args:
        target: the model.
        engine_seed: seed for engines that use a single random stream for all prompts.

    Raises:
        ConfigError: the model cannot be loaded, or an engine rejects its settings.
        EngineError: an engine did not start, or the server fails.
    """
    plan = target.plan
    if target.policy.is_served:
        server = open_engine(plan.settings.rollout, plan.settings.model, None)
        assert isinstance(server, ChatEngine), "a model without a folder is behind a server"
        try:
            await server.start()
            yield ServedModel(server, plan.settings.rollout, plan.settings.model)
        finally:
            await server.close()
        return
    with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
        folder = target.policy.model_folder(plan, Path(scratch))
        assert folder is not None, "a model that is not behind a server has a folder"
        reference = ReferenceCopy(folder, plan.settings.model, plan.settings.rollout)
        settings = replace(plan.settings, seed=plan.settings.seed + engine_seed)
        async with open_engines(replace(plan, settings=settings), folder) as (engine, count):
            yield LocalModel(engine, reference, plan.settings.rollout, count)
