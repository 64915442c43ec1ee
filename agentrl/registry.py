"""Load what a name in the configuration selects.

The name is that of a built-in or of an installed package's entry point, or it says where the object
is: `module:name` or `path/file.py:name`. Nothing is imported before it is selected.
"""

import hashlib
import importlib
import importlib.util
import logging
import os
import pkgutil
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from agentrl import extras
from agentrl.alarm import alarm
from agentrl.errors import INSTALLED, ConfigError, describe_error, must_propagate
from agentrl.files import check_links
from agentrl.import_clashes import check_imports
from agentrl.text import did_you_mean, known_names

log = logging.getLogger(__name__)
_PACKAGE = Path(__file__).resolve().parent
IMPORT_WARNING_S = 30.0
"""An import that takes longer is reported, with the line where it is."""
IMPORT_DEADLINE_S = 300.0
"""An import that takes longer fails; a file may compile a kernel or import large libraries."""


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


def _is_name_of_another(name: str, path: Path) -> bool:
    """Whether Python or an installed package has another module of this name; not imported."""
    spec = PathFinder.find_spec(name, INSTALLED)
    return spec is not None and spec.origin != str(path)


def _expanded(where: str) -> Path:
    try:
        return Path(where).expanduser()
    except RuntimeError as error:  # ~somebody
        raise ConfigError(f"{where}: {error}") from None


_BESIDE = ", neither in the current folder nor beside the configuration"
_importing = threading.RLock()
"""Held while a file is imported: another thread must not see a half-initialized module."""


_roots: list[Path] = []


def look_below(root: Path) -> None:
    """Look for files of absolute paths also below a folder, into which they were copied."""
    _roots.append(root)


def roots() -> tuple[Path, ...]:
    """The folders of `look_below`."""
    return tuple(_roots)


_imported_elsewhere: dict[str, str] = {}


def remember_modules(files: Mapping[str, str]) -> None:
    """Remember the files of the user's modules that another process of the job has imported."""
    _imported_elsewhere.update(files)


def module_files() -> dict[str, str]:
    """The files of all modules that this process has imported, and those of `remember_modules`."""
    files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    return _imported_elsewhere | {name: file for name, file in files.items() if file}


def _find_file(where: str) -> Path | None:
    # As for modules: the current folder first, then that of the configuration, via sys.path.
    file = _expanded(where)
    copies = [Path(root, *file.parts[1:]) for root in _roots if file.is_absolute()]
    places = (*(Path(folder, file) for folder in ("", *sys.path)), *copies)
    candidates = (place.resolve() for place in places)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def file_of(reference: str) -> Path | None:
    """The file of the user's code that `module:name` or `path/file.py:name` names.

    Returns:
        None if it is none, belongs to agentrl, or is a module that has not been imported.
    """
    where = reference.rpartition(":")[0]
    if where.endswith(".py"):
        path = _find_file(where)
    else:
        file = getattr(sys.modules.get(where), "__file__", None) or _imported_elsewhere.get(where)
        path = Path(file).resolve() if file else None
    return None if path is None or _dotted_name(path) else path


def _import_file(where: str) -> ModuleType:
    path = _find_file(where)
    if path is None:
        raise ConfigError(f"{where}: no such file{_BESIDE}")
    if dotted := _dotted_name(path):
        return importlib.import_module(dotted)
    name = path.stem
    loaded = sys.modules.get(name)
    is_other = loaded is not None and getattr(loaded, "__file__", None) != str(path)
    if is_other or (loaded is None and _is_name_of_another(name, path)):
        # Such as math.py or torch.py: the other module keeps the name, and comes first on sys.path.
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
        check_imports(path)
    except BaseException:
        del sys.modules[name]  # it is only half initialized
        raise
    return module


def import_module(where: str) -> ModuleType:
    """Import a dotted module or a Python file.

    Raises:
        ConfigError: it does not exist, or its import fails or does not end.
    """
    report = _reporter_of_slow_import(where)
    try:
        with alarm(IMPORT_WARNING_S, report, IMPORT_DEADLINE_S - IMPORT_WARNING_S):
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
        reason = extras.advice_on_import(error) or f"cannot be imported: {error}"
        raise ConfigError(f"{where}: {reason}") from error
    except BaseException as error:
        if must_propagate(error):
            raise
        raise ConfigError(f"{where}: its import fails: {describe_error(error)}") from error


def _reporter_of_slow_import(where: str) -> Callable[[FrameType | None], None]:
    started = time.monotonic()

    def report(frame: FrameType | None) -> None:
        spent_s = time.monotonic() - started
        stack = traceback.extract_stack(frame)
        ours = max(i for i, call in enumerate(stack) if call.filename == __file__)
        machinery = ("<frozen ", importlib.__file__)
        after = [call for call in stack[ours + 1 :] if not call.filename.startswith(machinery)]
        place = (after or stack[-1:])[0]
        message = (
            f"{where}: its import has not ended after {spent_s:.0f} s: {place.filename}:"
            f"{place.lineno}: {place.line}"
        )
        if spent_s >= IMPORT_DEADLINE_S:
            raise ConfigError(f"{message}; move slow work from the import to the first use")
        log.warning("%s; it is abandoned after %.0f s", message, IMPORT_DEADLINE_S)

    return report


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


