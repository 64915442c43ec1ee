"""The positions of all elements on the screens of all levels, and whether they fit."""

import itertools
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.devices.input.input_commands import to_pixel
from agentrl.envs.android.number_game import drawing, layout, palette
from agentrl.envs.android.number_game.app import PACKAGE, NumberGameApp
from agentrl.envs.android.number_game.game_state import NumberGamePhase, NumberGameState
from agentrl.envs.android.number_game.layout import Box, round_layout
from agentrl.envs.android.number_game.levels import NumberGameLevel
from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.boxes import to_screen
from agentrl.envs.android.phone_game.cached_drawing import Piece
from tests.envs.android.number_game.level_apps import ALL, LEVELS, SEEDS, launched
from virtual_phone.virtual_phone import VirtualPhone

Area = tuple[int, int, int, int]
"""Left, top, right and bottom, in pixels."""
SIZES = [(720, 1280), (1080, 2400), (333, 777), (90, 160), (800, 900)]


def cells(box: Box) -> set[tuple[int, int]]:
    """Return the cells of the screen's grid that a box overlaps."""
    columns = range(int(box.left * layout.COLUMNS), int(box.right * layout.COLUMNS) + 1)
    top, bottom = to_screen(box.top), to_screen(box.bottom)
    rows = range(int(top * layout.ROWS), int(bottom * layout.ROWS) + 1)
    return set(itertools.product(rows, columns))


def are_apart(one: Area, other: Area) -> bool:
    beside = one[2] <= other[0] or other[2] <= one[0]
    return beside or one[3] <= other[1] or other[3] <= one[1]


def pixels(box: Box, width: int, height: int) -> Area:
    """Convert a box to pixels of the app's area, rounded outwards."""
    return (
        int(box.left * width),
        int(box.top * height),
        int(np.ceil(box.right * width)),
        int(np.ceil(box.bottom * height)),
    )


@given(SEEDS, LEVELS, st.sampled_from(SIZES), st.integers(0, 9))
@settings(deadline=None)
def test_boxes_do_not_overlap_and_lie_on_the_screen(
    seed: int, level: dict[str, Any], size: tuple[int, int], index: int
) -> None:
    game = NumberGameState(seed, **level)
    game.index = index
    where = round_layout(game)
    boxes = [layout.BOARD, *layout.LAMPS, where.words, *where.cards, where.button]
    width, height = size
    areas = [pixels(box, width, height) for box in boxes]
    for left, top, right, bottom in areas:
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    for one, other in itertools.combinations(areas, 2):
        assert are_apart(one, other), (one, other)


@given(SEEDS, LEVELS, st.sampled_from([(72, 128), (90, 200), (120, 130)]))
@settings(deadline=None, max_examples=30)
def test_a_tap_in_the_middle_of_a_card_picks_it_on_a_phone_of_any_size(
    seed: int, level: dict[str, Any], size: tuple[int, int]
) -> None:
    app = NumberGameApp()
    phone = VirtualPhone([app], size=size, tempo="quick")

    def tap(place: list[float]) -> None:
        phone.input.touch(int(to_pixel(place[0], size[0])), int(to_pixel(place[1], size[1])))

    for card in range(level["cards"]):
        phone.tasks.launch(PACKAGE, {"seed": str(seed), **NumberGameLevel(**level).extras()})
        where = app.state()["touch_targets"]
        if level["memory"]:
            tap(where["button"])
        tap(where["cards"][card])
        assert app.state()["picked"] == card
        tap(where["button"])
        assert app.state()["round"] == 2


def test_cards_and_button_move_to_every_place_there_is() -> None:
    for cards in (3, 4):
        seen, buttons, rounds = set(), set(), set()
        for seed in range(60):
            game = NumberGameState(seed, moved=True, cards=cards)
            for game.index in range(3):
                where = round_layout(game)
                seen |= set().union(*(cells(box) for box in where.cards))
                buttons.add(where.button)
                rounds.add((seed, where))
        assert seen == set(itertools.product((2, 3, 4), range(3)))
        assert len(buttons) == 6
        assert len(rounds) > 60 * 2, "rounds of one game differ"


def test_moved_cards_count_in_reading_order_and_stay_for_a_round() -> None:
    game = NumberGameState(4, moved=True, memory=True, cards=4)
    face_down = round_layout(game)
    starts = [(round(box.top, 6), box.left) for box in face_down.cards]
    assert starts == sorted(starts)
    game.advance()
    assert round_layout(game) == face_down
    game.pick(0)
    assert round_layout(game) == face_down


def test_four_cards_lie_side_by_side() -> None:
    lefts = [box.left for box in round_layout(NumberGameState(0, cards=4)).cards]
    assert lefts == sorted(lefts)
    assert len(lefts) == 4


@given(SEEDS, LEVELS)
@settings(deadline=None, max_examples=25)
def test_the_same_seed_gives_the_same_frames(seed: int, level: dict[str, Any]) -> None:
    one, other = launched(seed, **level), launched(seed, **level)
    rng = np.random.default_rng(seed)
    for _ in range(12):
        assert np.array_equal(one.render(90, 154), other.render(90, 154))
        assert one.state() == other.state()
        x, y = rng.random(2)
        assert one.touch(x, y) == other.touch(x, y)


