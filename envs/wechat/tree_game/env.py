"""The tree game as a Gymnasium environment over a phone, and its translator."""

from typing import Any

from agentrl.envs.android.phone_game.env import Facts, GameEnv
from agentrl.envs.android.phone_game.translator import GameTranslator
from agentrl.envs.wechat.tree_game.app import GAME, TreeGameApp
from agentrl.envs.wechat.tree_game.rules import TreeGameLevel, TreeGamePhase


class TreeGame(GameEnv):
    """Ten chops, each followed by a decision: wear the dropped piece of equipment or decompose it.

    Observation: the settled screen, uint8[H, W, 3], after a chop has finished. Action: where to
    tap, float32[2] in [0, 1] of the screen; with `mode="calls"` 0 is chop(), 1 replace(), 2
    decompose(). Reward: the power gained over the other decision, in hundreds of points, clipped to
    [-1, 1]; 0 for actions that decide nothing. An agent that closes the game loses 1 for each
    remaining decision.

    `info` is the true state that the game publishes. `state_key` consists of seed, chop and phase,
    and on the popup the currently worn piece: everything that the popup shows and the decision
    depends on. `metrics`: `regret`, the gap to the best power that the drops allow, as a share of
    the range from worst to best; `power`; and `accuracy`, right decisions among all chops, made or
    not.

    For args and errors see `GameEnv`; settings:
    `agentrl.envs.wechat.tree_game.rules.TreeGameLevel`.
    """

    app = TreeGameApp
    level: TreeGameLevel

    def exit_reward(self, facts: Facts) -> float:
        """Return the worst outcome for all remaining decisions."""
        return float(facts["chop"] - facts["chops"])

    def metrics(self, facts: Facts) -> dict[str, float]:
        """Return regret, power and accuracy."""
        accuracy = facts["right"] / facts["chops"]
        return {"regret": facts["regret"], "power": facts["power"], "accuracy": accuracy}

    def state_key(self, facts: Facts) -> str:
        """Return the pending decision; on the main screen, also the worn (visible) equipment."""
        shown = (
            facts["old"]
            if facts["phase"] == TreeGamePhase.DROP
            else [facts["power"], facts["worn"]]
        )
        position = "/".join(str(facts[name]) for name in ("seed", "chop", "phase", "shows"))
        return f"{position}/{_join_numbers(shown)}"


def _join_numbers(values: Any) -> str:
    """Format a nested list of numbers as a short text."""
    return "-".join(map(_join_numbers, values)) if isinstance(values, list) else str(values)


class TreeGameTranslator(GameTranslator):
    """Shows only the screen; parses one tap, or `chop()`, `replace()`, `decompose()`.

    For args and errors see `GameTranslator`; settings:
    `agentrl.envs.wechat.tree_game.rules.TreeGameLevel`.
    """

    game = GAME
