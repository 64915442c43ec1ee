"""The tree game: a pure, seeded state machine.

A chop takes a moment, then a piece of equipment drops. It either replaces the one that is worn in
its slot, or is decomposed, and the one that is worn stays. After the last chop the game is over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from agentrl.envs.phone_game.rules import GameRules, Place
from agentrl.envs.phone_game.settings import LevelSettings, one_of
from agentrl.envs.tree_game import layout
from agentrl.envs.tree_game.equipment import ATTRIBUTES, Equipment, draw_drop, draw_worn, reach

SCALE = 100
"""Points of power that a choice must be better than the other for the highest reward, 1."""
_SWING_MS = 50
_STREAM = 3
"""Sets the chance of wrong arrows apart from that of pieces."""


class TreeGamePhase(StrEnum):
    """What the player is to do."""

    READY = "ready"
    """Chop."""
    CHOPPING = "chopping"
    """Wait: something is about to drop."""
    DROP = "drop"
    """Replace or decompose."""
    FINAL = "final"
    """No chop is left."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TreeGameLevel(LevelSettings):
    """What a tree game asks of its player. No setting changes what drops."""

    total: str = one_of("shown", ("shown", "hidden"), "shown or hidden")
    """Whether the popup says how much the power would change."""
    noise: int = one_of(0, range(51), "a per cent of wrong arrows, from 0 to 50")
    """So many of 100 arrows, and the signs beside them, tell the contrary of the numbers."""
    chops: int = one_of(10, range(1, 101), "how many chops a game has, from 1 to 100")
    chop_ms: int = one_of(300, range(5001), "milliseconds that a chop takes, from 0 to 5000")


class TreeGameRules(GameRules):
    """One game of a few chops.

    Args:
        seed: >= 0; the same seed drops the same pieces.
        **level: settings of `TreeGameLevel`.

    Raises:
        ValueError: a level that does not exist.
    """

    def __init__(self, seed: int = 0, **level: Any) -> None:
        self.seed = seed
        self.level = TreeGameLevel(**level)
        self.worn = list(draw_worn(seed))
        self.phase = TreeGamePhase.READY
        self.chop = 0
        """How many drops are decided."""
        self.swings = 0
        """Ticks since the chop began."""
        self.right = 0
        self.score = 0.0
        self.last: int | None = None
        """What the last choice did to the power."""

    @property
    def power(self) -> int:
        """The player's, by the published formula."""
        return sum(piece.power for piece in self.worn)

    @property
    def drop(self) -> Equipment | None:
        """The piece that is to be decided on."""
        return draw_drop(self.seed, self.chop) if self.phase is TreeGamePhase.DROP else None

    @property
    def old(self) -> Equipment | None:
        """What is worn where the drop would be."""
        return None if self.drop is None else self.worn[self.drop.slot]

    @property
    def change(self) -> int:
        """What replacing would do to the power; 0 where nothing is to be decided."""
        if self.drop is None or self.old is None:
            return 0
        return self.drop.power - self.old.power

    @property
    def differences(self) -> tuple[int, ...]:
        """New minus old, an attribute each; nothing where nothing is to be decided."""
        if self.drop is None or self.old is None:
            return ()
        return tuple(n - o for n, o in zip(self.drop.values, self.old.values, strict=True))

    @property
    def arrows(self) -> tuple[int, ...]:
        """Which way each attribute's arrow points: 1 up, -1 down, 0 where there is none."""
        rng = np.random.default_rng((self.seed, self.chop, _STREAM))
        wrong = rng.integers(100, size=len(ATTRIBUTES)) < self.level.noise
        signs = np.sign(np.array(self.differences, dtype=int))
        return tuple(int(s) for s in np.where(wrong[: len(signs)], -signs, signs))

    def touch(self, x: float, y: float) -> bool:
        """Chop, replace or decompose; elsewhere, and where there is nothing to, nothing happens."""
        if self.phase is TreeGamePhase.READY and layout.AXE.holds(x, y):
            self._begin_chop()
        elif self.phase is TreeGamePhase.DROP and layout.REPLACE.holds(x, y):
            self._decide(replace=True)
        elif self.phase is TreeGamePhase.DROP and layout.DECOMPOSE.holds(x, y):
            self._decide(replace=False)
        else:
            return False
        return True

    @property
    def tick_ms(self) -> int:
        """Time passes while the axe swings."""
        return _SWING_MS if self.phase is TreeGamePhase.CHOPPING else 0

    def tick(self) -> bool:
        """One swing of the axe; after the last a piece drops."""
        self.swings += 1
        if self.swings * _SWING_MS >= self.level.chop_ms:
            self.phase = TreeGamePhase.DROP
        return True

    def places(self) -> Mapping[str, Place]:
        """The axe and the two buttons, whether they are shown or not."""
        return {"chop": layout.AXE, "replace": layout.REPLACE, "decompose": layout.DECOMPOSE}

    def state(self) -> dict[str, Any]:
        """The truth as plain JSON values."""
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
        """The better choice; where both are as good, the one that is said first in the game."""
        if self.drop is None:
            return None
        return "replace" if self.change > 0 else "decompose"