@dataclass(slots=True, kw_only=True, frozen=True)
class Extension:
    """A name that the configuration can use, and what it stands for."""

    name: str
    target: str
    """`module:name` of the object; `module` alone if it is the one class of a built-in module."""
    origin: str
    """`agentrl`, or the installed distribution that provides it."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ExtensionPoint:
    """One kind of thing that users can provide, such as algorithms."""

    kind: str
    """The kind's name in `agentrl list` and `agentrl check`."""
    setting: str
    """The setting that selects one, for messages."""
    builtin: str | Mapping[str, str]
    """A package of agentrl in which every module holds one, under the module's name; targets by
    name; or `module:function`, which returns targets by name."""
    base: str | None = None
    """`module:Class` that each is a subclass of; required if `builtin` is a package."""
    from_yaml: str | None = None
    """`module:function` that makes one of a YAML file (a `Path`), where users may write them so."""

    @property
    def group(self) -> str:
        """The entry-point group in which installed packages add names."""
        return f"agentrl.{self.kind}"

    def extensions(self) -> list[Extension]:
        """All names that can be used, sorted; a package's name that a built-in has is left out."""
        found = self._builtins()
        for one in _installed_extensions(self.group, tuple(sys.path)):
            found.setdefault(_key(one.name), one)
        return sorted(found.values(), key=lambda one: one.name)

    def names(self) -> list[str]:
        """The names of `extensions`."""
        return [one.name for one in self.extensions()]

    def resolve(self, name: str) -> Any:
        """The object that a name selects.

        Args:
            name: a name of `extensions`, in which `-`, `.` and `_` are equal; or `module:name`,
                `path/file.py:name` or, if there is `from_yaml`, `path/file.yaml`.

        Raises:
            ConfigError: there is no such object, its import fails, or it is of another kind.
        """
        try:
            is_target = ":" in name or self.is_yaml(name)
            found = self._load_target(name) if is_target else self._load_named(name)
        except ConfigError as error:
            raise ConfigError(f"{self.setting}={name}: {error}") from error
        self._check_base(name, found)
        return found

    def target(self, name: str) -> str:
        """`module:name` of what a name selects, or the module of a built-in; not imported.

        Raises:
            ConfigError: there is no such name.
        """
        if ":" in name or self.is_yaml(name):
            return name
        try:
            return self._find(name).target
        except ConfigError as error:
            raise ConfigError(f"{self.setting}={name}: {error}") from error

    def check_name(self, name: str) -> None:
        """Check that a name exists, without importing what it selects; see `resolve`.

        Raises:
            ConfigError: it does not. Whether `module:name` exists is not checked.
        """
        self.target(name)

    def is_yaml(self, name: str) -> bool:
        """Whether a name is that of a YAML file which `from_yaml` reads."""
        return self.from_yaml is not None and name.endswith((".yaml", ".yml"))

    def _load_target(self, target: str) -> Any:
        if not self.is_yaml(target):
            return load(target)
        path = _find_file(target)
        if path is None:
            raise ConfigError(f"no such file{_BESIDE}")
        return load(str(self.from_yaml))(path)

    def _builtins(self) -> dict[str, Extension]:
        if not isinstance(self.builtin, str):
            targets = dict(self.builtin)
        elif ":" in self.builtin:
            targets = load(self.builtin)()
        else:
            folder = _PACKAGE.joinpath(*self.builtin.split(".")[1:])  # nothing is imported yet
            modules = [m for m in pkgutil.iter_modules([str(folder)]) if not m.ispkg]
            targets = {module.name: f"{self.builtin}.{module.name}" for module in modules}
        return {
            _key(name): Extension(name=name, target=target, origin="agentrl")
            for name, target in targets.items()
        }

    def _find(self, name: str) -> Extension:
        builtins = self._builtins()
        if (found := builtins.get(_key(name))) is not None:
            return found  # without looking through all installed packages
        known = self.extensions()
        if (one := next((one for one in known if _key(one.name) == _key(name)), None)) is not None:
            return one
        names = [extension.name for extension in known]
        forms = "module:Class" if self.from_yaml is None else "path/file.yaml, module:Class"
        raise ConfigError(
            f"there is no such {self.kind}"
            f"{known_names(name, names, command=f'agentrl list {self.kind}')}; your own is named "
            f"{forms} or path/file.py:Class"
        )

    def _load_named(self, name: str) -> Any:
        target = self._find(name).target
        is_module = ":" not in target and not self.is_yaml(target)
        return self._only_class(target) if is_module else self._load_target(target)

    def _only_class(self, target: str) -> Any:
        """The one class of its kind in a module; classes that begin with `_` do not count."""
        module, base = import_module(target), load(str(self.base))
        found = [
            member
            for name, member in vars(module).items()
            if isinstance(member, type)
            and issubclass(member, base)
            and member.__module__ == module.__name__
            and not name.startswith("_")
        ]
        if len(found) != 1:
            names = ", ".join(member.__name__ for member in found) or "none"
            raise ConfigError(
                f"{target} must hold exactly one subclass of {base.__name__}; it has {names}"
            )
        return found[0]

    def _check_base(self, name: str, found: Any) -> None:
        if self.base is None:
            return
        base = load(self.base)
        if not (isinstance(found, type) and issubclass(found, base)):
            raise ConfigError(
                f"{self.setting}={name}: is not a subclass of {base.__module__}.{base.__name__}"
            )


@cache
def _installed_extensions(group: str, search_path: tuple[str, ...]) -> tuple[Extension, ...]:
    """Read the extensions that installed packages add to a group; cached, since it is slow.

    Args:
        group: of entry points.
        search_path: `sys.path`, which says where packages are installed.
    """
    import importlib.metadata

    return tuple(
        Extension(
            name=point.name,
            target=point.value.partition("[")[0].strip(),  # without the extras it needs
            origin=point.dist.name if point.dist is not None else "unknown",
        )
        for point in importlib.metadata.entry_points(group=group)
    )


def _key(name: str) -> str:
    """Normalize a name, so that spellings of the same name are equal."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower())
