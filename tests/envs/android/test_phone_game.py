import inspect
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from agentrl.actions.dialect import open_dialect
from agentrl.devices import ScreenRegion
from agentrl.envs.android.phone_game.layout_conversion import targets_to_screen
from agentrl.errors import ActionError, ConfigError, EnvError
from tests.envs.toy import CELLS, Stumbler, ToyApp, ToyEnv, ToyWords, Walker


@pytest.fixture(scope="module")
def env() -> Iterator[ToyEnv]:
    env = ToyEnv(mode="calls", ticks=3)
    yield env
    env.close()


GO, LEFT, LEAVE, WORK = range(4), 4, 5, 6


def launched(**extras: str) -> ToyApp:
    app = ToyApp()
    app.launch({"seed": "2", **extras})
    return app


def test_the_environment_keeps_gymnasiums_contract(env: ToyEnv) -> None:
    check_env(env, skip_render_check=True)


def test_a_call_touches_its_place_and_earns_the_change_of_the_score(env: ToyEnv) -> None:
    before, info = env.reset(seed=2)
    assert (info["at"], info["touch_targets"]["left"]) == (2, [0.8, 0.52, 0.2, 0.52])
    screen, reward, *_, info = env.step(GO[0])
    assert (reward, info["at"], info["changed"]) == (0.5, 0, True)
    assert not np.array_equal(before, screen)
    _, reward, done, _, info = env.step(LEFT)
    assert (reward, done, info["metrics"]) == (5.0, False, {"score": 11.0, "ticks": 6.0})


def test_time_is_paused_while_the_policy_thinks(env: ToyEnv) -> None:
    env.reset(seed=2)
    key = env.step(GO[1])[4]["state_key"]
    shown = env.device.screenshot()
    time.sleep(0.2)
    assert np.array_equal(shown, env.device.screenshot())
    env.reset(seed=2)
    assert env.step(GO[1])[4]["state_key"] == key
    assert env.step(GO[1])[4]["state_key"] != key


def test_the_state_key_is_independent_of_the_games_position_on_the_screen(env: ToyEnv) -> None:
    state = launched().state()
    moved = targets_to_screen(state, ScreenRegion(left=0.25, top=0.5, right=0.75, bottom=1.0))
    assert moved["touch_targets"] != state["touch_targets"]
    assert env.state_key(moved) == env.state_key(state)
    assert env.state_key({**state, "at": 9}) != env.state_key(state)


def test_closing_the_game_gives_the_lowest_reward_and_the_last_screen(env: ToyEnv) -> None:
    shown, info = env.reset(seed=2)
    assert info["side_effects"] == []
    screen, reward, terminated, _, info = env.step(LEAVE)
    assert info["side_effects"] == [env.game.package]
    assert (reward, terminated, info["left"]) == (-3.0, True, True)
    assert np.array_equal(shown, screen)
    assert info["guard"]["by"] == "agent"
    assert info["guard"]["evidence"] == "the door was touched"
    assert "no_frame" in info["guard"]


def test_a_running_clock_starts_with_the_first_touch() -> None:
    env = ToyEnv(clock="running")
    try:
        shown, info = env.reset(seed=2)
        time.sleep(0.1)
        assert info["ticks"] == 0
        top = shown.shape[0] // 26 + 1
        assert np.array_equal(shown[top:], env.device.screenshot()[top:])
        tap = np.array([0.1, 0.5, 0.1, 0.5], np.float32)
        first = env.step(tap)[4]["ticks"]
        end = time.monotonic() + 20
        while (ticks := env.step(tap)[4]["ticks"]) < first + 5:
            assert time.monotonic() < end
        assert ticks > first
    finally:
        env.close()


def test_the_environment_waits_until_the_game_is_no_longer_busy() -> None:
    env = ToyEnv(mode="calls", clock="running")
    try:
        env.reset(seed=2)
        info = env.step(WORK)[4]
        assert not info["busy"]
        assert info["ticks"] >= 3
    finally:
        env.close()


def test_a_game_that_stays_busy_raises_env_error() -> None:
    env = ToyEnv(mode="calls", ticks=2)
    try:
        env.reset(seed=2)
        env.device.deadlines = replace(env.device.deadlines, settle_s=0.5)
        with pytest.raises(EnvError, match="still busy"):
            env.step(WORK)  # takes three ticks on a paused clock
    finally:
        env.close()


