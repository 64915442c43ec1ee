"""Where the environment's facts come from: the published state, the screen alone, or both."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agentrl.devices import Settled
from agentrl.devices.vision import UNREAD, Audit
from agentrl.envs.number_game.levels import Level
from agentrl.envs.number_game.reading import MOST_TICKS, answer_to, read_screen
from agentrl.envs.number_game.rules import Phase
from agentrl.errors import ConfigError, EnvError
from agentrl.types import Image

TRUTHS = ("state", "sight", "audit")
_PRIVATE = ("touches", "launches")
"""What the phone publishes beside the game: it tells how the phone was used before."""

_Facts = dict[str, Any]


class Truth:
    """The facts of one game after another, and how well they can be read.

    Args:
        kind: `state` takes what the game publishes; `sight` what its screen shows, and what it
            has shown in the same round; `audit` takes the state and compares the screen with it.
        level: of the games.

    Raises:
        ConfigError: another kind, or a clock whose touches cannot be told apart by sight.
    """

    def __init__(self, kind: str, level: Level) -> None:
        if kind not in TRUTHS:
            raise ConfigError(f"truth is {kind!r}; it must be one of {', '.join(TRUTHS)}.")
        if kind == "sight" and level.timed > MOST_TICKS:
            raise ConfigError(
                f"timed is {level.timed}; with truth=sight at most {MOST_TICKS} can be told apart."
            )
        self._kind, self._level = kind, level
        self._facts: _Facts = {}
        self._audit: _Facts | None = None
        self._misread = 0

    def begin(self, seed: int) -> None:
        """A new game: what was seen in the one before is forgotten."""
        self._facts, self._audit, self._misread = {"seed": seed}, None, 0

    def begins(self, shown: Settled) -> bool:
        """Whether a screen beside which nothing is published shows a game's start."""
        if self._kind != "sight" or shown.state is not None:
            return False
        read = read_screen(shown.frame, self._level)
        return read["round"] == 1 and read["phase"] in (Phase.LAMP, Phase.PICK)

    def of(self, shown: Settled, *, in_front: bool) -> Mapping[str, Any]:
        """The facts of a screen; by sight, a game that is out of sight stays as it was.

        Raises:
            EnvError: the game publishes no state; or, by sight, the screen cannot be read.
        """
        if self._kind == "sight":
            if in_front:
                self._facts = self._seen(shown.frame)
            return self._facts
        if shown.state is None:
            raise EnvError("it publishes no state; truth=sight does without.")
        self._facts = {k: value for k, value in shown.state.items() if k not in _PRIVATE}
        if self._kind == "audit" and in_front:
            self._audit = Audit().compare(read_screen(shown.frame, self._level), self._facts)
            self._misread += len(self._audit["differs"])
        return self._facts

    def told(self) -> _Facts:
        """What `info` says beside the facts, of each screen once: an audit of what was read."""
        audit, self._audit = self._audit, None
        return {} if audit is None else {"audit": audit}

    def metrics(self) -> dict[str, float]:
        """Of an audit, how many facts of this game were misread."""
        return {"misread": self._misread} if self._kind == "audit" else {}

    def _seen(self, frame: Image) -> _Facts:
        """What a screen shows, and what the same round's screens before it have shown.

        Raises:
            EnvError: something that shows cannot be read.
        """
        read = read_screen(frame, self._level)
        unread = [name for name, value in read.items() if value == UNREAD]
        if unread:
            raise EnvError(f"its screen cannot be read: {', '.join(unread)} (truth=sight).")
        before = self._facts if self._facts.get("round") == read["round"] else {}
        facts = {"numbers": [None] * self._level.cards, "time_left": 0, **read}
        facts["lamp"] = read.get("lamp", before.get("lamp"))
        if "answer" not in read:
            known = facts["lamp"] is not None and "numbers" in read
            facts["answer"] = answer_to(facts["lamp"], read["numbers"]) if known else None
        return {"seed": self._facts["seed"], **asdict(self._level), **facts}
