import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.config import EnvConfig
from agentrl.envs.android.number_game import layout
from agentrl.envs.android.number_game.app import NumberGameApp
from agentrl.envs.android.number_game.game_state import NumberGamePhase, NumberGameState
from agentrl.envs.android.number_game.levels import NumberGameLevel, draw_rounds, draw_tip
from agentrl.envs.android.number_game.players import (
    NumberGameExpert,
    NumberGameMediocre,
    NumberGameRandom,
)
from agentrl.envs.android.number_game.translator import NumberGameTranslator
from agentrl.envs.android.phone_game.boxes import tap_at
from agentrl.errors import ActionError, ConfigError
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from tests.envs.android.number_game.level_apps import ALL, LEVELS, SEEDS, launched, play, tap

RNG = np.random.default_rng(0)
WRONG: list[dict[str, Any]] = [
    {"digits": 3}, {"digits": True}, {"cards": 5}, {"cards": "4"}, {"moved": "yes"}, {"moved": 1},
    {"distractor": None}, {"timed": -1}, {"timed": True}, {"timed": 2.5}, {"memory": "no"},
]  # fmt: skip


@given(SEEDS, LEVELS)
@settings(deadline=None)
def test_numbers_are_distinct_and_one_of_them_is_right(seed: int, level: dict[str, Any]) -> None:
    numbers = range(1, 10) if level["digits"] == 1 else range(10, 100)
    for drawn in draw_rounds(seed, 10, NumberGameLevel(**level)):
        assert len(set(drawn.numbers)) == level["cards"]
        assert set(drawn.numbers) <= set(numbers)
        right = drawn.numbers[drawn.answer]
        larger = sum(number > right for number in drawn.numbers)
        assert larger == {"green": 0, "yellow": 1, "red": level["cards"] - 1}[drawn.lamp]


@given(SEEDS, LEVELS)
@settings(deadline=None)
def test_settings_are_independent_of_each_other(seed: int, level: dict[str, Any]) -> None:
    game = NumberGameState(seed, **level)
    alone = {name: level[name] for name in ("digits", "cards")}
    assert game.rounds == NumberGameState(seed, **alone).rounds
    assert game.tip == (draw_tip(seed, 0, game.level.numbers) if level["distractor"] else None)


@given(SEEDS)
@settings(deadline=None, max_examples=5)
def test_the_expert_wins_every_round_of_every_level(seed: int) -> None:
    for level in ALL:
        turns = 3 * (3 if level["memory"] else 2) - 1
        state = play(launched(seed, **level), NumberGameExpert(), turns)
        assert (state["right"], state["score"], state["done"]) == (3, 130, True), level


@given(SEEDS)
@settings(deadline=None, max_examples=2)
def test_random_taps_never_break_a_game(seed: int) -> None:
    for level in ALL:
        state = play(launched(seed, **level), NumberGameRandom(stray=0.5), 40, seed)
        assert state["score"] == 100 + 10 * (state["right"] - state["wrong"])
        assert json.loads(json.dumps(state)) == state


def test_the_mediocre_player_takes_the_largest_of_four() -> None:
    right = [
        play(
            launched(seed, 10, cards=4, digits=2, moved=True),
            NumberGameMediocre(skill=0.3),
            100,
            seed,
        )
        for seed in range(60)
    ]
    assert 0.46 < sum(state["right"] for state in right) / 600 < 0.61  # 0.3 + 0.7 / 3


def test_a_thought_names_cards_by_number_where_there_are_four_or_they_are_moved() -> None:
    app = launched(3, cards=4, digits=2)
    numbers = app.state()["numbers"]
    rising = [str(numbers.index(number)) for number in sorted(numbers)]
    reply = NumberGameExpert("select").reply(app.state(), RNG)
    card = app.state()["answer"]
    words = [*map(str, numbers), *rising, app.state()["lamp"], str(card)]
    assert reply == f"<think>{' '.join(words)}</think><action>select({card})</action>"
    moved = NumberGameExpert().reply(launched(3, moved=True).state(), RNG)
    assert "left" not in moved


def test_a_tap_of_the_experts_lands_where_things_lie() -> None:
    app = launched(2, moved=True)
    x, y = app.state()["touch_targets"]["cards"][app.state()["answer"]]
    reply = NumberGameExpert().reply(app.state(), RNG)
    assert reply.endswith(f"<action>tap({x:.2f}, {y:.2f})</action>")


@given(SEEDS, st.integers(1, 5), st.booleans())
@settings(deadline=None)
def test_a_round_is_lost_with_its_last_touch_as_by_a_wrong_pick(
    seed: int, timed: int, memory: bool
) -> None:
    game = NumberGameState(seed, rounds=2, timed=timed, memory=memory)
    for score, phase in ((90, NumberGamePhase.REVEAL), (80, NumberGamePhase.FINAL)):
        if memory:
            assert not game.miss(), "the clock stands until the cards are turned"
            game.advance()
        for left in range(timed - 1, -1, -1):
            assert game.phase is NumberGamePhase.PICK
            assert game.miss()
            assert game.time_left == left
        assert (game.phase, game.score, game.change) == (phase, score, -10)
        assert (game.picked, game.over) == (None, True)
        assert not game.miss()
        assert not game.pick(0)
        game.advance()
    assert (game.right, game.wrong) == (0, 2)


