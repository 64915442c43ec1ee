"""The fields of the number game's state estimates."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.envs.android.number_game.game_state import STAKE, NumberGamePhase
from agentrl.envs.android.number_game.layout import FIXED_LAYOUTS

_NEAR = 0.02
"""Distance within which a tap is meant for a card, as a share of the screen."""


class NumberGameStateSchema:
    """The lamp, the numbers and the score; only the score can be predicted.

    In the phase `final`, only the score is on the screen. With `memory`, a lamp that is out and
    cards that lie face down are left out.
    """

    fields = {  # noqa: RUF012 - never changed
        "lamp": 'the color of the lit lamp: "red", "yellow" or "green"',
        "numbers": "the numbers on the cards, from left to right and from top to bottom",
        "score": "the score",
    }
    predicted = ("score",)

    def visible(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the screen of this phase shows."""
        phase, shown = info["phase"], {"score": info["score"]}
        if phase == NumberGamePhase.FINAL:
            return shown
        if not info["memory"] or phase == NumberGamePhase.LAMP:
            shown["lamp"] = info["lamp"]
        if phase != NumberGamePhase.LAMP:
            shown["numbers"] = info["numbers"]
        return shown

    def expected(self, info: Mapping[str, Any], actions: Sequence[Any]) -> dict[str, Any] | None:
        """Return the score after one action; None after several."""
        if len(actions) != 1:
            return None
        score = info["score"]
        if info["phase"] == NumberGamePhase.PICK:
            card = _card(info, actions[0])
            if card is not None:
                score += STAKE if card == info["answer"] else -STAKE
            elif info["time_left"] == 1 and info["timed"]:
                score -= STAKE
        return {"score": score}


def _card(info: Mapping[str, Any], action: Any) -> int | None:
    """Return the index of the card that an action picks: a call's index, or a tap."""
    if isinstance(action, int):
        return action
    targets = info.get("touch_targets") or FIXED_LAYOUTS[len(info["numbers"])].taps()
    near = (i for i, at in enumerate(targets["cards"]) if math.dist(at, action[:2]) < _NEAR)
    return next(near, None)