def test_the_settings_of_a_level_are_named_arguments() -> None:
    for kind in (ToyEnv, ToyWords):
        named = inspect.signature(kind).parameters
        assert {"mode", "goal", "clock", "ticks"} <= set(named)
    assert "device" in inspect.signature(ToyEnv).parameters
    with pytest.raises(ConfigError, match="clock='slow': must be paused"):
        ToyEnv(device="no such phone", clock="slow")
    with pytest.raises(ConfigError, match="touch, calls"):
        ToyEnv(device="no such phone", mode="tap")
    with pytest.raises(ConfigError, match="touch, calls"):
        ToyWords(mode="tap")


def test_an_app_parses_launch_extras_and_rejects_invalid_ones() -> None:
    assert launched(goal="5").state()["goal"] == 5
    for wrong in ({"goal": "many"}, {"seed": "-1"}, {"seed": "x"}, {"clock": "backwards"}):
        with pytest.raises(ValueError, match=r"must be|invalid literal"):
            launched(**wrong)


def test_splitting_an_interval_does_not_change_the_number_of_ticks() -> None:
    one, many = launched(clock="running"), launched(clock="running")
    for app in (one, many):
        assert app.tick_ms == 0
        app.touch(*CELLS[0].center)
        assert app.tick_ms == 20
    one.tick(200)
    for _ in range(10):
        many.tick(20)
    assert one.state() == many.state()
    assert one.state()["ticks"] == 10


def test_places_are_converted_to_the_area_of_a_page() -> None:
    area = ScreenRegion(left=0.25, top=0.5, right=0.75, bottom=1.0)
    places = targets_to_screen(launched().state(), area)["touch_targets"]
    (x, y), path = places["go"][0], places["left"]
    left, top = CELLS[0].center
    assert (x, y) == pytest.approx((0.25 + left / 2, 0.5 + top / 2), abs=0.01)
    assert path == pytest.approx([0.65, 0.75, 0.35, 0.75], abs=0.01)


@pytest.mark.parametrize("style", ["tag", "tool"])
@pytest.mark.parametrize("mode", ["touch", "calls"])
def test_the_translator_parses_the_players_replies(mode: str, style: str) -> None:
    app, words, rng = launched(), ToyWords(mode=mode, style=style), np.random.default_rng(0)
    for player in (Walker(mode, style), Stumbler(mode=mode, style=style)):
        for _ in range(20):
            action = words.to_action(player.reply(app.state(), rng))
            if mode == "calls":
                assert action in range(7)
            else:
                assert isinstance(action, np.ndarray)
                assert action.shape == (4,)
    said = Walker(mode, style).reply(app.state(), rng)
    assert said.startswith("<think>left</think>")
    assert (words.to_action(said) == (LEFT if mode == "calls" else action)) is not None
    assert ("tool_call" in words.instructions()) == (style == "tool")


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "<action>go(4)</action>",
        "<action>go(-1)</action>",
        "<action>go(\u0663)</action>",
        "<action>go(x)</action>",
        "<action>left()</action><action>left()</action>",
        "<action>tap(0.1, 0.2)</action>",
    ],
)
def test_a_reply_without_a_call_raises_action_error(reply: str) -> None:
    words = ToyWords(mode="calls")
    with pytest.raises(ActionError):
        words.to_action(reply)
    assert words.no_action() is None


@pytest.mark.parametrize(
    ("name", "action", "reply"),
    [
        ("autoglm", "double_tap", '<answer>do(action="Double Tap", element=[500,500])</answer>'),
        ("ui-tars", "long_press", "Action: long_press(start_box='(500,500)')"),
        ("androidworld-json", "key", 'Action: {"action_type": "navigate_back"}'),
    ],
)
def test_an_action_of_a_dialect_that_no_game_supports_raises_action_error(
    name: str, action: str, reply: str
) -> None:
    words = ToyWords()
    words.dialect = open_dialect(name)
    words.see((np.zeros((300, 200, 3), np.uint8),))
    with pytest.raises(ActionError, match=f"^{action} is not possible here; .* swipe, tap$"):
        words.to_action(reply)


def test_a_level_that_differs_from_the_games_is_a_config_error() -> None:
    screen, words = np.zeros((4, 3, 3), np.uint8), ToyWords(goal=5)
    assert words.to_observation(screen, {"goal": 5}).images == (screen,)
    with pytest.raises(ConfigError, match="goal is 5, but 6 in the game"):
        words.to_observation(screen, {"goal": 6})