@given(SEEDS, LEVELS, st.sampled_from([(180, 308), (333, 777), (90, 154), (400, 230)]))
@settings(deadline=None, max_examples=25)
def test_parts_put_together_are_the_picture_drawn_stroke_by_stroke(
    seed: int, level: dict[str, Any], size: tuple[int, int]
) -> None:
    game, rng = NumberGameState(seed, rounds=2, **level), np.random.default_rng(seed)
    for _ in range(12):
        assert np.array_equal(drawing.render(game, *size), drawing.draw(game, *size))
        if rng.random() < 0.5:
            game.miss()
        else:
            game.pick(int(rng.integers(level["cards"]))) or game.advance()


@pytest.mark.parametrize("size", [(360, 616), (180, 308)])
def test_no_part_touches_another_and_none_is_cut_off(size: tuple[int, int]) -> None:
    width, height = size
    for level in ALL:
        for game in stages(NumberGameState(11, rounds=1, **level)):
            drawn = [ink(piece, *size) for piece in drawing.pieces(game)]
            drawn = [area for area in drawn if any(area)]
            for left, top, right, bottom in drawn:
                assert 0 < left < right < width
                assert 0 < top < bottom < height
            for one, other in itertools.combinations(drawn, 2):
                assert are_apart(one, other), (level, one, other)


def test_the_caption_of_the_yellow_lamp_says_what_it_asks_of_four_cards() -> None:
    captions = [caption for caption, _ in drawing._MEANING[4]]
    assert captions == ["largest", "second largest", "smallest"]
    three, four = np.zeros((2, 616, 360, 3), np.uint8)
    drawing.background(three, 3)
    drawing.background(four, 4)
    left, top, right, bottom = pixels(layout.LAMPS[1], 360, 616)
    assert not np.array_equal(three[top:bottom, left:right], four[top:bottom, left:right])
    three[top:bottom, left:right] = four[top:bottom, left:right]
    assert np.array_equal(three, four)


@pytest.mark.parametrize("moved", [False, True])
def test_the_bar_is_as_long_as_the_share_of_touches_that_is_left(moved: bool) -> None:
    game = NumberGameState(3, timed=4, moved=moved)
    lengths = []
    for _ in range(5):
        blue = (drawing.render(game, 720, 1231) == palette.BLUE).all(axis=2)
        left, top, right, _ = pixels(round_layout(game).words, 720, 1231)
        lengths.append(int(blue[top : top + 30, left:right].any(axis=0).sum()))
        game.miss()
    assert lengths[0] > 500
    assert np.allclose(lengths, np.array([1, 0.75, 0.5, 0.25, 0]) * lengths[0], atol=4)


def test_a_tip_is_all_that_a_distractor_draws() -> None:
    plain, drawn = (
        drawing.render(NumberGameState(3, distractor=d), 360, 616) for d in (False, True)
    )
    _, top, _, bottom = pixels(layout.WORDS, 360, 616)
    rows = np.flatnonzero((plain != drawn).any(axis=(1, 2)))
    assert top + 0.8 * (bottom - top) < rows[0] < rows[-1] < bottom + 5


def stages(game: NumberGameState) -> Any:
    """Yield the game at each of its screens, up to the last."""
    yield game
    if game.phase is NumberGamePhase.LAMP:
        game.advance()
        yield game
    while not game.over:
        game.miss() or game.pick(0)
    yield game


@pytest.mark.parametrize("size", [(720, 1231), (180, 308)])
def test_numbers_and_captions_stay_within_their_boxes(size: tuple[int, int]) -> None:
    width = size[0]
    for level in ALL:
        game = NumberGameState(5, **{**level, "memory": False})
        widest = "88" if level["digits"] == 2 else "8"
        for card, box in enumerate(round_layout(game).cards):
            _, (_, _, _, font, color, bold) = drawing._card(game, card, box)
            text = (paint.text, (widest, *box.center, font, color, bold))
            assert is_within(ink(text, *size), pixels(box, *size), room=0.02 * width)
        for (caption, font), box in zip(
            drawing._MEANING[level["cards"]], layout.LAMPS, strict=True
        ):
            text = (paint.text, (caption, *box.center, font, (0, 0, 0), 0.0))
            assert is_within(ink(text, *size), pixels(box, *size), room=0.006 * width)


@lru_cache(maxsize=4096)
def ink(piece: Piece, width: int, height: int) -> Area:
    """Return the area that a part changes on a plain picture; (0, 0, 0, 0) if none."""
    picture = np.full((height, width, 3), 77, np.uint8)
    stroke, shown = piece
    stroke(picture, *shown)
    changed = (picture != 77).any(axis=2)
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    if not rows.size:
        return (0, 0, 0, 0)
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def is_within(inner: Area, outer: Area, room: float) -> bool:
    """Return whether this many pixels are free on each side."""
    left, top = inner[0] - outer[0], inner[1] - outer[1]
    right, bottom = outer[2] - inner[2], outer[3] - inner[3]
    return min(left, top, right, bottom) >= room
