import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from agentrl.envs.android.number_game import layout
from agentrl.envs.android.number_game.app import PACKAGE
from agentrl.envs.android.number_game.env import NumberGame
from agentrl.envs.android.number_game.players import NumberGameExpert
from agentrl.envs.android.number_game.translator import NumberGameTranslator
from agentrl.envs.android.phone_game.boxes import STATUS_BAR, Box, tap_at
from agentrl.errors import AppLeft, CaptureError, ConfigError, EnvError


@pytest.fixture(scope="module")
def env() -> Iterator[NumberGame]:
    env = NumberGame(rounds=2, render_mode="rgb_array")
    yield env
    env.close()


def tap(box: Box) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(tap_at(box), dtype=np.float32)


def test_the_environment_keeps_gymnasiums_contract(env: NumberGame) -> None:
    check_env(env, skip_render_check=True)
    env.reset(seed=1)
    assert np.array_equal(env.render(), env.reset(seed=1)[0])


def test_the_expert_makes_only_right_picks_which_are_rewarded_immediately(env: NumberGame) -> None:
    rng, translator, player = np.random.default_rng(0), NumberGameTranslator(), NumberGameExpert()
    _, info = env.reset(seed=5)
    rewards, keys, terminated = [], [info["state_key"]], False
    while not terminated:
        action = translator.to_action(player.reply(info, rng))
        _, reward, terminated, truncated, info = env.step(action)
        assert not truncated
        rewards.append(reward)
        keys.append(info["state_key"])
    assert rewards == [1, 0, 1]
    assert keys == ["5/1/pick", "5/1/reveal", "5/2/pick", "5/2/final"]
    assert (info["score"], info["right"], info["done"]) == (120, 2, True)


def test_a_wrong_pick_costs_and_a_miss_changes_nothing(env: NumberGame) -> None:
    before, info = env.reset(seed=5)
    after, reward, *_ = env.step(np.array([0.5, 0.5], dtype=np.float32))
    assert reward == 0
    top = round(before.shape[0] * STATUS_BAR)
    assert np.array_equal(before[top:], after[top:])
    wrong = (info["answer"] + 1) % 3
    screen, reward, *_ = env.step(tap(layout.CARDS[wrong]))
    assert reward == -1
    assert not np.array_equal(after, screen), "the screen from before the effect is never returned"


def test_the_same_seed_gives_the_same_screens(env: NumberGame) -> None:
    def play() -> list[Any]:
        screens = [env.reset(seed=9)[0]]
        screens += [env.step(tap(box))[0] for box in (layout.CARDS[1], layout.BUTTON)]
        return screens

    for one, other in zip(play(), play(), strict=True):
        assert np.array_equal(one, other)


def test_an_invalid_action_is_rejected(env: NumberGame) -> None:
    env.reset(seed=1)
    with pytest.raises(ValueError, match="is not an action"):
        env.step(np.array([1.5, 0.5], dtype=np.float32))


@pytest.fixture
def fault(env: NumberGame) -> Iterator[Callable[..., None]]:
    """Set faults of the phone until the end of the test."""

    def set_fault(**faults: str) -> None:
        for name, value in faults.items():
            env.device.shell("setprop", f"debug.agentrl.fault.{name}", value)

    deadlines = env.device.deadlines
    yield set_fault
    env.device.deadlines = deadlines
    set_fault(input="", focus="", publish_late_s="", front="", dialog="", capture="")


def test_stale_captures_are_not_mistaken_for_the_game(
    env: NumberGame, fault: Callable[..., None]
) -> None:
    _, info = env.reset(seed=5)
    env.device.deadlines = replace(env.device.deadlines, settle_s=1.0, launch_s=1.0)
    fault(capture="stale")
    with pytest.raises(CaptureError, match="the captures are stale"):
        env.step(tap(layout.CARDS[info["answer"]]))
    with pytest.raises(CaptureError, match="launched, but the screen did not change"):
        env.reset(seed=6)
    fault(capture="")
    shown, _ = env.reset(seed=7)
    top = round(shown.shape[0] * STATUS_BAR)
    assert np.array_equal(shown[top:], env.device.screenshot()[top:])


def test_a_tap_that_leaves_the_game_loses_every_pick_that_is_left(
    env: NumberGame, fault: Callable[..., None]
) -> None:
    env.reset(seed=5)
    env.device.deadlines = replace(env.device.deadlines, settle_s=0.5)
    fault(input="NotificationShade")
    _, reward, terminated, _, info = env.step(tap(layout.CARDS[0]))
    assert (reward, terminated, info["left"]) == (-2, True, True)
    assert info["guard"]["by"] == "agent"
    assert "NotificationShade" in info["guard"]["no_frame"]


