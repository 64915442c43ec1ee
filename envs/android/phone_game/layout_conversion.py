"""Converts between a game's layout and the screen: below a status bar, or on a web page.

A game's layout assumes a whole screen with a status bar. On a web page the app has only part of the
screen and no status bar. These functions convert frames to the layout and positions to the screen.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from agentrl.devices import ScreenRegion, Settled
from agentrl.envs.android.phone_game.boxes import STATUS_BAR, to_app
from agentrl.types import Image


def to_layout(shown: Settled, area: ScreenRegion | None) -> Settled:
    """Convert a screen to the game's layout, with a black status bar if a page shows the game."""
    return shown if area is None else replace(shown, frame=_cut(shown.frame, area))


def targets_to_screen(facts: Mapping[str, Any], area: ScreenRegion | None) -> Mapping[str, Any]:
    """Convert the `touch_targets` of published facts from the layout to the phone's screen."""
    if area is None:
        return facts
    targets = {name: _at(target, area) for name, target in facts["touch_targets"].items()}
    return {**facts, "touch_targets": targets}


def _cut(frame: Image, area: ScreenRegion) -> Image:
    height, width = frame.shape[:2]
    top, bottom = round(area.top * height), round(area.bottom * height)
    app = frame[top:bottom, round(area.left * width) : round(area.right * width)]
    bar = round(len(app) * STATUS_BAR / (1 - STATUS_BAR))
    return np.pad(app, ((bar, 0), (0, 0), (0, 0)))


def _at(target: list[Any], area: ScreenRegion) -> list[Any]:
    """Convert a position, or a list of positions, from the layout to the screen."""
    if target and isinstance(target[0], list):
        return [_at(position, area) for position in target]
    moved: list[float] = []
    for x, y in zip(target[::2], target[1::2], strict=True):
        moved += (round(share, 4) for share in area.to_screen(x, to_app(y)))
    return moved
