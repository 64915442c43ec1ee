"""Open the encoder, engine or endpoint that a configuration selects."""

import inspect
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from agentrl.actions.dialect import Dialect, Resize
from agentrl.config import ModelConfig, RolloutConfig
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.endpoint import Endpoint, read_api_key
from agentrl.policies.engines.engine import Engine
from agentrl.policies.models.model_adapter import resize_image, target_size
from agentrl.text import did_you_mean
from agentrl.types import Image

_MAX_TEMPERATURE = 2.0
"""Maximum temperature that vLLM accepts."""


def open_encoder(model: ModelConfig, folder: Path) -> ChatEncoder:
    """The encoder of a model, with the configured image size.

    Raises:
        ConfigError: the model cannot be used for chats.
    """
    return ChatEncoder(
        folder,
        model.image_size,
        model.max_pixels,
        adapter=model.adapter,
        chat=model.chat,
        chat_options=model.chat_options,
    )


def open_scaler(model: ModelConfig) -> Callable[[Image], Image]:
    """A function that resizes images as configured, for policies without a local model."""

    def scale(image: Image) -> Image:
        return resize_image(image, scaled_size(model, (image.shape[1], image.shape[0])))

    return scale


def scaled_size(model: ModelConfig, size: tuple[int, int]) -> tuple[int, int]:
    """The size to which `open_scaler` resizes an image of this width and height."""
    target = (model.image_size[0], model.image_size[1]) if model.image_size else None
    return target_size(size, target, model.max_pixels, 1)


def resize_for(dialect: Dialect, model: ModelConfig, encoder: ChatEncoder | None) -> Resize:
    """The resize that the model of a dialect applies to screens.

    Args:
        dialect: knows what a server of its models does.
        model: sizes of images.
        encoder: the local model's; None for a model behind a server.
    """
    if encoder is not None:
        return lru_cache(maxsize=32)(encoder.seen_size)
    return lambda size: dialect.served_size(scaled_size(model, size))


def check_engine(rollout: RolloutConfig) -> None:
    """Validate the settings of an engine without starting it.

    Raises:
        ConfigError: the engine does not accept them.
    """
    if rollout.engine == "vllm" and rollout.temperature > _MAX_TEMPERATURE:
        raise ConfigError(
            f"rollout.temperature={rollout.temperature}: vLLM accepts at most {_MAX_TEMPERATURE:g}"
        )
    if rollout.engine == "remote":
        read_api_key(rollout.endpoint)
        if rollout.engine_kwargs:
            raise ConfigError(
                f"rollout.engine_kwargs={rollout.engine_kwargs}: not used with a remote server; "
                "put additional fields of requests into rollout.endpoint.extra_body"
            )
    known = _arguments(rollout.engine) if rollout.engine_kwargs else None
    for name in rollout.engine_kwargs:
        if known is not None and name not in known:
            raise ConfigError(
                f"rollout.engine_kwargs.{name}: {rollout.engine} has no such argument"
                f"{did_you_mean(name, known)}"
            )


def _arguments(engine: str) -> list[str] | None:
    """The names allowed in `rollout.engine_kwargs`; None if they cannot be determined."""
    if engine == "hf":
        from agentrl.policies.engines.hf_engine import HFEngine

        # Set by other settings.
        reserved = ("path", "dtype", "attention", "deadline_s", "version")
        return [name for name in inspect.signature(HFEngine).parameters if name not in reserved]
    from agentrl.policies.engines.vllm_environment import vllm_arguments

    return vllm_arguments()


def open_engine(
    rollout: RolloutConfig,
    model: ModelConfig,
    folder: Path,
    seed: int = 0,
    version: int = 0,
    *,
    transfer: str = "file",
    can_sleep: bool = False,
) -> Engine:
    """The configured engine, not started yet.

    Args:
        rollout: selects the engine.
        model: dtype, attention and adapters.
        folder: as `resolve_model` returns it.
        seed: seed of the engine's shared random stream; see VLLMEngine.
        version: version of the weights in the folder.
        transfer: see VLLMEngine.
        can_sleep: see VLLMEngine.

    Raises:
        ConfigError: see `check_engine`.
    """
    check_engine(rollout)
    assert rollout.engine != "remote", "a remote server is an Endpoint, not an Engine"
    if rollout.engine == "hf":
        from agentrl.policies.engines.hf_engine import HFEngine

        return HFEngine(
            folder,
            dtype=model.dtype,
            attention=model.attention,
            deadline_s=rollout.deadline_s,
            version=version,
            **rollout.engine_kwargs,
        )
    from agentrl.policies.engines.vllm_engine import VLLMEngine

    return VLLMEngine(
        folder,
        dtype=model.dtype,
        max_context=rollout.max_context,
        deadline_s=rollout.deadline_s,
        seed=seed,
        start_deadline_s=rollout.start_deadline_s,
        transfer=transfer,
        lora_rank=model.lora.rank if model.lora.serve == "adapter" else 0,
        can_sleep=can_sleep,
        engine_kwargs=rollout.engine_kwargs,
        version=version,
    )


def open_endpoint(rollout: RolloutConfig) -> Endpoint:
    """The client of the configured server, not started yet.

    Raises:
        ConfigError: the HTTP client is not installed, or the named API key is not set.
    """
    return Endpoint(
        rollout.endpoint,
        deadline_s=rollout.deadline_s,
        start_deadline_s=rollout.start_deadline_s,
        in_flight=rollout.concurrency,
    )


async def served_model_name(rollout: RolloutConfig) -> str:
    """The name of the served model; requests a first reply.

    Raises:
        ConfigError: see Endpoint.start.
        EngineError: it fails.
    """
    endpoint = open_endpoint(rollout)
    try:
        await endpoint.start()
    finally:
        await endpoint.close()
    return endpoint.model
