"""The words of the number game: what the model is told, and what its reply means."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentrl.devices import Tap, parse_action
from agentrl.envs.android.levels import Level, checked_level
from agentrl.errors import ActionError, ConfigError
from agentrl.types import Image, Message, Observation

MODES = ("tap", "select")
_SELECT = re.compile(r"<action>select\((\d+)\)</action>\s*$")


class NumberGameTranslator:
    """Shows the screen and nothing else; reads one tap, or one card in the mode `select`.

    Args:
        mode: `tap` or `select`, as the environment's.
        instruct: whether the rules are told before the first screen. A model that was taught the
            game by demonstrations does without.
        memory: as the environment's, like all that follow; see `Level`.
        digits: nothing is said of it.
        cards: how many there are to choose from.
        moved: where they lie.
        distractor: nothing is said of it.
        timed: after how many touches a round is lost.

    Raises:
        ConfigError: an unknown mode, or a level that does not exist.
    """

    def __init__(
        self,
        mode: str = "tap",
        instruct: bool = True,
        memory: bool = False,
        digits: int = 1,
        cards: int = 3,
        moved: bool = False,
        distractor: bool = False,
        timed: int = 0,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"mode is {mode!r}; it must be one of {', '.join(MODES)}.")
        self.mode = mode
        self.instruct = instruct
        self.level = checked_level(
            memory=memory,
            digits=digits,
            cards=cards,
            moved=moved,
            distractor=distractor,
            timed=timed,
        )

    def instructions(self) -> str:
        """The rules and the grammar of replies; empty without `instruct`."""
        return f"{_rules(self.level)} {_how(self.mode, self.level)}" if self.instruct else ""

    def to_observation(self, observation: Image, info: Mapping[str, Any]) -> Observation:
        """The screen alone: the truth in `info` is never shown.

        Raises:
            ConfigError: the game is not of the level that the words are about.
        """
        for name, told in asdict(self.level).items():
            if info.get(name, told) != told:
                raise ConfigError(
                    f"env.translator: {name} is {told!r}, and {info[name]!r} in the game; "
                    "it must be the same in both, so give it to env.kwargs alone."
                )
        return Observation(images=(observation,))

    def to_message(self, observation: Observation) -> Message:
        """One picture, no words."""
        return Message(role="user", text="<image>", images=observation.images)

    def to_action(self, reply: str) -> NDArray[np.float32] | int:
        """Where to tap, float32[2] of the screen, or which card.

        Raises:
            ActionError: the reply holds no action, or one that this game does not take.
        """
        if self.mode == "select":
            return _to_card(reply, self.level.cards)
        return _to_tap(reply)

    def no_action(self) -> None:
        """A reply that is no action leaves the game as it is."""
        return


def _rules(level: Level) -> str:
    """What a player of this level must know; a tip on the screen needs no words."""
    lamp = "One lamp is lit."
    if level.memory:
        lamp = "One lamp is lit; when you tap the button, it goes out and the cards are turned."
    yellow = "the middle one" if level.cards == 3 else "the second largest"
    button = "After each pick, tap the button below."
    if level.moved:
        button = "After each pick, tap the button. Each round has cards and button elsewhere."
    told = (
        f"You play the number game on a phone. {lamp} Green: tap the card with the largest number. "
        f"Yellow: {yellow}. Red: the smallest. {button}"
    )
    if level.timed:
        touches = "touch" if level.timed == 1 else "touches"
        told += f" A round is lost after {level.timed} {touches} without a pick."
    return told


def _how(mode: str, level: Level) -> str:
    if mode == "tap":
        return "Answer <action>tap(x, y)</action>, x and y from 0.00 (left, top) to 1.00."
    last = level.cards - 1
    cards = f"i from 0 (left card) to {last}."
    if level.moved:
        cards = f"i from 0 to {last}: the upper cards first, from left to right."
    if level.memory:
        cards += " While the cards lie face down, any of them turns all."
    return f"Answer <action>select(i)</action>, {cards}"


def _to_tap(reply: str) -> NDArray[np.float32]:
    action = parse_action(reply)
    if not isinstance(action, Tap):
        raise ActionError(f"{action} is none of this game's actions; it takes tap(x, y).")
    return np.array([action.x, action.y], dtype=np.float32)


def _to_card(reply: str, cards: int) -> int:
    match = _SELECT.search(reply)
    if match is None or int(match[1]) >= cards:
        *others, last = (f"select({card})" for card in range(cards))
        raise ActionError(f"no {', '.join(others)} or {last} at the end of {reply[-80:]!r}.")
    return int(match[1])
