"""The tree game played over adb on a virtual phone."""

import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from agentrl.devices import Device, open_device
from agentrl.devices.vision import Template
from agentrl.envs.android.phone_game.boxes import to_screen
from agentrl.envs.wechat.simulated_wechat import CIRCLE, DOTS
from agentrl.envs.wechat.tree_game.app import CHATS_ACTIVITY, GAME_ACTIVITY, PACKAGE, TreeGameApp
from agentrl.envs.wechat.tree_game.env import TreeGame, TreeGameTranslator
from agentrl.envs.wechat.tree_game.players import TreeGameExpert
from agentrl.envs.wechat.tree_game.real_wechat_navigation import open_mini_program
from agentrl.errors import DeviceTimeout
from tests.envs.wechat.tree_game.tree_app import launched

CHOP, REPLACE, DECOMPOSE = range(3)


@pytest.fixture(scope="module")
def env() -> Iterator[TreeGame]:
    env = TreeGame(chops=2, chop_ms=100, render_mode="rgb_array")
    yield env
    env.close()


def play(env: TreeGame, seed: int) -> tuple[list[Any], list[float], dict[str, Any]]:
    """Play a game with the expert; return screens, rewards and the last info."""
    rng, words, player = np.random.default_rng(0), TreeGameTranslator(), TreeGameExpert()
    screen, info = env.reset(seed=seed)
    screens, rewards, done = [screen], [], False
    while not done:
        action = words.to_action(player.reply(info, rng))
        screen, reward, done, _, info = env.step(action)
        screens.append(screen)
        rewards.append(reward)
    return screens, rewards, info


def tap(box: Any) -> Any:
    x, y = box.center
    return np.array([x, to_screen(y)], np.float32)


def test_the_environment_keeps_gymnasiums_contract(env: TreeGame) -> None:
    check_env(env, skip_render_check=True)


def test_the_expert_waits_for_each_chop_and_ends_at_the_best_power(env: TreeGame) -> None:
    screens, rewards, info = play(env, 5)
    assert len(rewards) == 4, "a chop and a choice each"
    assert rewards[0] == rewards[2] == 0
    assert min(rewards[1], rewards[3]) > 0
    assert info["power"] == info["best_power"]
    assert info["metrics"] == {"regret": 0.0, "power": info["power"], "accuracy": 1.0}
    again, same, _ = play(env, 5)
    assert same == rewards
    for one, other in zip(screens, again, strict=True):
        assert np.array_equal(one, other)


def test_the_settled_popup_is_what_the_game_draws(env: TreeGame) -> None:
    env.reset(seed=5)
    screen, *_, info = env.step(np.array(env.facts["touch_targets"]["chop"], np.float32))
    assert (info["phase"], info["busy"]) == ("drop", False)
    app = launched(5, chops=2, chop_ms=100)
    app.touch(0.5, 0.93)
    app.tick(100)
    drawn = app.render(720, 1231)
    assert np.array_equal(screen[-1231:], drawn)


def test_a_worse_choice_costs_as_much_as_the_better_one_earns(env: TreeGame) -> None:
    def choose(name: str) -> float:
        env.reset(seed=6)
        env.step(np.array(env.facts["touch_targets"]["chop"], np.float32))
        return env.step(np.array(env.facts["touch_targets"][name], np.float32))[1]

    assert choose("replace") == -choose("decompose") != 0


def test_the_capsules_circle_counts_as_leaving_by_the_agent(env: TreeGame) -> None:
    shown, _ = env.reset(seed=5)
    screen, reward, terminated, _, info = env.step(tap(CIRCLE))
    assert (reward, terminated, info["left"]) == (-2.0, True, True)
    assert info["guard"]["by"] == "agent"
    assert "circle" in info["guard"]["evidence"]
    assert np.array_equal(screen, shown), "what lies behind is not shown"
    window = env.device.shell("dumpsys", "window", "displays")
    assert f"{PACKAGE}/{PACKAGE}{CHATS_ACTIVITY}" in window, "WeChat is in front, without the game"
    assert env.reset(seed=5)[1]["shows"] == "game"
    window = env.device.shell("dumpsys", "window", "displays")
    assert f"{PACKAGE}/{PACKAGE}{GAME_ACTIVITY}" in window


def test_opening_the_menu_only_costs_a_turn(env: TreeGame) -> None:
    env.reset(seed=5)
    _, reward, terminated, _, info = env.step(tap(DOTS))
    assert (reward, terminated, info["shows"]) == (0.0, False, "menu")
    _, _, terminated, _, info = env.step(np.array([0.5, 0.5], np.float32))
    assert (terminated, info["shows"]) == (False, "game")


def test_popups_with_the_same_worn_piece_share_a_state_key() -> None:
    env = TreeGame(mode="calls", chop_ms=0)
    try:
        assert env.action_space == gymnasium.spaces.Discrete(3)

        def keys(first: int) -> tuple[str, str, Any]:
            env.reset(seed=0)
            env.step(CHOP)
            slot = env.facts["slot"]
            board = env.step(first)[4]["state_key"]
            info = env.step(CHOP)[4]
            return board, info["state_key"], info["slot"] == slot

        (kept, popup, same_slot), (worn, other, _) = keys(DECOMPOSE), keys(REPLACE)
        assert kept != worn, "the main screen shows another power"
        assert (popup == other) == (not same_slot)
        assert not env.step(CHOP)[4]["changed"], "there is no axe on the popup"
    finally:
        env.close()


@pytest.fixture(scope="module")
def phone() -> Iterator[Device]:
    app = f"{TreeGameApp.__module__}:{TreeGameApp.__name__}"
    device = open_device("virtual", apps=[app], size=(540, 1170))
    yield device
    device.close()


def test_the_entry_of_a_mini_program_is_found_by_sight_and_opens_it(phone: Device) -> None:
    app = TreeGameApp()
    chats = np.pad(app.render(720, 1231), ((49, 0), (0, 0), (0, 0)))
    entry = Template.crop(chats, (0.05, 0.213, 0.17, 0.277))
    seen = open_mini_program(phone, entry, deadline_s=20)
    assert seen.shape == (1170, 540, 3), "found on a screen of another size and shape"
    end = time.monotonic() + 20
    while phone.app_state(PACKAGE)["shows"] != "game":
        assert time.monotonic() < end
    noise = np.random.default_rng(0).integers(0, 255, (90, 90, 3), np.uint8)
    nothing = Template.crop(noise, (0, 0, 1, 1))
    with pytest.raises(DeviceTimeout, match="does not show the entry"):
        open_mini_program(phone, nothing, deadline_s=0.5)