def test_only_touches_that_pick_no_card_take_time() -> None:
    app = launched(3, timed=5)
    places = app.state()["touch_targets"]
    assert tap(app, [0.5, 0.1])
    assert tap(app, places["button"]), "it is disabled, and time passes"
    assert app.swipe(0.1, 0.7, 0.9, 0.7, 300)
    assert not app.key("KEYCODE_BACK")
    assert app.state()["time_left"] == 2
    assert tap(app, places["cards"][app.state()["answer"]])
    assert not tap(app, [0.5, 0.1]), "the round is over"
    state = app.state()
    assert (state["phase"], state["change"], state["time_left"]) == ("reveal", 10, 2)
    assert tap(app, places["button"])
    assert app.state()["time_left"] == 5


def test_a_touch_takes_no_time_where_there_is_no_clock() -> None:
    app = launched(3, distractor=True, moved=True)
    before = app.state()
    assert not tap(app, [0.5, 0.1])
    assert app.state() == before


def test_the_next_game_is_of_the_same_level() -> None:
    app = launched(3, rounds=1, cards=4, digits=2, moved=True, timed=2)
    play(app, NumberGameExpert(), 1)
    assert tap(app, app.state()["touch_targets"]["button"])
    assert app.state() == launched(4, rounds=1, cards=4, digits=2, moved=True, timed=2).state()


def test_a_line_of_no_use_changes_with_the_round_and_says_no_rule() -> None:
    tips = {draw_tip(seed, index, range(10, 100)) for seed in range(100) for index in range(10)}
    assert len(tips) > 100
    assert not any("asks" in tip or "means" in tip for tip in tips)
    assert all(len(tip) < 48 for tip in tips)


@given(LEVELS)
@settings(deadline=None)
def test_a_level_survives_its_launch(level: dict[str, Any]) -> None:
    assert NumberGameLevel(
        **NumberGameLevel.read(NumberGameLevel(**level).extras())
    ) == NumberGameLevel(**level)


def test_launch_prompt_and_state_of_the_default_level_are_unchanged() -> None:
    assert NumberGameLevel().extras() == {"memory": "false"}, "more would change the phone's clock"
    drawn = [(r.lamp, r.numbers) for r in draw_rounds(0, 2) + draw_rounds(7, 1)]
    assert drawn == [("red", (8, 3, 5)), ("green", (1, 8, 2)), ("red", (5, 9, 6))]
    state = launched(3).state()
    assert state["touch_targets"]["cards"] == [list(tap_at(box)) for box in layout.CARDS]
    assert state["touch_targets"]["button"] == [0.5, 0.9]
    assert (state["tip"], state["time_left"]) == (None, 0)


@pytest.mark.parametrize("wrong", WRONG)
def test_an_invalid_level_is_rejected(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name}={value!r}: must be"):
        NumberGameLevel(**wrong)
    with pytest.raises(ConfigError, match=f"{name}={value!r}: must be"):
        NumberGameLevel.checked(**wrong)


@pytest.mark.parametrize(
    "extras", [{"cards": "5"}, {"digits": "two"}, {"moved": "2"}, {"timed": "-1"}, {"timed": "²"}]
)
def test_an_app_rejects_an_invalid_level(extras: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        NumberGameApp().launch(extras)


RULES = (
    "You play the number game on a phone. One lamp is lit. Green: tap the card with the largest "
    "number. Yellow: the middle one. Red: the smallest. After each pick, tap the button below."
)


def test_the_prompt_of_the_default_level_is_unchanged() -> None:
    tap = " Answer <action>tap(x, y)</action>, x and y from 0.00 (left, top) to 1.00."
    select = " Answer <action>select(i)</action>, i from 0 (left card) to 2."
    assert NumberGameTranslator().instructions() == RULES + tap
    assert NumberGameTranslator(mode="select").instructions() == RULES + select


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ({"cards": 4}, "Yellow: the second largest."),
        ({"memory": True}, "it goes out and the cards are turned"),
        ({"moved": True}, "Each round has cards and button elsewhere."),
        ({"timed": 3}, "A round is lost after 3 touches without a pick."),
        ({"timed": 1}, "A round is lost after 1 touch without a pick."),
        ({"mode": "select", "memory": True}, "any of them turns all."),
        ({"mode": "select", "cards": 4}, "i from 0 (left card) to 3."),
        ({"mode": "select", "moved": True}, "0 to 2: the upper cards first, from left to right."),
    ],
)
def test_the_prompt_describes_the_level(level: dict[str, Any], text: str) -> None:
    assert text not in NumberGameTranslator().instructions()
    assert text in NumberGameTranslator(**level).instructions()
    assert "below" not in NumberGameTranslator(moved=True).instructions()
    assert "middle" not in NumberGameTranslator(cards=4).instructions()


def test_the_fourth_card_can_be_selected_and_no_fifth() -> None:
    translator = NumberGameTranslator(mode="select", cards=4)
    assert translator.to_action("<action>select(3)</action>") == 3
    with pytest.raises(ActionError, match="from 0 to 3, not 4"):
        translator.to_action("<action>select(4)</action>")


@given(LEVELS)
@settings(deadline=None)
def test_a_translator_of_another_level_is_rejected(level: dict[str, Any]) -> None:
    screen, state = np.zeros((4, 3, 3), np.uint8), launched(0, **level).state()
    assert NumberGameTranslator(**level).to_observation(screen, state).images == (screen,)
    other = {**level, "cards": 7 - level["cards"]}
    with pytest.raises(ConfigError, match=r"cards is \d, but \d in the game"):
        NumberGameTranslator(**other).to_observation(screen, state)


def test_a_level_is_set_once_for_environment_translator_and_players() -> None:
    kwargs = {"cards": 4, "mode": "select", "rounds": 2}
    translator = open_translator(resolve_env(EnvConfig(id="NumberGame-v0", kwargs=kwargs)))
    assert translator.to_action("<action>select(3)</action>") == 3
    assert "second largest" in translator.instructions()
