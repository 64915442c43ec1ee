"""Draws docs/images/minigames.png, and prints the scores of the minigames' scripted players.

python docs/make_minigames.py          # the picture
python docs/make_minigames.py scores   # the table in docs/games.md; takes some minutes
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from agentrl import user_code
from agentrl.env_registry import find_env, make_translator
from agentrl.envs.android.phone_game.boxes import to_app
from agentrl.envs.android.phone_game.game_app import GameApp

PICTURE = Path(__file__).parent / "images/minigames.png"
SHOWN = {
    "Game2048-v0": 90,
    "Timberman-v0": 9,
    "Snake-v0": 40,
    "Flip-v0": 11,
    "FlappyBird-v0": 14,
    "SpaceFighter-v0": 25,
}
"""The games, and the number of expert turns after which each is drawn."""
GAMES = 20
MOST_TURNS = 3000


def play(id: str, name: str, seed: int, turns: int = MOST_TURNS) -> GameApp:
    """The app after a scripted player has played some turns by touches."""
    app, rng = user_code.load(str(find_env(id).app))(), np.random.default_rng(seed)
    player, translator = user_code.load(find_env(id).players[name])(), make_translator(id)
    app.launch({"seed": str(seed)})
    for _ in range(turns):
        state = app.state()
        if state["done"]:
            break
        x1, y1, *end = map(float, translator.to_action(player.reply(state, rng)))
        x2, y2 = end or (x1, y1)
        if (x1, y1) == (x2, y2):
            app.touch(x1, to_app(y1))
        else:
            app.swipe(x1, to_app(y1), x2, to_app(y2), 300)
    return app


def picture() -> Image.Image:
    """All games side by side."""
    edge = {"pad_width": ((8, 8), (8, 8), (0, 0)), "constant_values": 255}
    screens = [play(id, "expert", 3, turns).render(270, 462) for id, turns in SHOWN.items()]
    whole = np.hstack([np.pad(screen, **edge) for screen in screens])
    return Image.fromarray(whole).quantize(96)


def scores() -> None:
    """Print a row for each game: the mean score, and the success rate."""
    names = ("random", "mediocre", "expert")
    print(f"{GAMES} games each\n\n| `env.id` | {' | '.join(names)} |\n|---|---|---|---|")
    for id in SHOWN:
        cells = []
        for name in names:
            ends = [play(id, name, seed).state() for seed in range(GAMES)]
            score, success = (np.mean([end[key] for end in ends]) for key in ("score", "success"))
            cells.append(f"{score:.1f} ({success:.2f})")
        print(f"| `{id}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["scores"]:
        scores()
    else:
        picture().save(PICTURE, optimize=True)
