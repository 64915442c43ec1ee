"""Make CUDA builds of torchvision and its like importable beside a CPU build of torch.

Their wheels on PyPI are built for CUDA. Beside a CPU torch the import of torchvision fails with
`operator torchvision::nms does not exist` (https://github.com/pytorch/vision/issues/9077), although
the image processors work once that operator and `qnms` are declared. The imports of torchaudio and
torchcodec fail too; transformers and vLLM do without them if they appear not to be installed.
"""

import importlib.util
import sys
from pathlib import Path

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPTIONAL = {"torchaudio": "lib/_torchaudio*.so", "torchcodec": "libtorchcodec_image*.so"}
_declared: list[torch.library.Library] = []


def patch_broken_imports() -> None:
    """Make transformers and vLLM importable; call it before their first import.

    Does nothing if the libraries load, or if it was called before.
    """
    for package, pattern in _OPTIONAL.items():
        if package not in sys.modules and _is_broken(package, pattern):
            sys.modules[package] = None  # type: ignore[assignment]  # "not installed"
            if package == "torchcodec" and (looked := sys.modules.get("datasets.config")):
                vars(looked)["TORCHCODEC_AVAILABLE"] = False
    if _declared or hasattr(torch.ops.torchvision, "nms"):
        return
    # Looking for torchvision may have called this function (vllm_processes/sitecustomize.py).
    if _is_broken("torchvision", "_C*.so") and not _declared:
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(name + _SCHEMA)  # type: ignore[no-untyped-call]
        _declared.append(library)


def hidden_packages() -> list[str]:
    """The packages that `patch_broken_imports` has hidden in this process."""
    return [
        package for package in _OPTIONAL if sys.modules.get(package, patch_broken_imports) is None
    ]


def _is_broken(package: str, pattern: str) -> bool:
    """Whether a package is installed but its compiled library cannot be loaded."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return False
    try:
        for library in Path(spec.origin).parent.glob(pattern):
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    except (ImportError, OSError):
        return True
    return False
