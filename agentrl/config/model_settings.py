"""Settings of the policy's model and its adapters."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from agentrl.config.bounds import PositiveInt, check_size
from agentrl.errors import ConfigError

_NO_ADAPTERS = (
    "has no effect because model.lora.rank is 0; set a rank such as 16, or remove this setting"
)


@dataclass(slots=True, kw_only=True)
class LoraConfig:
    """Low-rank adapters (extra `lora`); if enabled, only the adapters are trained."""

    rank: Annotated[int, Ge(0), Le(10_000)] = 0
    """Rank of each adapter; 0 trains the whole model."""
    alpha: PositiveInt = 32
    """Scale of the adapters' output, which is multiplied by `alpha / rank`."""
    targets: list[str] = field(default_factory=list)
    """Suffixes of linear layers' names, such as `q_proj`; empty means all linear layers of the
    language model."""
    base: Literal["float", "nf4"] = "float"
    """Precision of the frozen layers that have adapters: `model.dtype`, or 4 bits (QLoRA, extra
    `qlora`), which takes a quarter of bfloat16's memory. Rounding to 4 bits can erase what
    previously merged adapters had learned."""
    serve: Literal["merged", "adapter"] = "merged"
    """Weights that engines receive after each step: the full weights with the adapters merged, or
    only the adapters, which vLLM applies while sampling. The latter transfers far less data, but
    sampling is slower. `adapter` requires all targets to be in the language model."""

    def validate_for_training(self) -> None:
        """Raise `ConfigError` if settings have no effect because the rank is 0."""
        if self.rank == 0 and self.base != "float":
            raise ConfigError(f"model.lora.base={self.base}: {_NO_ADAPTERS}")
        if self.rank == 0 and self.targets:
            raise ConfigError(f"model.lora.targets={self.targets}: {_NO_ADAPTERS}")
        if self.rank == 0 and self.alpha != LoraConfig().alpha:
            raise ConfigError(f"model.lora.alpha={self.alpha}: {_NO_ADAPTERS}")


@dataclass(slots=True, kw_only=True)
class ModelConfig:
    """The policy's weights."""

    path: str = "tiny"
    """`tiny` (built from the seed), a local folder, a GGUF file, which is converted once, or a
    Hugging Face id, which is downloaded."""
    adapter: str = "auto"
    """The adapter for the model's family: `auto` chooses it by the model's config.json; otherwise a
    name from `agentrl list model`, `module:Class` or `path/file.py:Class`."""
    chat: str = "auto"
    """The chat format: `auto` uses the model's own chat template; otherwise a name from
    `agentrl list chat`, `module:Class` or `path/file.py:Class`."""
    chat_options: dict[str, Any] = field(default_factory=dict)
    """Variables of the chat template, such as `enable_thinking: false`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute precision; see `train.master_dtype` for the learner's weights."""
    attention: Literal["auto", "flex", "flash_attention_2", "sdpa", "eager"] = "auto"
    """The learner's attention. On NVIDIA and AMD GPUs, `auto` uses FlexAttention (`flex`), which
    skips masked blocks, and for rows without masks flash-attn if it is installed (extra `flash`),
    else SDPA. On the CPU, it always uses SDPA. `flash_attention_2` works like `auto`, but requires
    flash-attn."""
    freeze_vision: bool = False
    """Train only the language model."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    image_size: list[int] | None = None
    """[width, height] to which every image is scaled; None keeps the aspect ratio and scales the
    image down to `max_pixels`."""
    max_pixels: Annotated[int, Gt(0), Le(1_000_000_000), "it would not fit into memory"] = 602112
    """Maximum area of an image in pixels, if `image_size` is not given."""
    tiny: dict[str, Any] = field(default_factory=dict)
    """Dimensions of the tiny model that differ from its defaults."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        check_size("model.image_size", self.image_size, 1, 16_384)
