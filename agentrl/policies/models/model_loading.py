"""Select a model's adapter, and load the model with its weights or on the meta device."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl import accelerators
from agentrl.errors import ConfigError, boundary
from agentrl.extension_points import MODEL
from agentrl.policies.models.model_adapter import NO_FOREIGN_CODE, ModelAdapter, read_json

if TYPE_CHECKING:
    from torch import Tensor, nn

SCORE = "score.weight"
"""Name of a reward model's scalar head, as in transformers' classification models."""
# Fallback family, for models that no other family lists.
_OTHER = "generic"


def adapter_for(path: Path, name: str = "auto") -> ModelAdapter:
    """Open the adapter for the model in a folder.

    Args:
        path: a folder in the Hugging Face format.
        name: `model.adapter`; `auto` selects it from the folder's config.json.

    Raises:
        ConfigError: the folder has no model, or the adapter cannot be used with it.
    """
    _config_without_code(path)
    family = family_of(path, name)
    with boundary(ConfigError, f"model.path={path} cannot be read by adapter {family.__name__}"):
        return family.read(path)


def family_of(path: Path, name: str = "auto") -> type[ModelAdapter]:
    """Return the adapter's class, reading only config.json; see `adapter_for`."""
    config = read_json(path / "config.json")
    if name != "auto":
        named: type[ModelAdapter] = MODEL.resolve(name)
        return named
    model_type = config.get("model_type")
    families: list[type[ModelAdapter]] = [
        MODEL.resolve(extension.name) for extension in MODEL.extensions()
    ]
    found = next((family for family in families if model_type in family.model_types), None)
    return found or family_of(path, _OTHER)


def load_model(
    path: Path,
    *,
    model_adapter: ModelAdapter | None = None,
    dtype: str = "float32",
    attention: str = "auto",
    device: str = "cpu",
) -> nn.Module:
    """Load a model for training, or for inference with transformers.

    Args:
        path: a folder in the Hugging Face format.
        model_adapter: adapter of the model; None selects it automatically.
        dtype: `float32` or `bfloat16`.
        attention: `auto` uses flash-attn if it is installed and there is a GPU, else SDPA; a model
            that caps its attention logits gets `eager`, because SDPA would ignore the cap. `flex`
            loads SDPA; see `flex_attention.prepare`.
        device: device of the weights.
    """
    check_weights(path)
    loader = _loader(path)
    import torch
    from transformers import AutoConfig

    with boundary(ConfigError, f"model.path={path} cannot be loaded"):
        config = AutoConfig.from_pretrained(path, **NO_FOREIGN_CODE)
        model: nn.Module = loader.from_pretrained(
            path,
            config=config,
            dtype=getattr(torch, dtype),
            attn_implementation=_attention(attention, dtype, caps=_caps_attention(config)),
            **NO_FOREIGN_CODE,
        )
    (model_adapter or adapter_for(path)).prepare(model)
    return model.to(device)


def load_reward_model(path: Path, *, dtype: str = "float32", device: str = "cpu") -> nn.Module:
    """Load a reward model for inference, with its scalar head as `score`."""
    from safetensors import safe_open
    from torch import nn

    _silence_load_report()
    model: Any = load_model(path, dtype=dtype)
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            if SCORE in opened.keys():  # noqa: SIM118
                weight = opened.get_tensor(SCORE).to(model.dtype)
    # transformers' own class for classification exists only for some families.
    model.score = nn.Linear(weight.shape[1], 1, bias=False, dtype=model.dtype)
    model.score.weight = nn.Parameter(weight, requires_grad=False)
    model.lm_head = nn.Identity()
    found: nn.Module = model.eval().to(device)
    return found


def load_on_meta(path: Path) -> nn.Module:
    """Build a model on the meta device, with parameter names and shapes but no weights."""
    loader = _loader(path)
    import torch
    from transformers import AutoConfig

    cannot = f"model.path={path} cannot be built"
    with boundary(ConfigError, cannot), torch.device("meta"):
        model: nn.Module = loader.from_config(
            AutoConfig.from_pretrained(path, **NO_FOREIGN_CODE), trust_remote_code=False
        )
    return model


