"""Imports user code named as `module:name` or `path/file.py:name`."""

import ast
import hashlib
import importlib
import importlib.util
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from agentrl import extras
from agentrl.errors import INSTALLED, ConfigError, describe_error, must_propagate
from agentrl.package_links import check_links
from agentrl.text.name_suggestions import did_you_mean

log = logging.getLogger(__name__)
_PACKAGE = Path(__file__).resolve().parent
IMPORT_WARNING_S = 30.0
"""An import that takes longer is reported, along with its current line."""


def _dotted_name(path: Path) -> str | None:
    """Return the dotted name of a file inside the package, so that no module is loaded twice."""
    for root, package in (
        (_PACKAGE, "agentrl"),
        ((_PACKAGE / "envs").resolve(), "agentrl.envs"),
        ((_PACKAGE / "rewards").resolve(), "agentrl.rewards"),
    ):
        if path.is_relative_to(root):
            parts = path.relative_to(root).with_suffix("").parts
            return ".".join((package, *(p for p in parts if p != "__init__")))
    return None


def _is_name_of_another(name: str, path: Path) -> bool:
    """Return whether Python or an installed package has another module with this name."""
    spec = PathFinder.find_spec(name, INSTALLED)
    return spec is not None and spec.origin != str(path)


def _expanded(where: str) -> Path:
    try:
        return Path(where).expanduser()
    except RuntimeError as error:  # ~somebody
        raise ConfigError(f"{where}: {error}") from None


NOT_FOUND = ", neither in the current folder nor next to the configuration"
_importing = threading.RLock()
"""Held while a file is imported, because no other thread may see a half-initialized module."""


_roots: list[Path] = []


def look_below(root: Path) -> None:
    """Also look for files with absolute paths in a folder to which they were copied."""
    _roots.append(root)


def roots() -> tuple[Path, ...]:
    """Return the folders of `look_below`."""
    return tuple(_roots)


_imported_elsewhere: dict[str, str] = {}


def remember_modules(files: Mapping[str, str]) -> None:
    """Remember the files of user modules imported by another process of the job."""
    _imported_elsewhere.update(files)


def module_files() -> dict[str, str]:
    """Return the files of all modules imported by this process or given to `remember_modules`."""
    files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    return _imported_elsewhere | {name: file for name, file in files.items() if file}


def find_file(where: str) -> Path | None:
    """Find a file in the current folder or, like a module, in the folders of `sys.path`."""
    file = _expanded(where)
    copies = [Path(root, *file.parts[1:]) for root in _roots if file.is_absolute()]
    places = (*(Path(folder, file) for folder in ("", *sys.path)), *copies)
    candidates = (place.resolve() for place in places)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def file_of(reference: str) -> Path | None:
    """Return the user's file that `module:name` or `path/file.py:name` refers to.

    Returns:
        None if there is no file, it belongs to agentrl, or its module has not been imported.
    """
    where = reference.rpartition(":")[0]
    if where.endswith(".py"):
        path = find_file(where)
    else:
        file = getattr(sys.modules.get(where), "__file__", None) or _imported_elsewhere.get(where)
        path = Path(file).resolve() if file else None
    return None if path is None or _dotted_name(path) else path


def _import_file(where: str) -> ModuleType:
    path = find_file(where)
    if path is None:
        raise ConfigError(f"{where}: no such file{NOT_FOUND}")
    if dotted := _dotted_name(path):
        return importlib.import_module(dotted)
    name = path.stem
    loaded = sys.modules.get(name)
    is_other = loaded is not None and getattr(loaded, "__file__", None) != str(path)
    if is_other or (loaded is None and _is_name_of_another(name, path)):
        # For a file such as math.py or torch.py, the existing module keeps its name and comes first
        # on sys.path.
        name = f"{name}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
        loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    if str(path.parent) not in sys.path:
        sys.path.insert(0 if name == path.stem else len(sys.path), str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        _check_imports(path)
    except BaseException:
        del sys.modules[name]  # only half initialized
        raise
    return module


def _check_imports(file: Path) -> None:
    """Check that an imported file's imports resolved to the modules next to it.

    Python identifies a module by name alone. If two folders each have a `utils.py`, the file
    imported second would use the functions of the first folder.

    Raises:
        ConfigError: the file imports a module that exists next to it, but Python has loaded another
            user file under that name.
    """
    files, seen = [file], {file}
    while files:
        for name in _imported_names(files.pop()):
            beside = next((path for path in _places(file.parent, name) if path.is_file()), None)
            loaded = getattr(sys.modules.get(name), "__file__", None)
            if beside is None or loaded is None or loaded.startswith(INSTALLED):
                continue
            other = Path(loaded).resolve()
            if other != beside and other.read_bytes() != beside.read_bytes():  # nodes use copies
                raise ConfigError(
                    f"{file} imports {name!r}, but Python has already imported {other} under that "
                    f"name, not {beside}; rename one of the two files"
                )
            if beside not in seen:
                seen.add(beside)
                files.append(beside)


def _places(folder: Path, name: str) -> tuple[Path, ...]:
    return folder / name / "__init__.py", folder / f"{name}.py"


def _imported_names(file: Path) -> Iterator[str]:
    """Return the top-level names of all absolute imports in a file."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # not Python source, such as a C library
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def import_module(where: str) -> ModuleType:
    """Import a dotted module or a Python file.

    Raises:
        ConfigError: the module does not exist, or its import fails.
    """
    watch = threading.Timer(IMPORT_WARNING_S, _report_slow_import, (where, threading.get_ident()))
    watch.daemon = True
    if not where.startswith("agentrl."):
        watch.start()
    try:
        if where.endswith(".py"):
            with _importing:
                return _import_file(where)
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # files are looked up there too
        return importlib.import_module(where)
    except ConfigError:
        raise
    except ModuleNotFoundError as error:
        if where.startswith("agentrl."):
            check_links()
        reason = extras.advice_on_import(error) or f"cannot be imported: {error}"
        raise ConfigError(f"{where}: {reason}") from error
    except BaseException as error:
        if must_propagate(error):
            raise
        raise ConfigError(f"{where}: cannot be imported: {describe_error(error)}") from error
    finally:
        watch.cancel()


def _report_slow_import(where: str, thread: int) -> None:
    """Log the line of user code that an import is currently executing."""
    stack = traceback.extract_stack(sys._current_frames()[thread])
    ours = max(i for i, call in enumerate(stack) if call.filename == __file__)
    machinery = ("<frozen ", importlib.__file__)
    after = [call for call in stack[ours + 1 :] if not call.filename.startswith(machinery)]
    place = (after or stack[-1:])[0]
    log.warning(
        "%s: the import has not finished after %.0f s, and is at %s:%s: %s; move slow work from "
        "the import to the first use, or stop the job if the import hangs",
        where, IMPORT_WARNING_S, place.filename, place.lineno, place.line,
    )  # fmt: skip


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
