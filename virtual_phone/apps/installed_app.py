"""An installed app and its inputs since the last start."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from virtual_phone.apps.apk import ApkManifest
from virtual_phone.apps.app import App, LiveApp
from virtual_phone.types import Image

Input = tuple[Any, ...]
"""Name of an `App` method and its arguments, as plain values."""

SECONDS_PER_TOUCH = 5
_TICK = "tick"
_MAX_INPUTS = 200_000
"""Maximum number of inputs recorded since a start; beyond it, the app cannot be replayed."""


@dataclass(slots=True, kw_only=True)
class InstalledApp:
    """An installed app, its inputs and its rendered state."""

    app: App
    manifest: ApkManifest | None = None
    """Manifest of the APK, if the app was installed from one."""
    extras: dict[str, str] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    """Inputs since the last start. An app is a pure state machine: these determine its state."""
    touches: int = 0
    """Touches and keys handled while the app was in front, with or without effect."""
    launches: int = 0
    clock_s: int = 0
    """Time shown in the status bar: seeded by the launch, advanced only by touches."""
    area: Image | None = None
    """Rendered state; None if the state has changed since it was rendered."""

    @property
    def component(self) -> str:
        """`package/activity`, with the full name of the activity."""
        return component_name(self.app.package, self.app.activity)

    @property
    def components(self) -> set[str]:
        """All components that can be started."""
        app = self.app
        activities = (app.activity, *getattr(app, "activities", ()))
        return {component_name(app.package, activity) for activity in activities}

    @property
    def is_live(self) -> bool:
        """Whether the app draws the content of another process."""
        return isinstance(self.app, LiveApp)

    @property
    def version(self) -> tuple[str, int]:
        """Version name and version code."""
        manifest = self.manifest
        return ("1.0", 1) if manifest is None else (manifest.version_name, manifest.version_code)

    def launch(self, extras: Mapping[str, str], clock_s: int) -> None:
        """Start the app from its initial state."""
        self.app.launch(extras)
        self.extras, self.inputs = dict(extras), []
        self.launches += 1
        self.clock_s = clock_s
        self.area = None

    def feed(self, event: Input) -> bool:
        """Pass a touch, a key, text or a tick to the app; return whether the app handled it.

        Exceptions from the app propagate; the event is not recorded and the state is undefined.
        """
        used = self._apply(event)
        if self.is_live and hasattr(self.app, event[0]):
            return used  # the app counts it itself, once it has an effect
        if event[0] != _TICK:
            self.count_touch()
        if not self.is_live:
            self._remember(event)
        if used:
            self.area = None
        return used

    def count_touch(self) -> None:
        """Count a touch or key as handled."""
        self.touches += 1
        self.clock_s += SECONDS_PER_TOUCH

    def replay(self) -> None:
        """Restore the state by repeating the recorded inputs."""
        if self.is_live:
            raise ValueError(f"{self.app.package} is live: its state cannot be restored")
        if len(self.inputs) >= _MAX_INPUTS:
            raise ValueError(
                f"{self.app.package} cannot be replayed: it received {_MAX_INPUTS} or more inputs"
            )
        self.app.launch(self.extras)
        for event in self.inputs:
            self._apply(event)
        self.area = None

    def draw(self, width: int, height: int) -> Image:
        """Render the app's area, reusing the last image if the state is unchanged."""
        if self.area is None or self.area.shape[:2] != (height, width):
            self.area = self.app.render(width, height)
        return self.area

    def published(self) -> bytes:
        """Return the published state as JSON."""
        state = {"touches": self.touches, "launches": self.launches, **self.app.state()}
        # `default` converts NumPy numbers to Python numbers.
        return json.dumps(state, ensure_ascii=False, default=np.generic.item).encode(
            "utf-8", "replace"
        )

    def _remember(self, event: Input) -> None:
        """Record an input; consecutive ticks are merged to keep the history short."""
        if event[0] == _TICK and self.inputs and self.inputs[-1][0] == _TICK:
            self.inputs[-1] = (_TICK, self.inputs[-1][1] + event[1])
        elif len(self.inputs) < _MAX_INPUTS:
            self.inputs.append(event)

    def _apply(self, event: Input) -> bool:
        name, *values = event
        # `text`, `status_bar` and other methods are optional.
        return bool(getattr(self.app, name, lambda *_: False)(*values))


def component_name(package: str, activity: str) -> str:
    """`package/activity`, with the full name of the activity."""
    return f"{package}/{package if activity.startswith('.') else ''}{activity}"
