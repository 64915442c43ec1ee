"""Whether the weights in a file are those of a model: all of them, and in its shapes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from agentrl.errors import EngineError


def check_fit(model: nn.Module, path: Path) -> None:
    """Compare a safetensors file with a model, by the names and shapes in its header.

    Args:
        model: may lie on the meta device.
        path: every parameter of the model once; names tied to others may be missing.

    Raises:
        EngineError: they are another model's.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    check_shapes(model, shapes, str(path))


def check_shapes(model: nn.Module, shapes: Mapping[str, Sequence[int]], source: str) -> None:
    """Compare what is about to come with a model, by names and shapes.

    Args:
        model: see `check_fit`.
        shapes: by name.
        source: where they come from, for the message.

    Raises:
        EngineError: they are another model's.
    """
    own = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    # Learners publish each parameter once: a tied output head comes with the embedding.
    needed = {name for name, _ in model.named_parameters()}
    misfits = [f"{name} is missing" for name in sorted(needed - shapes.keys())]
    misfits += [f"{name} is unknown" for name in sorted(shapes.keys() - own.keys())]
    misfits += [
        f"{name} is {list(shape)} instead of {own[name]}"
        for name, shape in shapes.items()
        if name in own and list(shape) != own[name]
    ]
    if misfits:
        raise EngineError(
            f"weights of {source} are another model's, in {len(misfits)} tensors: "
            f"{', '.join(misfits[:3])}"
        )
