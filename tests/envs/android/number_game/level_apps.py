"""All levels of the number game, and helpers to play it in this process."""

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st

from agentrl.envs.android.number_game.app import NumberGameApp
from agentrl.envs.android.number_game.levels import NumberGameLevel
from agentrl.envs.android.number_game.players import NumberGameExpert
from agentrl.envs.android.number_game.translator import NumberGameTranslator
from agentrl.envs.android.phone_game.boxes import to_app

SETTINGS: dict[str, tuple[Any, ...]] = {
    "memory": (False, True),
    "digits": (1, 2),
    "cards": (3, 4),
    "moved": (False, True),
    "distractor": (False, True),
    "timed": (0, 1, 3),
}
ALL = [dict(zip(SETTINGS, values, strict=True)) for values in itertools.product(*SETTINGS.values())]
LEVELS = st.fixed_dictionaries({name: st.sampled_from(v) for name, v in SETTINGS.items()})
SEEDS = st.integers(min_value=0, max_value=2**32)


def launched(seed: int, rounds: int = 3, **level: Any) -> NumberGameApp:
    """Return the app, launched as the environment does."""
    app = NumberGameApp()
    app.launch({"seed": str(seed), "rounds": str(rounds), **NumberGameLevel(**level).extras()})
    return app


def tap(app: NumberGameApp, place: list[float]) -> bool:
    """Tap at a published position."""
    x, y = place
    return app.touch(x, to_app(y))


def play(app: NumberGameApp, player: NumberGameExpert, turns: int, seed: int = 0) -> dict[str, Any]:
    """Return the state after some turns, or at the end of the game."""
    rng, translator = np.random.default_rng(seed), NumberGameTranslator()
    for _ in range(turns):
        if app.state()["done"]:
            break
        x, y = translator.to_action(player.reply(app.state(), rng))
        app.touch(float(x), to_app(float(y)))
    return dict(app.state())
