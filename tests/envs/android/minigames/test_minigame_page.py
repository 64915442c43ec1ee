import time

import numpy as np
import pytest

from agentrl.envs.android.phone_game.boxes import to_app
from agentrl.phone_page import PageApp
from agentrl.phone_page.page_messages import Gesture
from tests.envs.android.minigames.short_games import SHORT, extras, new_app, player
from tests.phone_page.test_page_app import FakeLink, hello, paint


@pytest.mark.parametrize("id", list(SHORT))
def test_a_page_plays_the_game_that_a_phone_plays(id: str) -> None:
    alone, host, link = new_app(id), PageApp(new_app(id)), FakeLink()
    who, rng = player(id, "expert"), np.random.default_rng(0)
    alone.launch(extras(id, 3))
    host.launch(extras(id, 3))
    host.connect(link, hello())
    number = paint(host, link)
    touches = 0
    while not alone.state()["done"]:
        name, index = who.choose(alone.state(), rng)
        place = alone.state()["touch_targets"][name]
        x1, y1, *end = place if index is None else place[index]
        x2, y2 = end or (x1, y1)
        moved = abs(x1 - x2) + abs(y1 - y2)
        touches += 1
        gesture = Gesture(
            number=touches, frame=number, x1=x1, y1=to_app(y1), x2=x2, y2=to_app(y2),
            ms=50, moved=moved * 400, cancelled=False,
        )  # fmt: skip
        host.gesture(link, gesture)
        if moved:
            alone.swipe(x1, to_app(y1), x2, to_app(y2), 50)
        else:
            alone.touch(x1, to_app(y1))
        number = paint(host, link)
        published = dict(host.state() or {})
        assert published.pop("touches") == touches
        assert published.pop("launches") == 1
        assert published == alone.state()
    assert alone.state()["success"]


def test_time_passes_on_a_page_too() -> None:
    host, link = PageApp(new_app("SpaceFighter-v0")), FakeLink()
    host.launch({"clock": "running"})
    host.connect(link, hello())
    number = paint(host, link)
    now = time.monotonic()
    assert host.pass_time(now) < 0.5, "it waits for the first touch"
    host.gesture(
        link,
        Gesture(
            number=1, frame=number, x1=0.5, y1=0.5, x2=0.5, y2=0.5, ms=50, moved=0.0,
            cancelled=False,
        ),
    )  # fmt: skip
    host.pass_time(now + 1.0)
    host.pass_time(now + 3.0)
    paint(host, link)
    assert (host.state() or {})["time"] == 4
