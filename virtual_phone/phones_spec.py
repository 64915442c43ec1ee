"""Specification of the virtual phones hosted by a process."""

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from virtual_phone.apps.app import App
from virtual_phone.errors import SettingError, did_you_mean

Tempo = Literal["real", "quick"]
"""Whether gestures take time, as on a real phone, or are instant."""
EFFECT_DELAY_MS: Mapping[Tempo, tuple[float, float]] = {"real": (50, 300), "quick": (0, 0)}
"""Range of delays between a touch and its visible effect, by tempo."""


@dataclass(slots=True, kw_only=True, frozen=True)
class AppSpec:
    """An app to install."""

    app: str
    """`module:Class` or `path/file.py:Class`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for the constructor."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PhonesSpec:
    """Phones of one process; passed to the process as JSON."""

    num_phones: int
    apps: tuple[AppSpec, ...] = ()
    size: tuple[int, int] = (720, 1280)
    tempo: Tempo = "real"
    effect_delay_ms: tuple[float, float] | None = None
    """Range of effect delays; None uses the tempo's default."""
    seed: int = 0
    faults: Mapping[str, Any] = field(default_factory=dict)
    """A fault plan for `virtual_phone.faults.fault_plan.read`."""
    auth: bool = False
    """Whether the phones require ADB authentication."""
    keys: tuple[str, ...] | None = None
    """Public keys that the phones trust; None trusts every key."""
    ports: tuple[int, ...] = ()
    """Ports to listen on, one per phone; if empty, free ports are chosen."""
    adb_server: tuple[str, int] | None = None
    """Host and port of the adb server that the phones are removed from when they shut down."""
    parent: int | None = None
    """Process id of the parent, with which the phones shut down. None lets them outlive it."""
    path: tuple[str, ...] = ()
    """The parent's `sys.path`."""

    def to_json(self) -> str:
        """Serialize to one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> "PhonesSpec":
        """Parse the result of `to_json`."""
        tree = json.loads(line)
        tree["apps"] = tuple(AppSpec(**app) for app in tree["apps"])
        for name in ("size", "effect_delay_ms", "path", "keys", "ports", "adb_server"):
            tree[name] = None if tree[name] is None else tuple(tree[name])
        return PhonesSpec(**tree)


def make_apps(specs: Sequence[AppSpec], load: Callable[[str], Any] | None = None) -> list[App]:
    """Create one instance of every app.

    Args:
        specs: the apps.
        load: returns the class for a reference; None uses `load_class`.
    """
    return [_make_app(spec, (load or load_class)(spec.app)) for spec in specs]


def load_class(reference: str) -> Any:
    """Import the class named by `module:Class` or `path/file.py:Class`."""
    module, _, name = reference.rpartition(":")
    if not module or not name:
        raise SettingError(f"{reference!r} must have the form module:Class or path/file.py:Class")
    if module.endswith(".py"):
        paths = (Path(folder, module).resolve() for folder in ("", *sys.path))
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            raise SettingError(f"{module}: this file does not exist")
        sys.path.insert(0, str(path.parent))
        module = path.stem
    try:
        loaded = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise SettingError(f"{module} cannot be imported: {_describe(error)}") from error
    if not hasattr(loaded, name):
        raise SettingError(f"{module} has no {name!r}{did_you_mean(name, list(vars(loaded)))}")
    return getattr(loaded, name)


def _make_app(spec: AppSpec, cls: Any) -> App:
    try:
        app: App = cls(**spec.kwargs)
    except (TypeError, ValueError) as error:
        raise SettingError(f"app {spec.app} rejects kwargs={dict(spec.kwargs)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise SettingError(
            f"app {spec.app} failed with kwargs={dict(spec.kwargs)}: {_describe(error)}"
        ) from error
    methods = (name for name in vars(App) if callable(vars(App)[name]) and name[0] != "_")
    missing = [name for name in methods if not callable(getattr(app, name, None))]
    missing += [n for n in ("package", "activity") if not isinstance(getattr(app, n, None), str)]
    if missing:
        raise SettingError(
            f"{spec.app} is not an app, because it does not define {', '.join(missing)} "
            "(see virtual_phone.apps.app.App)"
        )
    return app


def _describe(error: BaseException) -> str:
    """Format type, message and location of an error: `ValueError: too small (game.py:12)`."""
    place = "".join(
        f" ({Path(frame.filename).name}:{frame.lineno})"
        for frame in traceback.extract_tb(error.__traceback__)[-1:]
    )
    return f"{type(error).__name__}: {error}{place}"
