"""Insert, merge and write low-rank adapters (LoRA, arXiv:2106.09685), using PEFT.

Only this module imports PEFT (`pip install 'agentrl-screens[lora]'`).
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agentrl.config import LoraConfig, ModelConfig
from agentrl.errors import ConfigError
from agentrl.extras import GET_LORA, GET_QLORA
from agentrl.files import replacing_folder
from agentrl.policies.models import ModelAdapter, adapter_for, load_on_meta
from agentrl.policies.models.model_source import is_on_hub, resolve_model
from agentrl.text.name_suggestions import known_names
from agentrl.training.learner import four_bit_weights
from agentrl.weight_sync import safetensors_files

_BASE, _DOWN, _UP = ".base_layer.", ".lora_A.default.", ".lora_B.default."
_FILES = ("adapter_model.safetensors", "adapter_config.json")


def target_layers(policy: nn.Module, model_adapter: ModelAdapter, config: LoraConfig) -> list[str]:
    """Return the dotted names of the linear layers that get an adapter.

    Args:
        policy: a Hugging Face model; may be on the meta device.
        model_adapter: adapter of the model's family.
        config: adapter settings. `targets` lists suffixes of layer names; if it is empty, all
            linear layers of the language model get an adapter.

    Raises:
        ConfigError: a target matches no layer.
    """
    linear = {name for name, module in policy.named_modules() if isinstance(module, nn.Linear)}
    # Exclude the head, because it may be tied to the embedding, which has no adapter.
    head = policy.get_output_embeddings()  # type: ignore[operator]
    linear -= {name for name, module in policy.named_modules() if module is head}
    if not config.targets:
        return sorted(name for name in linear if not model_adapter.is_vision(name))
    found = set[str]()
    for target in config.targets:
        matching = {name for name in linear if name == target or name.endswith(f".{target}")}
        if not matching:
            ends = sorted({name.rpartition(".")[2] for name in linear})
            raise ConfigError(
                f"model.lora.targets: {target!r} matches no linear layer of this model"
                f"{known_names(target, ends, label='It has')}"
            )
        found |= matching
    return sorted(found)


def check(model: ModelConfig) -> None:
    """Check that a model supports the adapters; does not download models from the Hub.

    Raises:
        ConfigError: a target does not exist, or PEFT is not installed.
    """
    if not model.lora.rank:
        return
    if find_spec("peft") is None:
        raise _no_peft(model.lora)
    if model.lora.base == "nf4" and find_spec("bitsandbytes") is None:
        raise ConfigError(f"model.lora.base=nf4: bitsandbytes is not installed; run: {GET_QLORA}")
    if not is_on_hub(model):
        with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
            folder = resolve_model(model, 0, Path(scratch) / "tiny")
            model_adapter = adapter_for(folder, model.adapter)
            targets = target_layers(load_on_meta(folder), model_adapter, model.lora)
            _check_served(targets, model_adapter, model.lora)


def _check_served(targets: Sequence[str], model_adapter: ModelAdapter, config: LoraConfig) -> None:
    vision = [name for name in targets if model_adapter.is_vision(name)]
    if config.serve == "adapter" and vision:
        raise ConfigError(
            "model.lora.serve=adapter: vLLM supports adapters in the language model only, but "
            f"model.lora.targets matches {len(vision)} layers in the vision tower, such as "
            f"{vision[0]}; set model.lora.serve=merged"
        )


def _no_peft(config: LoraConfig) -> ConfigError:
    return ConfigError(f"model.lora.rank={config.rank}: PEFT is not installed; run: {GET_LORA}")


def insert(policy: nn.Module, model_adapter: ModelAdapter, config: LoraConfig, seed: int) -> None:
    """Add adapters to a model, in place. Only adapters are trained; initially they have no effect.

    Args:
        policy: a Hugging Face model. Its parameters may be on the meta device; adapter parameters
            are created on the CPU.
        model_adapter: adapter of the model's family.
        config: adapter settings.
        seed: random seed of the adapters' initial weights.

    Raises:
        ConfigError: a target does not exist, or PEFT is not installed.
    """
    try:
        import peft
    except ImportError:
        raise _no_peft(config) from None
    targets = target_layers(policy, model_adapter, config)
    _check_served(targets, model_adapter, config)
    settings = peft.LoraConfig(r=config.rank, lora_alpha=config.alpha, target_modules=targets)
    weights = {name: policy.get_parameter(f"{name}.weight") for name in targets}
    # PEFT moves an adapter to its layer's device; on the meta device, it would lose its weights.
    for name, weight in weights.items():
        policy.get_submodule(name).weight = nn.Parameter(
            torch.empty((), dtype=weight.dtype).expand(weight.shape), requires_grad=False
        )
    # Every rank must draw the same weights, regardless of its earlier draws.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(settings, policy)
    for name, weight in weights.items():
        policy.get_submodule(f"{name}{_BASE}".rstrip(".")).weight = weight
    if config.base == "nf4":
        four_bit_weights.replace_linear_layers(
            policy, [f"{name}{_BASE}".rstrip(".") for name in targets]
        )
    for name, parameter in policy.named_parameters():
        parameter.requires_grad_(_is_adapter(name))


def merge(tensors: Mapping[str, Tensor], config: LoraConfig) -> dict[str, Tensor]:
    """Merge adapters into the weights, named as in the model without adapters.

    Args:
        tensors: full tensors by their names in the model with adapters; weights without an
            adapter stay as they are.
        config: adapter settings.
    """
    found = {}
    for name, tensor in tensors.items():
        if _is_adapter(name):
            continue
        module = name.partition(_BASE)[0]
        down = tensors.get(f"{module}{_DOWN}weight")
        if name == f"{module}{_BASE}weight" and down is not None:
            up = tensors[f"{module}{_UP}weight"]
            # W + alpha / rank * B A (section 4.1 of the paper), the product in float32.
            tensor = tensor + (up.float() @ down.float() * (config.alpha / config.rank)).to(
                tensor.dtype
            )
        found[name.replace(_BASE, ".")] = tensor
    return found


def base_name(name: str) -> str | None:
    """Return a parameter's name in the model without adapters; None for adapter parameters."""
    return None if _is_adapter(name) else name.replace(_BASE, ".")


