"""An app on a phone, and what it has been through since it was started."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl.types import Image
from agentrl.virtual_phone.apps.apk import Manifest
from agentrl.virtual_phone.apps.app import App

Input = tuple[Any, ...]
"""The name of one of an app's methods and what it was called with, in plain values."""

SECONDS_PER_TOUCH = 5
_TICK = "tick"
_MOST_INPUTS = 200_000
"""Of one start; what comes after them cannot be played again."""


@dataclass(slots=True, kw_only=True)
class Installed:
    """An app on the phone."""

    app: App
    manifest: Manifest | None = None
    """Of an app that was installed from an APK."""
    is_enabled: bool = True
    extras: dict[str, str] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    """Since the last start; an app is a pure state machine: these make its state."""
    touches: int = 0
    """Touches and keys handled while the app was in front, with or without effect."""
    launches: int = 0
    clock_s: int = 0
    """The time that the status bar shows: seeded by the launch, moved by touches alone."""
    area: Image | None = None
    """The picture of the app's state; None when the state has changed since it was drawn."""

    @property
    def component(self) -> str:
        """`package/activity`, the activity with its whole name."""
        return f"{self.app.package}/{full(self.app.package, self.app.activity)}"

    @property
    def components(self) -> set[str]:
        """All that it can be started as."""
        app = self.app
        activities = (app.activity, *getattr(app, "activities", ()))
        return {f"{app.package}/{full(app.package, activity)}" for activity in activities}

    @property
    def version(self) -> tuple[str, int]:
        """Its name and its number."""
        told = self.manifest
        return ("1.0", 1) if told is None else (told.version_name, told.version_code)

    def launch(self, extras: Mapping[str, str], clock_s: int) -> None:
        """Start the app afresh.

        Raises:
            ValueError: an extra that it does not take.
        """
        self.app.launch(extras)
        self.extras, self.inputs = dict(extras), []
        self.launches += 1
        self.clock_s = clock_s
        self.area = None

    def feed(self, event: Input) -> bool:
        """Let the app have a touch, a key, text or time; whether it used it.

        What the app raises is passed on: it has not counted the event, and is between two states.
        """
        used = self._apply(event)
        if event[0] != _TICK:
            self.touches += 1
            self.clock_s += SECONDS_PER_TOUCH
        self._remember(event)
        if used:
            self.area = None
        return used

    def replay(self) -> None:
        """Bring the app from its start to where its inputs lead.

        Raises:
            ValueError: there were too many of them.
        """
        if len(self.inputs) >= _MOST_INPUTS:
            raise ValueError(f"{self.app.package} has had more than {_MOST_INPUTS} inputs")
        self.app.launch(self.extras)
        for event in self.inputs:
            self._apply(event)
        self.area = None

    def draw(self, width: int, height: int) -> Image:
        """The app's area, drawn again only if something has changed."""
        if self.area is None or self.area.shape[:2] != (height, width):
            self.area = self.app.render(width, height)
        return self.area

    def published(self) -> bytes:
        """The state as a shell reads it."""
        state = {"touches": self.touches, "launches": self.launches, **self.app.state()}
        return json.dumps(state, ensure_ascii=False).encode()

    def _remember(self, event: Input) -> None:
        """Keep an input; times that follow each other are one, or they would be too many."""
        if event[0] == _TICK and self.inputs and self.inputs[-1][0] == _TICK:
            self.inputs[-1] = (_TICK, self.inputs[-1][1] + event[1])
        elif len(self.inputs) < _MOST_INPUTS:
            self.inputs.append(event)

    def _apply(self, event: Input) -> bool:
        name, *values = event
        # Not every app has a use for text, nor for nothing, which is a touch of the status bar.
        return bool(getattr(self.app, name, lambda *_: False)(*values))


def full(package: str, activity: str) -> str:
    """An activity with its whole name."""
    return package + activity if activity.startswith(".") else activity
