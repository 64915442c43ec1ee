"""Specification of the virtual phones that a process hosts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from agentrl import registry
from agentrl.errors import ConfigError, describe_error, must_propagate
from agentrl.virtual_phone.apps.app import App

Tempo = Literal["real", "quick"]
"""Whether gestures take their time, as on a real phone, or none."""
EFFECT_DELAY_MS: Mapping[Tempo, tuple[float, float]] = {"real": (50, 300), "quick": (0, 0)}
"""Shortest and longest delay between a touch and its visible effect."""


@dataclass(slots=True, kw_only=True, frozen=True)
class AppSpec:
    """An app to install."""

    app: str
    """`module:Class`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of its constructor."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PhonesSpec:
    """The phones of one process; passed to it as JSON."""

    num_phones: int
    apps: tuple[AppSpec, ...] = ()
    size: tuple[int, int] = (720, 1280)
    tempo: Tempo = "real"
    effect_delay_ms: tuple[float, float] | None = None
    """None for the default of the tempo."""
    seed: int = 0
    faults: Mapping[str, Any] = field(default_factory=dict)
    """A fault plan for `agentrl.virtual_phone.faults.fault_plan.read`."""
    auth: bool = False
    """Whether the phones require ADB authentication."""
    keys: tuple[str, ...] | None = None
    """Public keys that the phones trust; None trusts every key."""
    ports: tuple[int, ...] = ()
    """Ports to listen on, one per phone; free ones if there are none."""
    adb_server: tuple[str, int] | None = None
    """Host and port of the adb server that forgets the phones when they end."""
    parent: int | None = None
    """Process id of the parent that the phones end with; None to outlive it."""
    path: tuple[str, ...] = ()
    """The parent's `sys.path`."""

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> "PhonesSpec":
        """Parse the result of `to_json`."""
        tree = json.loads(line)
        tree["apps"] = tuple(AppSpec(**app) for app in tree["apps"])
        for name in ("size", "effect_delay_ms", "path", "keys", "ports", "adb_server"):
            tree[name] = None if tree[name] is None else tuple(tree[name])
        return PhonesSpec(**tree)


def make_apps(specs: Sequence[AppSpec]) -> list[App]:
    """Create one instance of every app.

    Raises:
        ConfigError: an app does not exist, rejects its arguments, or is not an app.
    """
    return [_make_app(spec) for spec in specs]


def _make_app(spec: AppSpec) -> App:
    try:
        app: App = registry.load(spec.app)(**spec.kwargs)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"app {spec.app} rejects {dict(spec.kwargs)}: {error}") from error
    except BaseException as error:
        if must_propagate(error):
            raise
        raise ConfigError(
            f"app {spec.app} failed with {dict(spec.kwargs)}: {describe_error(error)}"
        ) from error
    methods = (name for name in vars(App) if callable(vars(App)[name]) and name[0] != "_")
    missing = [name for name in methods if not callable(getattr(app, name, None))]
    missing += [n for n in ("package", "activity") if not isinstance(getattr(app, n, None), str)]
    if missing:
        raise ConfigError(
            f"{spec.app} is not an app: it lacks {', '.join(missing)} "
            "(agentrl.virtual_phone.apps.app.App)"
        )
    return app
