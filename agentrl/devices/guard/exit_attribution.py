"""Who is to blame for what came in front of an app: the agent or the world, by evidence.

The first rule that applies decides:

1. It was there before the action was sent, or the action touches nothing: the world.
2. A call or a question about a permission: the world.
3. A dialog that says that the app does not answer: Android shows it after five seconds without an
   answer. If it came sooner after the touch, the app hung before: the world. If the app counted
   the touch, it hung later, of itself: the world. Otherwise the touch was the first that it left
   without an answer: the agent.
4. A key of the phone (HOME, BACK, ...), or a touch that began in one of the system's bars or came
   in from the edge: the agent, except for a crash.
5. The app counted the touch, and then something came in front of it, or it crashed: the world.
6. It counts touches, did not count this one, and crashed or has another app in front of it: the
   world. The touch may have been lost, and nobody can tell; so the episode is void.
7. It did not count the touch, or counts none, and something came soon after: the agent. Whoever
   touches what takes him out of the game, or ends it, has done so himself.
8. Later than that: the world.
"""

from dataclasses import dataclass
from typing import Literal

from agentrl.actions.screen_actions import Action, Drag, Key, LongPress, Swipe, Tap, does_nothing
from agentrl.devices.foreground_window import Window
from agentrl.devices.screen_regions import STATUS_BAR

By = Literal["agent", "world"]

_KEYS = frozenset((
    "HOME", "BACK", "APP_SWITCH", "POWER", "SLEEP", "ENDCALL", "CALL", "CAMERA", "ASSIST",
    "NOTIFICATION", "SEARCH", "SETTINGS", "ALL_APPS", "EXPLORER",
))  # fmt: skip
_ANR_S = 5.0
"""Without an answer, before Android says so: dispatching timeout of input events."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Edges:
    """Where a touch is the system's, as shares of the screen."""

    top: float = STATUS_BAR
    bottom: float = 0.06
    side: float = 0.03
    """A swipe that begins there goes back."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Evidence:
    """What is known of the time in which a window came to the front."""

    action: Action | None
    """The agent's last; None if the window was there before it was sent."""
    handled: bool | None = None
    """Whether the app counted it; None where it counts none."""
    seconds: float = 0.0
    """From the action to the moment when the window was seen, at most."""


def judge(
    window: Window, evidence: Evidence, *, soon_s: float, edges: Edges | None = None
) -> tuple[By, str]:
    """Who brought a window to the front, and what tells so.

    Args:
        window: that is in front, and is none of the app's.
        evidence: of how it came.
        soon_s: a touch can be the reason for so long.
        edges: where touches are the system's.
    """
    action, handled = evidence.action, evidence.handled
    if action is None:
        return "world", "it was in front before the action was sent"
    if does_nothing(action):
        return "world", "nothing was touched"
    if window.kind in ("call", "permission"):
        return "world", f"a {window.kind} comes from outside"
    if window.kind == "anr":
        return _of_a_hang(evidence)
    if window.kind != "crash" and (way := _way_out(action, edges or Edges())):
        return "agent", way
    if handled:
        return "world", "the app had counted the touch before"
    if handled is False and window.kind in ("foreign_app", "crash"):
        return "world", "the app had not got the touch, which may have been lost"
    told = "the app counts no touches" if handled is None else "the app did not count the touch"
    if evidence.seconds <= soon_s:
        return "agent", f"it came soon after the touch, and {told}"
    return "world", "it came long after the touch"


def _of_a_hang(evidence: Evidence) -> tuple[By, str]:
    if evidence.seconds < _ANR_S:
        return "world", f"it came sooner than {_ANR_S:g} s after the touch: the app hung before"
    if evidence.handled:
        return "world", "the app had counted the touch before it hung"
    return "agent", "the app has not answered since the touch"


def _way_out(action: Action, edges: Edges) -> str | None:
    """How an action leaves every app, whatever the app does; None if it does not."""
    match action:
        case Key(name):
            key = name.upper().removeprefix("KEYCODE_")
            return f"the key {key} is the phone's" if key in _KEYS else None
        case Tap(x, y) | LongPress(x, y):
            sideways = False
        case Swipe(x, y) | Drag(x, y):
            sideways = min(x, 1 - x) <= edges.side
        case _:
            return None
    if y <= edges.top or y >= 1 - edges.bottom:
        return "the touch began in a bar of the system"
    return "the swipe came in from the edge" if sideways else None
