"""Runs first in every Python process that vLLM starts for us, as it is on their PYTHONPATH.

A vLLM plugin entry point would be too late: vLLM's modules are imported before it is called. This
file must be self-contained and import nothing heavy.
"""

import ctypes
import importlib
import importlib.util
import os
import signal
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_PACKAGE_ROOT = _HERE.parents[3]
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends, even by kill -9."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _die_with_parent_in_forks() -> None:
    """A fork loses that setting, and its parent may have ended before it is set again."""
    forking = 0

    def before() -> None:
        nonlocal forking
        forking = os.getpid()

    def in_child() -> None:
        _die_with_parent()
        if os.getppid() != forking:
            os._exit(1)

    os.register_at_fork(before=before, after_in_child=in_child)


def _patch_broken_imports() -> None:
    """Import agentrl, which loads nothing heavy and adds the hook of `torch_companions`."""
    sys.path.append(str(_PACKAGE_ROOT))
    importlib.import_module("agentrl")
    sys.path.remove(str(_PACKAGE_ROOT))


def _run_shadowed() -> None:
    """Run the sitecustomize that this one shadows, if there is one."""
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("AGENTRL_VLLM_PROCESS"):
    _die_with_parent()
    _die_with_parent_in_forks()
    _patch_broken_imports()
_run_shadowed()
