"""The number game as an app that a phone runs."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agentrl.envs.number_game import drawing
from agentrl.envs.number_game.levels import Level
from agentrl.envs.number_game.places import places
from agentrl.envs.number_game.rules import STAKE, NumberGame, Phase
from agentrl.envs.phone_game.app import GameApp
from agentrl.envs.phone_game.game import PhoneGame
from agentrl.envs.phone_game.rules import Place, Rules
from agentrl.types import Image

PACKAGE = "org.agentrl.numbergame"


class Touched(Rules):
    """One number game after another, as fingers meet them.

    Args:
        seed: of the first; each that follows has the next.
        rounds: of each.
        **level: settings of `Level`.
    """

    def __init__(self, seed: int, rounds: int = 10, **level: Any) -> None:
        self.game = NumberGame(seed, rounds, **level)

    @property
    def seed(self) -> int:  # type: ignore[override]
        """Of the game on the screen."""
        return self.game.seed

    def touch(self, x: float, y: float) -> bool:
        """Pick a card or press the button; elsewhere, and on what is locked, only time passes."""
        return self._act(x, y) or self.game.miss()

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """The game has no use for a swipe: to its clock it is a touch that hits nothing."""
        return self.game.miss()

    def places(self) -> Mapping[str, Place]:
        """The cards in reading order, and the button."""
        where = places(self.game)
        return {"cards": where.cards, "button": where.button}

    def state(self) -> dict[str, Any]:
        """The truth of the game on the screen."""
        return self.game.state()

    def _act(self, x: float, y: float) -> bool:
        where = places(self.game)
        if where.button.holds(x, y):
            return self._press()
        for card, box in enumerate(where.cards):
            if box.holds(x, y):
                return self.game.pick(card)
        return False

    def _press(self) -> bool:
        game = self.game
        if game.phase is Phase.FINAL:
            self.game = NumberGame(game.seed + 1, len(game.rounds), **asdict(game.level))
            return True
        return game.advance()


def _draw(touched: Touched, width: int, height: int) -> Image:
    return drawing.render(touched.game, width, height)


def _words(level: Level) -> str:
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


GAME = PhoneGame(
    package=PACKAGE,
    rules=Touched,
    draw=_draw,
    level=Level,
    calls={"select(i)": 3},
    words=_words,
    scale=1 / STAKE,
)


class NumberGameApp(GameApp):
    """Cards and one button to touch; takes `rounds` (10) beside the seed and the level."""

    game = GAME

    def begin(self, extras: Mapping[str, str]) -> Rules:
        """The first game."""
        seed, rounds = int(extras.get("seed", "0")), int(extras.get("rounds", "10"))
        return Touched(seed, rounds, **asdict(self.level))
