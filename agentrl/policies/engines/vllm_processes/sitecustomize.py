"""Startup code of the Python processes that vLLM starts with this folder on their PYTHONPATH.

A vLLM plugin entry point would be too late, because vLLM's modules are imported before it is
called. This file must not import anything heavy.
"""

import importlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent
_PACKAGE_ROOT = _HERE.parents[3]


def _end_with_parent() -> None:
    """End this process when its parent ends; forks lose this setting, so set it there again."""
    # Load it by path, because Python may find another version of agentrl.
    file = _PACKAGE_ROOT / "agentrl" / "child_process.py"
    end_with_parent = _load(importlib.util.spec_from_file_location(file.stem, file)).end_with_parent
    forking = 0

    def before() -> None:
        nonlocal forking
        forking = os.getpid()

    end_with_parent()
    os.register_at_fork(before=before, after_in_child=lambda: end_with_parent(parent=forking))


def _load(spec: ModuleSpec | None) -> ModuleType:
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _patch_broken_imports() -> None:
    """Import agentrl, which loads nothing heavy and installs the hook of `broken_torchvision`."""
    sys.path.append(str(_PACKAGE_ROOT))
    importlib.import_module("agentrl")
    sys.path.remove(str(_PACKAGE_ROOT))


def _run_shadowed() -> None:
    """Run the sitecustomize module that this file shadows, if there is one."""
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        _load(spec)


if os.environ.get("AGENTRL_VLLM_PROCESS"):
    _end_with_parent()
    _patch_broken_imports()
_run_shadowed()
