"""Load the objects that a user names as `module:name` or `path/file.py:name`."""

import importlib
import importlib.util
import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from agentrl.errors import ConfigError, describe_error, must_propagate
from agentrl.files import check_links
from agentrl.text import did_you_mean

_PACKAGE = Path(__file__).resolve().parent


def _dotted_name(path: Path) -> str | None:
    """The dotted name of a file inside the package, so that no module is loaded twice."""
    for root, package in (
        (_PACKAGE, "agentrl"),
        ((_PACKAGE / "envs").resolve(), "agentrl.envs"),
        ((_PACKAGE / "rewards").resolve(), "agentrl.rewards"),
    ):
        if path.is_relative_to(root):
            parts = path.relative_to(root).with_suffix("").parts
            return ".".join((package, *(p for p in parts if p != "__init__")))
    return None


_importing = threading.RLock()
"""Held while a file is imported: another thread must not see a half-initialized module."""


def _import_file(where: str) -> ModuleType:
    # As for modules: the current folder first, then that of the configuration, via sys.path.
    candidates = [Path(folder, where).resolve() for folder in ("", *sys.path)]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise ConfigError(
            f"{where}: no such file, neither in the current folder nor beside the configuration"
        )
    if dotted := _dotted_name(path):
        return importlib.import_module(dotted)
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(path):
            return loaded
        raise ConfigError(f"{path}: another module is named {name!r}; rename the file")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # it is only half initialized
        raise
    return module


def import_module(where: str) -> ModuleType:
    """Import a dotted module or a Python file.

    Raises:
        ConfigError: it does not exist, or its import fails.
    """
    try:
        if where.endswith(".py"):
            with _importing:
                return _import_file(where)
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # files are found there too
        return importlib.import_module(where)
    except ConfigError:
        raise
    except ModuleNotFoundError as error:
        if where.startswith("agentrl."):
            check_links()
        raise ConfigError(f"{where}: cannot be imported: {error}") from error
    except BaseException as error:
        if must_propagate(error):
            raise
        raise ConfigError(f"{where}: its import fails: {describe_error(error)}") from error


def load(reference: str) -> Any:
    """Import the object named by `module:name` or `path/file.py:name`.

    Raises:
        ConfigError: the module or the name does not exist.
    """
    module_name, colon, name = reference.rpartition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"{reference!r} must have the form module:name or path/file.py:name")
    module = import_module(module_name)
    if not hasattr(module, name):
        known = [n for n in vars(module) if not n.startswith("_")]
        raise ConfigError(f"{module_name} has no {name!r}{did_you_mean(name, known)}")
    return getattr(module, name)
