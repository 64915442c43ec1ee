"""Who plays Timberman without a mistake."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.minigames.timberman.rules import MOVES


def best(state: Mapping[str, Any]) -> str:
    """A side with no branch now and none after the chop; the man's own where both are free."""
    now, above = state["pieces"][:2]
    sides = sorted(MOVES, key=lambda side: side != state["side"])
    free = [side for side in sides if side not in (now, above)]
    return (free or sides)[0]
