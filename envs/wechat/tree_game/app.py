"""The tree game as a mini-program of WeChat."""

from collections.abc import Mapping

from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_app import GameApp
from agentrl.envs.android.phone_game.rules import GameRules
from agentrl.envs.wechat import wechat_drawing
from agentrl.envs.wechat.simulated_wechat import MiniProgram, Shows
from agentrl.envs.wechat.tree_game import drawing
from agentrl.envs.wechat.tree_game.rules import TreeGameLevel, TreeGameRules
from agentrl.types import Image

PACKAGE = "com.tencent.mm"
CHATS_ACTIVITY = ".ui.LauncherUI"
GAME_ACTIVITY = ".plugin.appbrand.ui.AppBrandUI"
NAME = "Tree of power"


def _rules(seed: int, **level: object) -> GameRules:
    return MiniProgram(TreeGameRules(seed, **level), is_open=True)


def _draw(program: MiniProgram, width: int, height: int) -> Image:
    if program.shows is Shows.CHATS:
        return wechat_drawing.draw_chats(NAME, width, height)
    assert isinstance(program.game, TreeGameRules), "there is no other game in it"
    picture = drawing.draw(program.game, width, height)
    wechat_drawing.draw_around(picture, program.shows)
    return picture


def _prompt(level: TreeGameLevel) -> str:
    """Return this level's rules for the prompt."""
    chops = "one chop" if level.chops == 1 else f"{level.chops} chops"
    rules = (
        f"You play a tree game in WeChat, with {chops}. Tap the axe: a piece of equipment drops. "
        "Replace the old piece (left) by the new one (right) if that raises your power, else "
        "decompose the new one. Power is the sum of 4 attack + health + 3 defence + 2 agility + "
        "2 dodge over all pieces. Leave the capsule at the top right alone."
    )
    if level.total == "hidden":
        rules += " The change of power is not shown."
    if level.noise:
        rules += " Some arrows point the wrong way; the old and the new numbers are right."
    return rules


GAME = PhoneGame(
    package=PACKAGE,
    activity=GAME_ACTIVITY,
    rules=_rules,
    draw=_draw,
    level=TreeGameLevel,
    calls={"chop()": 1, "replace()": 1, "decompose()": 1},
    prompt=_prompt,
)


class TreeGameApp(GameApp):
    """An imitation of WeChat with one mini-program.

    Launched with a `seed`, it opens the game immediately, which the real WeChat cannot do. Without
    a seed, as when launched from its icon, it shows its chats with an entry that opens the game.
    """

    game = GAME
    activities = (CHATS_ACTIVITY, GAME_ACTIVITY)

    def begin(self, extras: Mapping[str, str]) -> GameRules:
        """Return the rules of a new game; without a seed, the game is opened from the chats."""
        program = super().begin(extras)
        assert isinstance(program, MiniProgram), "_rules always returns a MiniProgram"
        return program if "seed" in extras else MiniProgram(program.game, is_open=False)

    @property
    def activity(self) -> str:
        """The activity in front, which differs between chats and game."""
        in_chats = isinstance(self.rules, MiniProgram) and self.rules.shows is Shows.CHATS
        return CHATS_ACTIVITY if in_chats else GAME_ACTIVITY
