"""Attributes an app's loss of the foreground to the agent or to the world, based on evidence.

The first rule that applies decides:

1. The window was there before the action was sent, or the action touches nothing: the world.
2. An incoming call, a permission request, the confirmation of an installation or the offer of a
   system update: the world.
3. An "app not responding" dialog: Android shows it five seconds after an unanswered touch. If it
   came sooner, the app already hung before the touch: the world. If the app counted the touch, it
   hung later for its own reasons: the world. Otherwise this was the first unanswered touch: the
   agent.
4. A system key (HOME, BACK, ...), or a touch that began in a system bar or a swipe from the edge:
   the agent, except for a crash.
5. The app counted the touch, and then lost the foreground or crashed: the world.
6. The app counts touches, did not count this one, and crashed or another app is in front: the
   world. The touch may have been lost, which cannot be decided, so the episode is discarded.
7. The app did not count the touch, or does not count touches, and the window came soon after: the
   agent. A touch that leads out of the game is the agent's own act.
8. The window came later than that: the world.
"""

from dataclasses import dataclass
from typing import Literal

from agentrl.actions.screen_actions import Action, Key, PathTouch, PointTouch, touches_nothing
from agentrl.devices.device import Window
from agentrl.devices.screen_regions import STATUS_BAR

ExitCause = Literal["agent", "world"]

_KEYS = frozenset((
    "HOME", "BACK", "APP_SWITCH", "POWER", "SLEEP", "ENDCALL", "CALL", "CAMERA", "ASSIST",
    "NOTIFICATION", "SEARCH", "SETTINGS", "ALL_APPS", "EXPLORER",
))  # fmt: skip
_ANR_S = 5.0
"""Android's input dispatching timeout: an unanswered touch raises the dialog after this time."""
_TOP_EDGE, _BOTTOM_EDGE, _SIDE_EDGE = STATUS_BAR, 0.06, 0.03
"""Screen margins that belong to the system; a swipe from the side is the back gesture."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ExitEvidence:
    """Evidence of how a window came to the front."""

    action: Action | None
    """The agent's last action; None if the window was there before the action was sent."""
    handled: bool | None = None
    """Whether the app counted the action; None if it does not count touches."""
    seconds: float = 0.0
    """Upper bound on the seconds from the action to the window's appearance."""


def attribute_exit(
    window: Window, evidence: ExitEvidence, *, soon_s: float
) -> tuple[ExitCause, str]:
    """Decide whether the agent or the world brought a window to the front.

    Args:
        window: the window in front, which does not belong to the app.
        evidence: how the window came to the front.
        soon_s: how long after an uncounted touch a window is attributed to it (seconds).

    Returns:
        `agent` or `world`, and the reason.
    """
    action, handled = evidence.action, evidence.handled
    if action is None:
        return "world", "it was in front before the action was sent"
    if touches_nothing(action):
        return "world", "nothing was touched"
    if window.kind in ("call", "permission", "install", "update"):
        return "world", f"a window of kind {window.kind} comes from outside"
    # A hang is noticed only at the next touch, so decide by when the hang began.
    if window.kind == "anr":
        if evidence.seconds < _ANR_S:
            why = f"it came less than {_ANR_S:g} s after the touch, so the app hung before that"
            return "world", why
        if handled:
            return "world", "the app had counted the touch before it hung"
        return "agent", "the app has not answered since the touch"
    if window.kind != "crash" and (exit := _system_exit(action)):
        return "agent", exit
    if handled:
        return "world", "the app had already counted the touch"
    if handled is False and window.kind in ("foreign_app", "crash"):
        return "world", "the app did not receive the touch, which may have been lost"
    count = "does not count touches" if handled is None else "did not count the touch"
    if evidence.seconds <= soon_s:
        return "agent", f"it came soon after the touch, and the app {count}"
    return "world", "it came long after the touch"


def _system_exit(action: Action) -> str | None:
    """Return why an action leaves any app, whatever the app does; None if it does not."""
    match action:
        case Key(name):
            key = name.upper().removeprefix("KEYCODE_")
            return f"{key} is a system key" if key in _KEYS else None
        case PointTouch(x, y):
            sideways = False
        case PathTouch(x, y):
            sideways = min(x, 1 - x) <= _SIDE_EDGE
        case _:
            return None
    if y <= _TOP_EDGE or y >= 1 - _BOTTOM_EDGE:
        return "the touch began in a system bar"
    return "the swipe came in from the edge" if sideways else None
