"""Find what a user names: `module:name`, or `path/file.py:name`."""

import importlib
import importlib.util
import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from agentrl.errors import ConfigError, is_ours, told
from agentrl.folder_links import check_links
from agentrl.text import did_you_mean

_PACKAGE = Path(__file__).resolve().parent


def _dotted_name(path: Path) -> str | None:
    """The importable name of a file inside the package, so that no module exists twice."""
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
"""Held while a file is imported: another thread must not find it half made."""


def _import_file(where: str) -> ModuleType:
    # As modules are: here, then beside the configuration, whose folder is on the path.
    places = [Path(folder, where).resolve() for folder in ("", *sys.path)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ConfigError(f"{where}: no such file, neither here nor beside the configuration")
    if dotted := _dotted_name(path):
        return importlib.import_module(dotted)
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(path):
            return loaded
        raise ConfigError(f"{path}: another module is called {name!r}; give the file another name")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # not to be found again half made
        raise
    return module


def import_module(where: str) -> ModuleType:
    """Import a dotted module or a Python file.

    Raises:
        ConfigError: there is none, or it fails while it is imported.
    """
    try:
        if where.endswith(".py"):
            with _importing:
                return _import_file(where)
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # as files are found
        return importlib.import_module(where)
    except ConfigError:
        raise
    except ModuleNotFoundError as error:
        if where.startswith("agentrl."):
            check_links()
        raise ConfigError(f"{where}: cannot be imported: {error}") from error
    except BaseException as error:
        if is_ours(error):
            raise
        raise ConfigError(f"{where} fails when imported: {told(error)}") from error


def load(reference: str) -> Any:
    """The object that `module:name` or `path/file.py:name` names.

    Raises:
        ConfigError: the module or the name does not exist.
    """
    module_name, colon, name = reference.rpartition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"{reference!r} must read module:name or path/file.py:name")
    module = import_module(module_name)
    if not hasattr(module, name):
        known = [n for n in vars(module) if not n.startswith("_")]
        raise ConfigError(f"{module_name} has no {name!r}{did_you_mean(name, known)}")
    return getattr(module, name)