def load_headers(
    path: Path,
    headers: Mapping[str, Tensor],
    *,
    dtype: str = "float32",
    attention: str = "auto",
    headless: bool = False,
) -> nn.Module:
    """Load a model with its parameters, but not its buffers, on the meta device.

    Names, shapes, dtypes and tied parameters are the same as from `load_model`.

    Args:
        path: a folder in the Hugging Face format.
        headers: a meta tensor for each weight in the model's files, by its name there.
        dtype: see `load_model`.
        attention: see `load_model`.
        headless: whether the output head may be missing, as in a reward model.
    """
    if SCORE in headers and not headless:
        raise ConfigError(f"model.path={path} is a reward model, which cannot generate replies")
    loader = _loader(path)
    import torch
    from transformers import AutoConfig
    from transformers.models.auto.auto_factory import _get_model_class

    with boundary(ConfigError, f"model.path={path} cannot be loaded"):
        config = AutoConfig.from_pretrained(path, **NO_FOREIGN_CODE)
        if headless:
            _silence_load_report()
        model, report = _get_model_class(config, loader._model_mapping).from_pretrained(
            None,
            config=config,
            state_dict=dict(headers),
            device_map="meta",
            dtype=getattr(torch, dtype),
            attn_implementation=_attention(attention, dtype, caps=_caps_attention(config)),
            output_loading_info=True,
        )
        buffers = {name for name, _ in model.named_buffers()}
        absent = report["missing_keys"] - ({"lm_head.weight"} if headless else set())
        if missing := sorted(absent - buffers):
            raise ConfigError(
                f"{len(missing)} weights are missing from the model's files, such as {missing[0]}. "
                "Download or export the model again."
            )
        # Compute buffers that are not in the files, such as rotary frequencies. from_pretrained
        # does the same, but skips modules that it has marked on the meta device.
        model._move_missing_keys_from_meta_to_device(
            report["missing_keys"] & buffers, {"": "cpu"}, None, None
        )
        for module in model.modules():
            module._is_hf_initialized = False
        model._initialize_missing_keys(is_quantized=False)
    found: nn.Module = model
    return found


def _silence_load_report() -> None:
    """Keep transformers from warning about a missing output head."""
    logging.getLogger("transformers.modeling_utils").addFilter(_is_not_load_report)


def _is_not_load_report(record: logging.LogRecord) -> bool:
    return "LOAD REPORT" not in record.getMessage()


def _config_without_code(path: Path) -> dict[str, Any]:
    """Read a model's config.json and check that the model needs no custom Python code."""
    config = read_json(path / "config.json")
    if "auto_map" in config:
        import transformers

        if config.get("model_type") not in transformers.CONFIG_MAPPING:
            raise ConfigError(
                f"model.path={path} needs Python code from its folder (auto_map in config.json), "
                "which is never run; use a model whose class is part of transformers"
            )
    return config


def _loader(path: Path) -> Any:
    """Return the transformers class that loads the model in a folder."""
    import transformers

    config = _config_without_code(path)
    transformers.utils.logging.disable_progress_bar()
    family = "MultimodalLM" if "vision_config" in config else "CausalLM"
    return getattr(transformers, f"AutoModelFor{family}")


def _caps_attention(config: Any) -> bool:
    """Return whether a model caps its attention logits, which SDPA does not support."""
    return getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None


def _attention(attention: str, dtype: str, *, caps: bool = False) -> str:
    if attention == "sdpa" and caps:
        raise ConfigError(
            "model.attention=sdpa does not support this model, which caps its attention logits; "
            "use eager or flash_attention_2"
        )
    plain = "eager" if caps else "sdpa"
    # flex is the learner's own setting; transformers rejects it for some families.
    if attention == "flex":
        return plain
    if attention != "auto":
        return attention
    from transformers.utils import is_flash_attn_2_available

    fast = accelerators.is_cuda() and dtype != "float32" and is_flash_attn_2_available()
    return "flash_attention_2" if fast else plain


def check_weights(path: Path) -> None:
    """Check that a model's safetensors files are complete, by reading their headers."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(path.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"{file} cannot be read as weights: {error}. Download or export the model again."
            ) from error
