"""The tree game as a Gymnasium environment over a phone, and its translator."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.phone_game.env import GameEnv
from agentrl.envs.phone_game.translator import GameTranslator
from agentrl.envs.tree_game.app import GAME, TreeGameApp
from agentrl.envs.tree_game.rules import TreeGameLevel, TreeGamePhase

_Facts = Mapping[str, Any]


class TreeGame(GameEnv):
    """Ten chops, each followed by a choice: wear the piece that dropped, or decompose it.

    Observation: the settled screen, uint8[H, W, 3]; a chop is waited for. Action: where to tap,
    float32[2] in [0, 1] of the screen; with `mode="calls"` 0 is chop(), 1 replace(), 2
    decompose(). Reward: by how much the choice was better for the power than the other one would
    have been, in hundreds of points and at most 1, less than 0 where it was worse; what decides
    nothing earns 0. Who closes the game loses 1 for each decision that is left.

    `info` is the truth that the game publishes. `state_key` names seed, chop and phase, and on the
    popup the piece that is worn there: all that the popup shows and the choice hangs on. `metrics`:
    `regret`, by how much the power falls short of the best that the drops allow, as a share of
    what lies between the worst and the best; `power`; and `accuracy`, right choices among all
    chops, made or not.

    Args and errors: as `GameEnv`, and the settings of `agentrl.envs.tree_game.rules.TreeGameLevel`.
    """

    app = TreeGameApp
    level: TreeGameLevel

    def lowest(self, facts: _Facts) -> float:
        """The worst for each decision that is left."""
        return float(facts["chop"] - facts["chops"])

    def metrics(self, facts: _Facts) -> dict[str, float]:
        """Regret, power and accuracy."""
        accuracy = facts["right"] / facts["chops"]
        return {"regret": facts["regret"], "power": facts["power"], "accuracy": accuracy}

    def state_key(self, facts: _Facts) -> str:
        """What is to be decided; on the main screen, what is worn as well, for it is shown."""
        shown = (
            facts["old"]
            if facts["phase"] == TreeGamePhase.DROP
            else [facts["power"], facts["worn"]]
        )
        told = "/".join(str(facts[name]) for name in ("seed", "chop", "phase", "shows"))
        return f"{told}/{_spelled(shown)}"


def _spelled(values: Any) -> str:
    """Numbers within lists as one short text."""
    return "-".join(map(_spelled, values)) if isinstance(values, list) else str(values)


class TreeGameTranslator(GameTranslator):
    """Shows the screen and nothing else; reads one tap, or `chop()`, `replace()`, `decompose()`.

    Args and errors: as `GameTranslator`, and the settings of
    `agentrl.envs.tree_game.rules.TreeGameLevel`.
    """

    game = GAME
