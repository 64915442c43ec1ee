"""Helpers to play the tree game in this process."""

from typing import Any

import numpy as np

from agentrl.envs.android.phone_game.boxes import to_app
from agentrl.envs.android.phone_game.players import GamePlayer
from agentrl.envs.wechat.tree_game.app import TreeGameApp
from agentrl.envs.wechat.tree_game.env import TreeGameTranslator
from agentrl.envs.wechat.tree_game.rules import TreeGameLevel


def launched(seed: int = 0, **level: Any) -> TreeGameApp:
    """Return the app, launched as the environment does, with a tree that is quick to chop."""
    app = TreeGameApp()
    app.launch({"seed": str(seed), **TreeGameLevel(**{"chop_ms": 0, **level}).extras()})
    return app


def tap(app: TreeGameApp, name: str) -> bool:
    """Tap at a published position."""
    x, y = app.state()["touch_targets"][name]
    return app.touch(x, to_app(y))


def play(player: GamePlayer, seed: int, turns: int = 24, **level: Any) -> dict[str, Any]:
    """Return the state after some turns, or at the end of the game."""
    app, rng = launched(seed, **level), np.random.default_rng(seed)
    words = TreeGameTranslator()
    for _ in range(turns):
        if app.state()["done"] or "closed" in app.state():
            break
        x, y = words.to_action(player.reply(app.state(), rng))
        app.touch(float(x), to_app(float(y)))
    return dict(app.state())
