"""The number game as an app that a phone runs."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agentrl.envs.android.number_game import drawing
from agentrl.envs.android.number_game.game_state import STAKE, NumberGamePhase, NumberGameState
from agentrl.envs.android.number_game.layout import round_layout
from agentrl.envs.android.number_game.levels import NumberGameLevel
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_app import GameApp
from agentrl.envs.android.phone_game.rules import GameRules, TouchTarget
from agentrl.types import Image

PACKAGE = "org.agentrl.numbergame"


class NumberGameRules(GameRules):
    """The touch interface: plays number games in sequence, raising the seed by 1 each time."""

    def __init__(self, seed: int, rounds: int = 10, **level: Any) -> None:
        self.game = NumberGameState(seed, rounds, **level)

    @property
    def seed(self) -> int:  # type: ignore[override]
        """The seed of the current game."""
        return self.game.seed

    def touch(self, x: float, y: float) -> bool:
        """Pick a card or press the button; any other touch only lets time pass."""
        return self._act(x, y) or self.game.miss()

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> bool:
        """Let time pass, as for a touch that hits nothing."""
        return self.game.miss()

    def touch_targets(self) -> Mapping[str, TouchTarget]:
        """Return the cards in reading order, and the button."""
        where = round_layout(self.game)
        return {"cards": where.cards, "button": where.button}

    def state(self) -> dict[str, Any]:
        """Return the true state of the current game."""
        return self.game.state()

    def _act(self, x: float, y: float) -> bool:
        where = round_layout(self.game)
        if where.button.contains(x, y):
            return self._press()
        for card, box in enumerate(where.cards):
            if box.contains(x, y):
                return self.game.pick(card)
        return False

    def _press(self) -> bool:
        game = self.game
        if game.phase is NumberGamePhase.FINAL:
            self.game = NumberGameState(game.seed + 1, len(game.rounds), **asdict(game.level))
            return True
        return game.advance()


def _draw(touched: NumberGameRules, width: int, height: int) -> Image:
    return drawing.render(touched.game, width, height)


def _prompt(level: NumberGameLevel) -> str:
    """Return this level's rules for the prompt, which do not mention the distractor line."""
    lamp = "One lamp is lit."
    if level.memory:
        lamp = "One lamp is lit; when you tap the button, it goes out and the cards are turned."
    yellow = "the middle one" if level.cards == 3 else "the second largest"
    button = "After each pick, tap the button below."
    if level.moved:
        button = "After each pick, tap the button. Each round has cards and button elsewhere."
    rules = (
        f"You play the number game on a phone. {lamp} Green: tap the card with the largest number. "
        f"Yellow: {yellow}. Red: the smallest. {button}"
    )
    if level.timed:
        touches = "touch" if level.timed == 1 else "touches"
        rules += f" A round is lost after {level.timed} {touches} without a pick."
    return rules


GAME = PhoneGame(
    package=PACKAGE,
    rules=NumberGameRules,
    draw=_draw,
    level=NumberGameLevel,
    calls={"select(i)": 3},
    prompt=_prompt,
    reward_scale=1 / STAKE,
)


class NumberGameApp(GameApp):
    """Cards and one button to touch; its launch extras also include `rounds` (default 10)."""

    game = GAME

    def begin(self, extras: Mapping[str, str]) -> GameRules:
        """Start the first game."""
        seed, rounds = int(extras.get("seed", "0")), int(extras.get("rounds", "10"))
        return NumberGameRules(seed, rounds, **asdict(self.level))
