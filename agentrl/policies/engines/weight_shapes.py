"""Checks that weights match a model, by names and shapes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from agentrl.errors import EngineError


def check_fit(model: nn.Module, path: Path) -> None:
    """Compare the header of a safetensors file with a model, by names and shapes.

    Args:
        model: may be on the meta device.
        path: a file with every parameter of the model; tied names may be missing.

    Raises:
        EngineError: the weights belong to another model.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    check_shapes(model, shapes, str(path))


def check_shapes(model: nn.Module, shapes: Mapping[str, Sequence[int]], source: str) -> None:
    """Compare weights with a model, by names and shapes.

    Args:
        model: see `check_fit`.
        shapes: of the weights, by name.
        source: of the weights, for the message.

    Raises:
        EngineError: the weights belong to another model.
    """
    own = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    # Learners publish each parameter once: a tied output head is included in the embedding.
    required = {name for name, _ in model.named_parameters()}
    problems = [f"{name} is missing" for name in sorted(required - shapes.keys())]
    problems += [f"{name} is unexpected" for name in sorted(shapes.keys() - own.keys())]
    problems += [
        f"{name} has shape {list(shape)} instead of {own[name]}"
        for name, shape in shapes.items()
        if name in own and list(shape) != own[name]
    ]
    if problems:
        raise EngineError(
            f"weights of {source} do not fit the model in {len(problems)} tensors: "
            f"{', '.join(problems[:3])}"
        )