@pytest.mark.parametrize("world", [{"dialog": "call"}, {"front": "com.android.chrome"}])
def test_a_foreign_window_is_dismissed_and_the_pick_counts(
    env: NumberGame, fault: Callable[..., None], world: dict[str, str]
) -> None:
    _, info = env.reset(seed=5)
    fault(**world)
    end = time.monotonic() + 30
    while env.device.focus() == PACKAGE:  # all effects come late, including those of faults
        assert time.monotonic() < end
        time.sleep(0.02)
    screen, reward, terminated, _, info = env.step(tap(layout.CARDS[info["answer"]]))
    assert (reward, terminated, info["right"]) == (1, False, 1)
    assert (info["guard"]["by"], "no_frame" in info["guard"]) == ("world", False)
    top = round(screen.shape[0] * STATUS_BAR)
    assert np.array_equal(screen[top:], env.device.screenshot()[top:])
    assert "guard" not in env.step(tap(layout.BUTTON))[4]


@pytest.mark.parametrize("dialog", ["anr", "crash"])
def test_a_crash_dialog_voids_the_episode(
    env: NumberGame, fault: Callable[..., None], dialog: str
) -> None:
    env.reset(seed=5)
    fault(dialog=dialog)
    with pytest.raises(AppLeft, match=f"^{dialog}: .* before the action was sent"):
        env.step(tap(layout.CARDS[0]))


def test_an_earlier_call_does_not_prevent_the_next_game_from_starting(
    env: NumberGame, fault: Callable[..., None]
) -> None:
    env.reset(seed=5)
    fault(dialog="call")
    assert env.reset(seed=6)[1]["seed"] == 6


def test_settle_time_is_in_timings_and_not_in_info(
    env: NumberGame,
) -> None:
    _, info = env.reset(seed=5)
    info = env.step(tap(layout.CARDS[info["answer"]]))[4]
    assert info["changed"]
    assert 0 < env.timings["effect"] <= env.timings["settle"]
    info = env.step(np.array([0.5, 0.5], dtype=np.float32))[4]
    assert not info["changed"]
    assert set(env.timings) == {"settle"}
    assert "settle" not in info


def test_the_transition_between_two_windows_does_not_count_as_leaving(
    env: NumberGame, fault: Callable[..., None]
) -> None:
    _, info = env.reset(seed=5)
    fault(focus="null")
    shell = env.device.shell
    back = threading.Timer(0.6, shell, ("setprop", "debug.agentrl.fault.focus", ""))
    back.start()
    _, reward, terminated, _, info = env.step(tap(layout.CARDS[info["answer"]]))
    back.join()
    assert (reward, terminated, info["right"]) == (1, False, 1)


def test_no_app_in_front_voids_the_episode_instead_of_giving_the_lowest_reward(
    env: NumberGame, fault: Callable[..., None]
) -> None:
    env.reset(seed=5)
    env.device.deadlines = replace(env.device.deadlines, settle_s=1.0)
    fault(focus="null")
    with pytest.raises(AppLeft, match="no window is in front"):
        env.step(tap(layout.CARDS[0]))


@pytest.mark.parametrize("seed", [5, 6])
def test_the_state_of_an_old_game_is_not_mistaken_for_the_new_one(
    env: NumberGame, fault: Callable[..., None], seed: int
) -> None:
    env.reset(seed=5)
    env.step(tap(layout.CARDS[0]))
    fault(publish_late_s="0.5")
    _, info = env.reset(seed=seed)
    assert (info["seed"], info["round"], info["right"] + info["wrong"]) == (seed, 1, 0)
    env.device.deadlines = replace(env.device.deadlines, launch_s=1.5)
    fault(publish_late_s="inf")
    with pytest.raises(EnvError, match=f"launched with seed {seed}, but did not publish the state"):
        env.reset(seed=seed)


def test_in_the_mode_select_the_button_is_pressed_for_the_player() -> None:
    env = NumberGame(rounds=2, memory=True, mode="select")
    try:
        _, info = env.reset(seed=3)
        phases, terminated = [info["phase"]], False
        while not terminated:
            _, _, terminated, _, info = env.step(info["answer"])
            phases.append(info["phase"])
        assert phases == ["lamp", "pick", "lamp", "pick", "final"]
        assert info["right"] == 2
    finally:
        env.close()


def test_gymnasium_makes_it_by_name_and_a_random_agent_plays_it() -> None:
    env = gymnasium.make("agentrl.envs:NumberGame-v0", rounds=1)
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(5):
        if env.step(env.action_space.sample())[2]:
            env.reset()
    env.close()


@pytest.mark.parametrize("wrong", [{"mode": "swipe"}, {"rounds": 0}])
def test_invalid_arguments_are_rejected_before_a_phone_is_opened(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        NumberGame(device="no such phone", **wrong)
