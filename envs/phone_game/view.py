"""Where a game lies on a phone's screen: below its status bar, or on a page of its browser.

Its layout is that of a whole screen with a status bar. On a page the app has an area of its own,
with no status bar above: what is seen and where to touch are brought from one to the other here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from agentrl.devices import Region, Settled
from agentrl.envs.phone_game.box import STATUS_BAR, to_app
from agentrl.types import Image


def in_layout(shown: Settled, area: Region | None) -> Settled:
    """A screen as the game's layout has it, with black for the status bar that a page lacks.

    Args:
        shown: the screen of a phone.
        area: of the app, where a page shows it; None below a status bar.
    """
    return shown if area is None else replace(shown, frame=_cut(shown.frame, area))


def on_screen(facts: Mapping[str, Any], area: Region | None) -> Mapping[str, Any]:
    """Facts whose `places` are to be touched on the phone's screen."""
    if area is None:
        return facts
    return {**facts, "places": {name: _at(place, area) for name, place in facts["places"].items()}}


def _cut(frame: Image, area: Region) -> Image:
    height, width = frame.shape[:2]
    top, bottom = round(area.top * height), round(area.bottom * height)
    app = frame[top:bottom, round(area.left * width) : round(area.right * width)]
    bar = round(len(app) * STATUS_BAR / (1 - STATUS_BAR))
    return np.pad(app, ((bar, 0), (0, 0), (0, 0)))


def _at(place: list[Any], area: Region) -> list[Any]:
    """Positions, or a list of them, brought from the layout to the screen."""
    if place and isinstance(place[0], list):
        return [_at(one, area) for one in place]
    moved: list[float] = []
    for x, y in zip(place[::2], place[1::2], strict=True):
        moved += (round(share, 4) for share in area.to_screen(x, to_app(y)))
    return moved
