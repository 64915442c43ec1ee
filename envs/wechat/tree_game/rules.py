"""The tree game: a pure, seeded state machine.

A chop takes a moment, then a piece of equipment drops. It either replaces the piece worn in its
slot, or is decomposed and the worn piece stays. After the last chop the game is over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from agentrl.envs.android.phone_game.level_settings import LevelSettings, one_of
from agentrl.envs.android.phone_game.rules import GameRules, TouchTarget
from agentrl.envs.wechat.tree_game import layout
from agentrl.envs.wechat.tree_game.equipment import (
    ATTRIBUTES,
    Equipment,
    draw_drop,
    draw_worn,
    reach,
)

SCALE = 100
"""Power gain over the other decision that earns the maximum reward, 1."""
_SWING_MS = 50
_STREAM = 3
"""Separates the random stream of wrong arrows from the pieces' stream."""


class TreeGamePhase(StrEnum):
    """Phase of the game, named after the action that the game waits for."""

    READY = "ready"
    """Chop."""
    CHOPPING = "chopping"
    """Wait: a piece is about to drop."""
    DROP = "drop"
    """Replace or decompose."""
    FINAL = "final"
    """No chop is left."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TreeGameLevel(LevelSettings):
    """The difficulty of a tree game. No setting changes what drops."""

    total: str = one_of("shown", ("shown", "hidden"), "shown or hidden")
    """Whether the popup shows the change of power."""
    noise: int = one_of(0, range(51), "a percentage of wrong arrows, from 0 to 50")
    """Percentage of arrows that point against the difference of the numbers."""
    chops: int = one_of(10, range(1, 101), "how many chops a game has, from 1 to 100")
    chop_ms: int = one_of(300, range(5001), "milliseconds that a chop takes, from 0 to 5000")


class TreeGameRules(GameRules):
    """One game of a few chops.

    Args:
        seed: >= 0; the same seed drops the same pieces.
        **level: settings of `TreeGameLevel`.

    Raises:
        ValueError: an invalid level.
    """

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed = seed
        self.level = TreeGameLevel(**level)
        self.worn = list(draw_worn(seed))
        self.phase = TreeGamePhase.READY
        self.chop = 0
        """Number of drops decided so far."""
        self.swings = 0
        """Ticks since the chop began."""
        self.right = 0
        self.score = 0.0
        self.last: int | None = None
        """The change in power from the last decision."""

    @property
    def power(self) -> int:
        """The player's power according to the published formula."""
        return sum(piece.power for piece in self.worn)

    @property
    def drop(self) -> Equipment | None:
        """The dropped piece that awaits a decision."""
        return draw_drop(self.seed, self.chop) if self.phase is TreeGamePhase.DROP else None

    @property
    def old(self) -> Equipment | None:
        """The piece worn in the drop's slot."""
        return None if self.drop is None else self.worn[self.drop.slot]

    @property
    def change(self) -> int:
        """The change of power by replacing; 0 without a drop."""
        if self.drop is None or self.old is None:
            return 0
        return self.drop.power - self.old.power

    @property
    def differences(self) -> tuple[int, ...]:
        """New minus old value of each attribute; empty without a drop."""
        if self.drop is None or self.old is None:
            return ()
        return tuple(n - o for n, o in zip(self.drop.values, self.old.values, strict=True))

    @property
    def arrows(self) -> tuple[int, ...]:
        """The direction of each attribute's arrow: 1 up, -1 down, 0 for none."""
        rng = np.random.default_rng((self.seed, self.chop, _STREAM))
        wrong = rng.integers(100, size=len(ATTRIBUTES)) < self.level.noise
        signs = np.sign(np.array(self.differences, dtype=int))
        return tuple(int(s) for s in np.where(wrong[: len(signs)], -signs, signs))

    def touch(self, x: float, y: float) -> bool:
        """Chop, replace or decompose, if the touch hits an active button."""
        if self.phase is TreeGamePhase.READY and layout.AXE.contains(x, y):
            self._begin_chop()
        elif self.phase is TreeGamePhase.DROP and layout.REPLACE.contains(x, y):
            self._decide(replace=True)
        elif self.phase is TreeGamePhase.DROP and layout.DECOMPOSE.contains(x, y):
            self._decide(replace=False)
        else:
            return False
        return True

    @property
    def tick_ms(self) -> int:
        """Milliseconds per swing while the axe swings, else 0."""
        return _SWING_MS if self.phase is TreeGamePhase.CHOPPING else 0

    def tick(self) -> bool:
        """Swing the axe once; after the last swing a piece drops."""
        self.swings += 1
        if self.swings * _SWING_MS >= self.level.chop_ms:
            self.phase = TreeGamePhase.DROP
        return True

    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the axe and the two buttons, whether shown or not."""
        return {"chop": layout.AXE, "replace": layout.REPLACE, "decompose": layout.DECOMPOSE}

    def state(self) -> dict[str, Any]:
        """Return the true state as plain JSON values."""
        worst, best = reach(self.seed, self.level.chops)
        short = best - self.power
        return {
            "phase": str(self.phase),
            "chop": self.chop,
            "power": self.power,
            "worn": [list(piece.values) for piece in self.worn],
            "slot": None if self.drop is None else self.drop.slot,
            "old": [] if self.old is None else list(self.old.values),
            "new": [] if self.drop is None else list(self.drop.values),
            "differences": list(self.differences),
            "arrows": list(self.arrows),
            "change": self.change,
            "optimal": self._optimal(),
            "best_power": best,
            "worst_power": worst,
            "regret": round(short / (best - worst), 4) if best > worst else 0.0,
            "last": self.last,
            "right": self.right,
            "score": round(self.score, 4),
            "busy": self.phase is TreeGamePhase.CHOPPING,
            "done": self.phase is TreeGamePhase.FINAL,
        }

    def _begin_chop(self) -> None:
        self.swings = 0
        self.phase = TreeGamePhase.CHOPPING if self.level.chop_ms else TreeGamePhase.DROP

    def _decide(self, *, replace: bool) -> None:
        drop, change = self.drop, self.change
        assert drop is not None, "there is something to decide"
        self.right += change >= 0 if replace else change <= 0
        better = change if replace else -change
        self.score += max(-1.0, min(1.0, better / SCALE))
        self.last = change if replace else 0
        if replace:
            self.worn[drop.slot] = drop
        self.chop += 1
        self.phase = TreeGamePhase.FINAL if self.chop == self.level.chops else TreeGamePhase.READY

    def _optimal(self) -> str | None:
        """Return the better decision, `decompose` if both are equal, or None without a drop."""
        if self.drop is None:
            return None
        return "replace" if self.change > 0 else "decompose"
