"""Low-rank adapters (LoRA, arXiv:2106.09685), by PEFT, and the whole weights that they make.

PEFT (`pip install 'agentrl[lora]'`) is imported here alone.
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
from agentrl.policies.models import skeleton
from agentrl.policies.models.model_source import is_on_hub, resolve_model
from agentrl.text import did_you_mean
from agentrl.training.learner import qlora
from agentrl.training.learner.token_scorer import is_vision
from agentrl.weight_sync import weight_files

_BASE, _DOWN, _UP = ".base_layer.", ".lora_A.default.", ".lora_B.default."
_FILES = ("adapter_model.safetensors", "adapter_config.json")


def targets_of(policy: nn.Module, config: LoraConfig) -> list[str]:
    """The linear layers that get an adapter, by their dotted names.

    Args:
        policy: a Hugging Face model, also one on the meta device.
        config: its `targets` are ends of such names; none means those of the language model.

    Raises:
        ConfigError: a target is the end of none.
    """
    linear = {name for name, module in policy.named_modules() if isinstance(module, nn.Linear)}
    head = policy.get_output_embeddings()  # type: ignore[operator]
    linear -= {name for name, module in policy.named_modules() if module is head}
    if not config.targets:
        return sorted(name for name in linear if not is_vision(name))
    found = set[str]()
    for target in config.targets:
        fitting = {name for name in linear if name == target or name.endswith(f".{target}")}
        if not fitting:
            ends = sorted({name.rpartition(".")[2] for name in linear})
            raise ConfigError(
                f"model.lora.targets: {target!r} is no linear layer of this model"
                f"{did_you_mean(target, ends)}; there are {', '.join(ends)}"
            )
        found |= fitting
    return sorted(found)


def check(model: ModelConfig) -> None:
    """See whether a model can have the adapters; one of the hub is not asked for.

    Raises:
        ConfigError: a target does not exist, or PEFT is not installed.
    """
    if not model.lora.rank:
        return
    if find_spec("peft") is None:
        raise _no_peft(model.lora)
    if model.lora.base == "nf4" and find_spec("bitsandbytes") is None:
        raise ConfigError(f"model.lora.base=nf4 needs bitsandbytes, not installed: {GET_QLORA}")
    if not is_on_hub(model):
        with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
            policy = skeleton(resolve_model(model, 0, Path(scratch) / "tiny"))
            _check_served(targets_of(policy, model.lora), model.lora)


def _check_served(targets: Sequence[str], config: LoraConfig) -> None:
    seeing = [name for name in targets if is_vision(name)]
    if config.serve == "adapter" and seeing:
        raise ConfigError(
            "model.lora.serve=adapter: vLLM answers with adapters in the language model alone, and "
            f"model.lora.targets has {len(seeing)} in the vision tower, such as {seeing[0]}; "
            "model.lora.serve=merged takes them all"
        )


def _no_peft(config: LoraConfig) -> ConfigError:
    return ConfigError(f"model.lora.rank={config.rank} needs PEFT, not installed: {GET_LORA}")


def insert(policy: nn.Module, config: LoraConfig, seed: int) -> None:
    """Give a model its adapters, in place; they alone are trained, and change nothing at first.

    Args:
        policy: a Hugging Face model.
        config: the adapters'.
        seed: of their first weights.

    Raises:
        ConfigError: a target does not exist, or PEFT is not installed.
    """
    try:
        import peft
    except ImportError:
        raise _no_peft(config) from None
    targets = targets_of(policy, config)
    _check_served(targets, config)
    if config.base == "nf4":
        qlora.quantize(policy, targets)
    settings = peft.LoraConfig(r=config.rank, lora_alpha=config.alpha, target_modules=targets)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(settings, policy)
    for name, parameter in policy.named_parameters():
        parameter.requires_grad_(_is_adapter(name))


def merged(tensors: Mapping[str, Tensor], config: LoraConfig) -> dict[str, Tensor]:
    """Whole weights under the names of the model without adapters.

    Args:
        tensors: whole, by their names in the model with adapters; one without stays as it is.
        config: the adapters'.
    """
    found = {}
    for name, tensor in tensors.items():
        if _is_adapter(name):
            continue
        module = name.partition(_BASE)[0]
        down = tensors.get(f"{module}{_DOWN}weight")
        if name == f"{module}{_BASE}weight" and down is not None:
            up = tensors[f"{module}{_UP}weight"]
            tensor = tensor + (up.float() @ down.float() * _scale(config)).to(tensor.dtype)
        found[name.replace(_BASE, ".")] = tensor
    return found


def plain_name(name: str) -> str | None:
    """A parameter's name in the model without adapters; None for one of an adapter."""
    return None if _is_adapter(name) else name.replace(_BASE, ".")


def names_on(name: str) -> tuple[str, ...]:
    """Of what an adapter adds to a weight, by the weight's own name; none to any other."""
    module, found, _ = name.partition(f"{_BASE}weight")
    return (f"{module}{_DOWN}weight", f"{module}{_UP}weight") if found else ()


def is_below(name: str) -> bool:
    """True for a weight that an adapter is added to."""
    return f"{_BASE}weight" in name


def is_upper(name: str) -> bool:
    """True for the matrix that is zero where an adapter changes nothing."""
    return _UP in name


def write(
    folder: Path,
    tensors: Mapping[str, Tensor],
    config: LoraConfig,
    base: str,
    *,
    checked: bool = False,
) -> None:
    """Write the adapters alone, as PEFT and vLLM read them.

    Args:
        folder: where; replaced if it exists.
        tensors: whole, by their names in the model with adapters.
        config: the adapters'.
        base: the model that they belong to: a folder or an id of the hub.
        checked: with a checksum, which engines compare with what they have.
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
    with weight_files.replacing_folder(folder) as partial:
        weight_files.write(partial / _FILES[0], own, checked=checked)
        (partial / _FILES[1]).write_text(json.dumps(about, indent=2) + "\n")


def _scale(config: LoraConfig) -> float:
    return config.alpha / config.rank


def _is_adapter(name: str) -> bool:
    return _DOWN in name or _UP in name
