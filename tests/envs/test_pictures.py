"""The same seed gives the same pictures wherever a game runs, byte for byte.

Both the virtual phone and the page show what an app renders. The digests below must be the same on
every machine; this test fails if a new version of Pillow or OpenCV draws differently.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from agentrl import user_code
from agentrl.config import EnvConfig
from agentrl.env_registry import find_env
from agentrl.envs.android.phone_game.boxes import to_app
from agentrl.errors import ConfigError
from agentrl.rollout.environments.resolved_env import resolve_env

DIGESTS: Mapping[str, str] = {
    "NumberGame-v0": "af2104bc9bb092df",
    "TreeGame-v0": "908740da328f6495",
    "Game2048-v0": "4bb6a999de961aa2",
    "Timberman-v0": "4644d28317d7c238",
    "Snake-v0": "bffcdd7e3631a38d",
    "Flip-v0": "8b3408def84f4646",
    "FlappyBird-v0": "16747077441f91ad",
    "SpaceFighter-v0": "eceb80d925515879",
}


@pytest.mark.parametrize("id", DIGESTS)
def test_the_same_seed_and_touches_give_the_same_pictures_on_every_machine(id: str) -> None:
    assert digest(id) == DIGESTS[id]


def digest(id: str, touches: int = 12) -> str:
    """Return the digest of the pictures of one game, touched at its published positions."""
    app: Any = user_code.load(str(find_env(id).app))()
    app.launch({"seed": "3"})
    rng, seen = np.random.default_rng(0), hashlib.sha256()
    for _ in range(touches):
        for size in ((180, 308), (360, 616)):
            seen.update(app.render(*size).tobytes())
        named = app.state()["touch_targets"].values()
        touched = [one for place in named for one in (place if _is_many(place) else [place])]
        x, y, *end = touched[int(rng.integers(len(touched)))]
        if end:
            app.swipe(x, to_app(y), end[0], to_app(end[1]), 300)
        else:
            app.touch(x, to_app(y))
    return seen.hexdigest()[:16]


def _is_many(place: list[Any]) -> bool:
    return isinstance(place[0], list)


@pytest.mark.parametrize("id", DIGESTS)
def test_a_phone_game_with_inverted_colors_differs_only_in_its_picture(id: str) -> None:
    app: Any = user_code.load(str(find_env(id).app))()
    app.launch({"seed": "3"})
    picture, state = app.render(180, 308), dict(app.state())
    app.launch({"seed": "3", "colors": "inverted"})
    assert np.array_equal(app.render(180, 308), 255 - picture)
    assert {**app.state(), "colors": "normal"} == state


@pytest.mark.parametrize(
    ("id", "kwargs"),
    [
        ("NumberLine-v0", {}),
        ("EZPoints-v0", {}),
        ("Sokoban-v0", {"observation": "image", "size": 5}),
        ("FrozenLakeMaps-v0", {"render_mode": "rgb_array"}),
    ],
)
def test_a_game_with_inverted_colors_differs_only_in_its_picture(
    id: str, kwargs: dict[str, Any]
) -> None:
    played = []
    for colors in ("normal", "inverted"):
        env = resolve_env(EnvConfig(id=id, kwargs={**kwargs, "colors": colors})).make()
        env.reset(seed=5)
        *seen, reward, _, _, info = env.step(1)
        picture = env.render() if "render_mode" in kwargs else seen[0]
        played.append((np.asarray(picture), reward, info["state_key"]))
        env.close()
    assert np.array_equal(played[1][0], 255 - played[0][0])
    assert played[0][1:] == played[1][1:]
    with pytest.raises(ConfigError, match="colors"):
        resolve_env(EnvConfig(id=id, kwargs={**kwargs, "colors": "dark"})).check_arguments()
