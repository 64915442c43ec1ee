"""The source of the environment's facts: the published state, the screen alone, or both."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agentrl.devices import Settled
from agentrl.devices.vision import UNREAD, VisionAudit
from agentrl.envs.android.number_game.game_state import NumberGamePhase
from agentrl.envs.android.number_game.levels import NumberGameLevel
from agentrl.envs.android.number_game.screen_reader import MOST_TICKS, answer_to, read_screen
from agentrl.errors import EnvError, InvalidArgument
from agentrl.types import Image

FACT_SOURCES = ("state", "sight", "audit")
_PRIVATE = ("touches", "launches")
"""Published by the phone, not the game: they depend on how the phone was used before."""

_Facts = dict[str, Any]


class FactSource:
    """Provides the facts of each screen.

    Args:
        kind: `state` uses what the game publishes; `sight` what its screen shows now and has shown
            earlier in the same round; `audit` uses the state and compares the screen with it.
        level: the games' level.

    Raises:
        InvalidArgument: unknown kind, or a clock whose touches cannot be distinguished by sight.
    """

    def __init__(self, kind: str, level: NumberGameLevel) -> None:
        if kind not in FACT_SOURCES:
            raise InvalidArgument("truth", kind, f"one of {', '.join(FACT_SOURCES)}")
        if kind == "sight" and level.timed > MOST_TICKS:
            raise InvalidArgument(
                "timed",
                level.timed,
                f"at most {MOST_TICKS} with truth=sight, because single touches cannot be read "
                "from a longer clock",
            )
        self._kind, self._level = kind, level
        self._facts: _Facts = {}
        self._audit: _Facts | None = None
        self._misread = 0

    def begin(self, seed: int) -> None:
        """Clear everything read in the previous game."""
        self._facts, self._audit, self._misread = {"seed": seed}, None, 0

    def is_first_screen(self, shown: Settled) -> bool:
        """Return whether a screen without published state shows the start of a game."""
        if self._kind != "sight" or shown.state is not None:
            return False
        read = read_screen(shown.frame, self._level)
        return read["round"] == 1 and read["phase"] in (NumberGamePhase.LAMP, NumberGamePhase.PICK)

    def of(self, shown: Settled, *, in_front: bool) -> Mapping[str, Any]:
        """Return the facts of a screen; with `sight`, a covered game keeps its previous facts.

        Raises:
            EnvError: the game publishes no state; or, with `sight`, the screen cannot be read.
        """
        if self._kind == "sight":
            if in_front:
                self._facts = self._seen(shown.frame)
            return self._facts
        if shown.state is None:
            raise EnvError("the game publishes no state; truth=sight works without it.")
        self._facts = {k: value for k, value in shown.state.items() if k not in _PRIVATE}
        if self._kind == "audit" and in_front:
            self._audit = VisionAudit().compare(read_screen(shown.frame, self._level), self._facts)
            self._misread += len(self._audit["differs"])
        return self._facts

    def extra_info(self) -> _Facts:
        """Return additional `info` entries, once per screen: the audit of the facts read."""
        audit, self._audit = self._audit, None
        return {} if audit is None else {"audit": audit}

    def metrics(self) -> dict[str, float]:
        """Return the number of this game's misread facts, with `audit`."""
        return {"misread": self._misread} if self._kind == "audit" else {}

    def _seen(self, frame: Image) -> _Facts:
        """Return the facts shown on this screen or an earlier screen of the same round."""
        read = read_screen(frame, self._level)
        unread = [name for name, value in read.items() if value == UNREAD]
        if unread:
            raise EnvError(f"the screen cannot be read: {', '.join(unread)} (truth=sight).")
        before = self._facts if self._facts.get("round") == read["round"] else {}
        facts = {"numbers": [None] * self._level.cards, "time_left": 0, **read}
        facts["lamp"] = read.get("lamp", before.get("lamp"))
        if "answer" not in read:
            known = facts["lamp"] is not None and "numbers" in read
            facts["answer"] = answer_to(facts["lamp"], read["numbers"]) if known else None
        return {"seed": self._facts["seed"], **asdict(self._level), **facts}
