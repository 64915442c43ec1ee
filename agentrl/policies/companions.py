"""Let torchvision and torchaudio stand beside a CPU build of torch.

Their wheels on PyPI are built for CUDA. Beside a CPU torch the import of torchvision fails with
`operator torchvision::nms does not exist` (https://github.com/pytorch/vision/issues/9077), though
what the image processors need works once that operator and `qnms` are declared. The import of
torchaudio fails too; transformers does without it where it is not installed.
"""

import importlib.util
import sys
from pathlib import Path

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []


def mend() -> None:
    """Make transformers and vLLM importable; must come before their first import.

    Does nothing where the libraries load, and nothing the second time.
    """
    if "torchaudio" not in sys.modules and _is_broken("torchaudio", "lib/_torchaudio*.so"):
        sys.modules["torchaudio"] = None  # type: ignore[assignment]  # "not installed"
    if _declared or hasattr(torch.ops.torchvision, "nms"):
        return
    if _is_broken("torchvision", "_C*.so"):
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(name + _SCHEMA)
        _declared.append(library)


def _is_broken(package: str, pattern: str) -> bool:
    """Whether a package is installed and its compiled part cannot be loaded."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return False
    try:
        for library in Path(spec.origin).parent.glob(pattern):
            torch.ops.load_library(str(library))
    except (ImportError, OSError):
        return True
    return False
