"""Random images for the tests of this folder."""

import numpy as np

from agentrl.types import Image, Message


def picture(seed: int, width: int = 84, height: int = 140) -> Image:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def screen(seed: int, text: str = "<image>\nnext", width: int = 84, height: int = 140) -> Message:
    return Message(role="user", text=text, images=(picture(seed, width, height),))