def adapter_names(name: str) -> tuple[str, ...]:
    """Return the names of a weight's adapter matrices; empty for a weight without an adapter."""
    module, found, _ = name.partition(f"{_BASE}weight")
    return (f"{module}{_DOWN}weight", f"{module}{_UP}weight") if found else ()


def is_base_weight(name: str) -> bool:
    """Whether a name is the base weight of an adapted layer."""
    return f"{_BASE}weight" in name


def is_lora_b(name: str) -> bool:
    """Whether a name is an adapter's second matrix, which is initially zero."""
    return _UP in name


def write(
    folder: Path,
    tensors: Mapping[str, Tensor],
    config: LoraConfig,
    base: str,
    *,
    checked: bool = False,
) -> None:
    """Write only the adapters, in the format of PEFT and vLLM.

    Args:
        folder: output folder; replaced if it exists.
        tensors: full tensors by their names in the model with adapters.
        config: adapter settings.
        base: the adapters' base model, a folder or a Hub id.
        checked: whether to add a checksum, which engines verify.
    """
    own = {
        f"base_model.model.{name.replace('.default.', '.')}": tensor
        for name, tensor in tensors.items()
        if _is_adapter(name)
    }
    modules = sorted({name.partition(_DOWN)[0] for name in tensors if _DOWN in name})
    about: dict[str, Any] = {
        "peft_type": "LORA", "task_type": None, "base_model_name_or_path": base,
        "r": config.rank, "lora_alpha": config.alpha, "lora_dropout": 0.0, "bias": "none",
        "target_modules": modules, "inference_mode": True,
    }  # fmt: skip
    with replacing_folder(folder) as partial:
        safetensors_files.write(partial / _FILES[0], own, checked=checked)
        (partial / _FILES[1]).write_text(json.dumps(about, indent=2) + "\n")


def _is_adapter(name: str) -> bool:
    return _DOWN in name or _UP in name
