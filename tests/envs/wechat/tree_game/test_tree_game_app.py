import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from agentrl.envs.android.phone_game.boxes import to_screen
from agentrl.envs.wechat.simulated_wechat import CAPSULE, CIRCLE, DOTS, ENTRY, SHEET
from agentrl.envs.wechat.tree_game import layout
from agentrl.envs.wechat.tree_game.app import CHATS_ACTIVITY, GAME_ACTIVITY, TreeGameApp
from tests.envs.wechat.tree_game.tree_app import launched, tap

SIZES = [(720, 1231), (1080, 2308), (333, 777), (90, 160), (1231, 720)]


def test_the_capsules_circle_leads_out_of_the_game_and_the_entry_back_into_it() -> None:
    app = launched(4)
    tap(app, "chop")
    before, kept = app.render(180, 308), app.state()
    assert (app.activity, "closed" in app.state()) == (GAME_ACTIVITY, False)
    assert app.touch(*CIRCLE.center)
    assert app.state()["closed"] == "the capsule's circle closes the game"
    assert app.activity == CHATS_ACTIVITY
    assert not tap(app, "replace"), "the game is not there"
    assert app.touch(*ENTRY.center)
    assert app.state() == kept
    assert np.array_equal(app.render(180, 308), before)


def test_the_dots_open_a_menu_that_the_next_touch_closes() -> None:
    app = launched(4)
    before, kept = app.render(180, 308), app.state()
    assert app.touch(*DOTS.center)
    assert app.state()["shows"] == "menu"
    assert not np.array_equal(app.render(180, 308), before)
    assert app.touch(*SHEET.center)
    assert app.state() == kept
    app.touch(*DOTS.center)
    app.touch(*CIRCLE.center)
    assert "closed" in app.state()


def test_time_stops_while_the_menu_is_open() -> None:
    app = launched(4, chop_ms=300)
    tap(app, "chop")
    assert app.tick_ms == 50
    app.touch(*DOTS.center)
    assert app.tick_ms == 0
    app.touch(*SHEET.center)
    app.tick(300)
    assert app.state()["phase"] == "drop"


def test_started_from_its_icon_wechat_shows_its_chats() -> None:
    app = TreeGameApp()
    assert (app.activity, app.state()["shows"]) == (CHATS_ACTIVITY, "chats")
    assert not app.touch(0.5, 0.9)
    app.touch(*ENTRY.center)
    assert (app.activity, app.state()["shows"]) == (GAME_ACTIVITY, "game")


def test_no_place_of_the_game_is_covered_by_the_capsule_or_the_phones_bars() -> None:
    for box in (layout.AXE, layout.REPLACE, layout.DECOMPOSE):
        x, y = box.center
        assert not CAPSULE.contains(x, y)
        assert to_screen(y) < 0.94


@pytest.mark.parametrize("size", SIZES)
def test_every_screen_has_the_requested_size_and_is_reproducible(size: tuple[int, int]) -> None:
    app = launched(4, chop_ms=100, noise=20, chops=1)
    screens = [TreeGameApp().render(*size), app.render(*size)]
    tap(app, "chop")
    screens.append(app.render(*size))
    app.tick(100)
    screens.append(app.render(*size))
    tap(app, "replace")
    screens.append(app.render(*size))
    for picture in screens:
        assert picture.shape == (size[1], size[0], 3)
        assert picture.dtype == np.uint8
    assert np.array_equal(screens[-1], app.render(*size))
    for one, other in itertools.pairwise(screens):
        assert not np.array_equal(one, other)


def test_each_number_and_each_arrow_has_patches_of_its_own() -> None:
    for row, boxes in enumerate(layout.CELLS):
        for column, box in enumerate(boxes):
            assert column / 4 < box.left < box.right < (column + 1) / 4
            top, bottom = to_screen(box.top), to_screen(box.bottom)
            assert (row + 2) / 9 < top < bottom < (row + 3) / 9


def test_a_hidden_total_is_not_drawn() -> None:
    shown, hidden = launched(4), launched(4, total="hidden")
    for app in (shown, hidden):
        tap(app, "chop")
    assert shown.state()["change"] == hidden.state()["change"] != 0
    pictures = [app.render(360, 616) for app in (shown, hidden)]
    rows = slice(*(round(edge * 616) for edge in (layout.TOTAL.top, layout.TOTAL.bottom)))
    differ = np.flatnonzero((pictures[0] != pictures[1]).any(axis=(1, 2)))
    assert rows.start <= differ.min() <= differ.max() < rows.stop
    columns = slice(round(layout.TOTAL.across(0.04) * 360), round(layout.TOTAL.across(0.96) * 360))
    inside = pictures[1][rows.start + 8 : rows.stop - 12, columns]
    assert (inside == inside[0, 0]).all(), "nothing stands there"


def test_an_arrow_is_green_or_red_as_the_change_is() -> None:
    seen = set()
    for seed in range(8):
        app = launched(seed)
        tap(app, "chop")
        picture = app.render(720, 1231)
        box = layout.part(layout.TOTAL, 0.3, 0.6)
        area = picture[round(box.top * 1231) : round(box.bottom * 1231)]
        area = area[:, round(box.left * 720) : round(box.right * 720)].astype(int)
        green = (area[..., 1] > area[..., 0] + 60).sum()
        red = (area[..., 0] > area[..., 1] + 60).sum()
        assert (green > red) == (app.state()["change"] > 0)
        seen.add(green > red)
    assert seen == {True, False}


def test_the_documented_picture_is_up_to_date() -> None:
    script = Path(__file__).parents[4] / "docs" / "make_tree_game.py"
    program = runpy.run_path(str(script))
    drawn, shown = (
        np.asarray(one.convert("RGB"), dtype=int)
        for one in (program["draw"](), Image.open(program["PICTURE"]))
    )
    assert drawn.shape == shown.shape
    assert np.abs(drawn - shown).mean() < 1, "run: python docs/make_tree_game.py"
