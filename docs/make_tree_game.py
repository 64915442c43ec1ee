"""Draws docs/images/tree_game.png: `python docs/make_tree_game.py`."""

from pathlib import Path

import numpy as np
from PIL import Image

from agentrl.envs.wechat.simulated_wechat import DOTS
from agentrl.envs.wechat.tree_game import layout
from agentrl.envs.wechat.tree_game.app import TreeGameApp

PICTURE = Path(__file__).parent / "images" / "tree_game.png"
_EDGE = {"pad_width": ((8, 8), (8, 8), (0, 0)), "constant_values": 255}


def draw() -> Image.Image:
    """The main screen, the popup, the popup without its total, and the menu of the capsule."""
    screens = []
    for total, touches in (("shown", 0), ("shown", 1), ("hidden", 1), ("shown", 2)):
        app = TreeGameApp()
        app.launch({"seed": "3", "total": total, "chop_ms": "0"})
        for touch in (layout.AXE, DOTS)[:touches]:
            app.touch(*touch.center)
        screens.append(np.pad(app.render(360, 616), **_EDGE))
    return Image.fromarray(np.hstack(screens)).quantize(64)


if __name__ == "__main__":
    draw().save(PICTURE, optimize=True)
