"""Make transformers and vLLM importable despite CUDA builds of torchvision and its siblings.

PyPI's wheels of torchvision, torchaudio and torchcodec are built for CUDA. With a CPU build of
torch, importing torchvision fails with `operator torchvision::nms does not exist`
(https://github.com/pytorch/vision/issues/9077), although the image processors work once that
operator and `qnms` are declared. Importing torchaudio or torchcodec fails too; transformers and
vLLM work without these if they appear not to be installed.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_PATCHED = ("torchvision", "transformers", "vllm")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPTIONAL = {"torchaudio": "lib/_torchaudio*.so", "torchcodec": "libtorchcodec_image*.so"}
_declared: list[Any] = []


class PatchOnImport(MetaPathFinder):
    """An import hook that runs `patch_broken_imports` before the first import of these packages."""

    @classmethod
    def install(cls) -> None:
        """Install the hook in this process, unless it is already installed."""
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.insert(0, cls())

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Make the module's loader apply the patch first; finding a module alone does not."""
        if name not in _PATCHED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def patch_and_execute(module: ModuleType) -> None:
            patch_broken_imports()
            execute(module)

        spec.loader.exec_module = patch_and_execute  # type: ignore[method-assign]
        return spec


def patch_broken_imports() -> None:
    """Declare torchvision's operators and hide the optional packages if their builds are broken.

    Does nothing if the libraries load, or after the first call.
    """
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    for package, pattern in _OPTIONAL.items():
        if package not in sys.modules and _is_broken(package, pattern):
            sys.modules[package] = None  # type: ignore[assignment]  # "not installed"
            if package == "torchcodec" and (looked := sys.modules.get("datasets.config")):
                vars(looked)["TORCHCODEC_AVAILABLE"] = False
    if _declared or hasattr(torch.ops.torchvision, "nms"):
        return
    if _is_broken("torchvision", "_C*.so"):
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(name + _SCHEMA)  # type: ignore[no-untyped-call]
        _declared.append(library)


def _is_broken(package: str, pattern: str) -> bool:
    """Return whether a package is installed but its compiled library cannot be loaded."""
    import torch

    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return False
    try:
        for library in Path(spec.origin).parent.glob(pattern):
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    except (ImportError, OSError):
        return True
    return False
