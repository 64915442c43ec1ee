"""The number game as an app that a phone runs."""

from collections.abc import Mapping
from dataclasses import asdict

from agentrl.envs.android.number_game import drawing
from agentrl.envs.android.number_game.game_state import STAKE
from agentrl.envs.android.number_game.levels import NumberGameLevel
from agentrl.envs.android.number_game.rules import NumberGameRules
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_app import GameApp
from agentrl.envs.android.phone_game.rules import GameRules
from agentrl.types import Image

PACKAGE = "org.agentrl.numbergame"


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
