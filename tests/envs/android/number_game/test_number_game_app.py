import json
import time

import numpy as np
import pytest

from agentrl.envs.android.number_game import drawing, layout
from agentrl.envs.android.number_game.app import NumberGameApp
from agentrl.envs.android.number_game.game_state import NumberGamePhase, NumberGameState
from agentrl.envs.android.phone_game.boxes import Box, tap_at, to_app, to_screen


@pytest.fixture
def app() -> NumberGameApp:
    app = NumberGameApp()
    app.launch({"seed": "3", "rounds": "2"})
    return app


def touch(app: NumberGameApp, box: Box) -> bool:
    x, y = tap_at(box)
    return app.touch(x, to_app(y))


def test_cards_and_button_play_the_game_to_its_end(app: NumberGameApp) -> None:
    for _ in range(2):
        assert touch(app, layout.CARDS[app.state()["answer"]])
        touch(app, layout.BUTTON)
    assert app.state()["round"] == 1, "the button restarts a finished game"


def test_touches_on_empty_space_or_locked_cards_change_nothing(app: NumberGameApp) -> None:
    before = app.state()
    assert not app.touch(0.5, 0.5)
    assert not touch(app, layout.BUTTON)
    assert not app.key("KEYCODE_BACK")
    assert not app.swipe(0.1, 0.7, 0.9, 0.7, 300)
    assert app.state() == before
    assert touch(app, layout.CARDS[0])
    assert not touch(app, layout.CARDS[1])


def test_state_is_plain_json(app: NumberGameApp) -> None:
    assert json.loads(json.dumps(app.state())) == app.state()


@pytest.mark.parametrize("extras", [{"seed": "x"}, {"rounds": "0"}, {"memory": "perhaps"}])
def test_an_invalid_extra_is_rejected(extras: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|at least|must be"):
        NumberGameApp().launch(extras)


@pytest.mark.parametrize("size", [(720, 1231), (1080, 2308), (333, 777), (90, 160)])
def test_the_picture_has_the_requested_size_and_is_reproducible(
    app: NumberGameApp, size: tuple[int, int]
) -> None:
    picture = app.render(*size)
    assert picture.shape == (size[1], size[0], 3)
    assert picture.dtype == np.uint8
    assert np.array_equal(picture, app.render(*size))


@pytest.mark.parametrize("size", [(720, 1231), (90, 154), (333, 777), (400, 230)])
@pytest.mark.parametrize("memory", [False, True])
def test_cached_pieces_give_the_same_picture_as_direct_drawing(
    size: tuple[int, int], memory: bool
) -> None:
    rng = np.random.default_rng(size[0])
    for seed in range(2):
        game = NumberGameState(seed, rounds=11, memory=memory)
        while True:
            assert np.array_equal(drawing.render(game, *size), drawing.draw(game, *size))
            if game.phase is NumberGamePhase.FINAL:
                break
            if not game.pick(int(rng.integers(3))):
                game.advance()


def test_a_picture_belongs_to_its_caller(app: NumberGameApp) -> None:
    first = app.render(180, 308)
    kept = first.copy()
    first[:] = 0
    assert np.array_equal(app.render(180, 308), kept)


def test_each_lamp_and_each_card_has_its_own_cell() -> None:
    for row, boxes in ((1, layout.LAMPS), (3, layout.CARDS)):
        for column, box in enumerate(boxes):
            assert column / 3 < box.left < box.right < (column + 1) / 3
            top, bottom = to_screen(box.top), to_screen(box.bottom)
            assert row / 5 < top < bottom < (row + 1) / 5


def test_the_memory_game_does_not_reveal_cards_or_lamp_too_early() -> None:
    pictures = []
    for seed in (0, 1):  # the same lamp, other numbers; other lamps are compared below
        app = NumberGameApp()
        app.launch({"seed": str(seed), "memory": "true"})
        lamp = app.state()["lamp"]
        hidden = app.render(180, 308)
        touch(app, layout.BUTTON)
        pictures.append((lamp, hidden, app.render(180, 308)))
    lamps = slice(*(round(edge * 308) for edge in (layout.LAMPS[0].top, layout.LAMPS[0].bottom)))
    cards = slice(*(round(edge * 308) for edge in (layout.CARDS[0].top, layout.CARDS[0].bottom)))
    (_, face_down, turned), (_, other_face_down, other_turned) = pictures
    assert np.array_equal(face_down[cards], other_face_down[cards])
    assert np.array_equal(turned[lamps], other_turned[lamps])
    assert not np.array_equal(turned[cards], other_turned[cards])


def test_a_frame_is_drawn_in_a_few_milliseconds(app: NumberGameApp) -> None:
    app.render(720, 1231)
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        app.render(720, 1231)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.01
