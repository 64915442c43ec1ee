import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.envs.android.number_game.game_state import NumberGamePhase, NumberGameState
from agentrl.envs.android.number_game.levels import LAMPS, draw_rounds

SEEDS = st.integers(min_value=0, max_value=2**32)


def finish(game: NumberGameState, rng: np.random.Generator) -> None:
    while game.phase is not NumberGamePhase.FINAL:
        game.pick(int(rng.integers(3))) if game.phase is NumberGamePhase.PICK else game.advance()


@given(SEEDS)
def test_same_seed_gives_the_same_game(seed: int) -> None:
    assert draw_rounds(seed, 10) == draw_rounds(seed, 10)
    assert draw_rounds(seed, 10)[:3] == draw_rounds(seed, 3)


@given(SEEDS)
def test_numbers_are_distinct_digits_and_the_lamp_names_one_of_them(seed: int) -> None:
    for drawn in draw_rounds(seed, 10):
        assert len(set(drawn.numbers)) == 3
        assert set(drawn.numbers) <= set(range(1, 10))
        wanted = {"green": max, "red": min, "yellow": lambda n: sorted(n)[1]}[drawn.lamp]
        assert drawn.numbers[drawn.answer] == wanted(drawn.numbers)


def test_lamps_and_answers_are_about_equally_frequent() -> None:
    rounds = [r for seed in range(100) for r in draw_rounds(seed, 10)]
    for lamp in LAMPS:
        assert 0.28 < np.mean([r.lamp == lamp for r in rounds]) < 0.39
    for card in range(3):
        assert 0.28 < np.mean([r.answer == card for r in rounds]) < 0.39


@given(SEEDS, st.booleans())
def test_score_counts_ten_up_or_down_for_each_pick(seed: int, memory: bool) -> None:
    game = NumberGameState(seed, memory=memory)
    finish(game, np.random.default_rng(seed))
    state = game.state()
    assert state["right"] + state["wrong"] == 10
    assert state["score"] == 100 + 10 * (state["right"] - state["wrong"])
    assert state["done"]


def test_a_picked_round_is_locked_until_the_button_opens_the_next() -> None:
    game = NumberGameState(1)
    assert not game.advance()
    assert game.pick(game.round.answer)
    assert game.state()["change"] == 10
    assert not game.pick(0)
    assert game.advance()
    assert (game.index, game.picked, game.change) == (1, None, 0)


def test_memory_shows_the_lamp_before_the_cards_can_be_picked() -> None:
    game = NumberGameState(1, memory=True)
    assert game.phase is NumberGamePhase.LAMP
    assert not game.pick(0)
    assert game.advance()
    assert game.pick(0)


@pytest.mark.parametrize("arguments", [{"seed": -1}, {"rounds": 0}])
def test_invalid_arguments_are_rejected(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must be 0 or more|at least 1"):
        NumberGameState(**arguments)
