import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.devices import open_device
from agentrl.env_registry import apps, make, make_translator
from agentrl.envs.android.phone_game import env as frame
from tests.envs.android.minigames.short_games import SHORT, play_badly, player

IDS = list(SHORT)
SEEDS = st.integers(min_value=0, max_value=2**31)
REAL_TIME = ["Timberman-v0", "Snake-v0", "FlappyBird-v0", "SpaceFighter-v0"]

MakeEnv = Callable[..., Any]


@pytest.fixture(scope="module")
def make_env() -> Iterator[MakeEnv]:
    """Make environments that all play on the same quick phone."""
    games = [app for app in apps() if ".minigames." in app]
    phone = open_device("virtual", apps=games, tempo="quick")
    close = phone.close

    def make_env(id: str, **settings: Any) -> Any:
        return make(id, **{**SHORT[id], **settings}).unwrapped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame, "open_device", lambda *_, **__: phone)
        patch.setattr(phone, "close", lambda: None)
        yield make_env
    close()


def play(env: Any, id: str, seed: int, mode: str) -> tuple[list[Any], list[float], Any]:
    """Play a game with the expert; return its screens, its rewards and the last info."""
    translator = make_translator(id, {**SHORT[id], "mode": mode})
    who = player(id, "expert", mode=mode)
    rng = np.random.default_rng(seed)
    screen, info = env.reset(seed=seed)
    screens, rewards, done = [screen], [], False
    while not done:
        assert translator.to_observation(screen, info).images == (screen,)
        action = translator.to_action(who.reply(info, rng))
        screen, reward, done, _, info = env.step(action)
        assert info["changed"], info
        screens.append(screen)
        rewards.append(reward)
        assert len(rewards) < 60
    return screens, rewards, info


@pytest.mark.parametrize("id", IDS)
def test_the_expert_plays_a_whole_game_on_a_phone_and_it_repeats(
    id: str, make_env: MakeEnv
) -> None:
    touched, rewards, info = play(make_env(id), id, 3, "touch")
    assert info["metrics"]["success"] == 1.0
    assert sum(rewards) == pytest.approx(info["worth"])
    assert all(-1.0 <= reward <= 1.0 for reward in rewards)
    called, again, same = play(make_env(id, mode="calls"), id, 3, "calls")
    assert (again, same["state_key"]) == (rewards, info["state_key"])
    for one, other in zip(touched, called, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("id", IDS)
def test_the_environment_keeps_gymnasiums_contract(id: str, make_env: MakeEnv) -> None:
    check_env(make_env(id), skip_render_check=True)


@pytest.mark.parametrize("id", REAL_TIME)
def test_a_paused_game_waits_for_the_policy_and_a_running_one_does_not(
    id: str, make_env: MakeEnv
) -> None:
    env = make_env(id, mode="calls")
    env.reset(seed=3)
    env.step(0)
    time.sleep(0.6)  # longer than the longest tick
    assert env.read_facts(env._session.look()) == env.facts

    env = make_env(id, mode="calls", clock="running")
    env.reset(seed=3)
    known = env.step(0)[4]
    end = time.monotonic() + 20
    while env.read_facts(env._session.look()) == {name: known[name] for name in env.facts}:
        assert time.monotonic() < end, "no time passes"


def test_a_quick_player_wins_against_the_clock(make_env: MakeEnv) -> None:
    env, who = (
        make_env("Timberman-v0", mode="calls", clock="running"),
        player("Timberman-v0", "expert"),
    )
    who.mode = "calls"
    translator, rng = make_translator("Timberman-v0", {"mode": "calls"}), np.random.default_rng(0)
    _, info = env.reset(seed=3)
    while not info["done"]:
        info = env.step(translator.to_action(who.reply(info, rng)))[4]
    assert info["success"], info


def test_a_mistake_costs_its_reward_and_ends_the_game(make_env: MakeEnv) -> None:
    env = make_env("Timberman-v0", mode="calls", goal=30)
    _, info = env.reset(seed=3)
    done = False
    while not done:
        before, above = info["pieces"][:2]
        fatal = next((side for side in ("left", "right") if side in (before, above)), "left")
        _, reward, done, _, info = env.step(("left", "right").index(fatal))
    assert (reward, info["lost"]) == (-1.0, True)


@pytest.mark.parametrize("id", IDS)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, dice=SEEDS)
def test_leaving_costs_as_much_as_the_worst_possible_rest(
    id: str, make_env: MakeEnv, seed: int, dice: int
) -> None:
    env = make_env(id)
    states = play_badly(id, seed, dice, length="40")
    worth = [state["worth"] for state in states]
    for turn, state in enumerate(states[:-1]):
        worst = min(worth[turn:]) - worth[turn]
        assert env.exit_reward(state) <= min(-1.0, worst) + 1e-9, state


@pytest.mark.parametrize(
    ("id", "level", "lowest"),
    [
        ("Flip-v0", {"pairs": 3}, -1.8),
        ("Flip-v0", {"pairs": 6}, -3.6),
        ("Flip-v0", {"pairs": 8}, -4.8),
        ("SpaceFighter-v0", {}, -3.0),
        ("Snake-v0", {}, -1.0),
    ],
)
def test_leaving_at_once_costs_as_much_as_the_worst_game(
    id: str, level: dict[str, int], lowest: float, make_env: MakeEnv
) -> None:
    env = make_env(id, mode="calls", **level)
    env.reset(seed=3)
    deadlines = env.device.deadlines
    env.device.deadlines = replace(deadlines, settle_s=0.5)
    env.device.shell("setprop", "debug.agentrl.fault.input", "NotificationShade")
    try:
        _, reward, terminated, _, info = env.step(0)
    finally:
        for name in ("input", "focus"):
            env.device.shell("setprop", f"debug.agentrl.fault.{name}", "")
        env.device.deadlines = deadlines
    assert (reward, terminated, info["left"]) == (pytest.approx(lowest), True, True)


def test_leaving_costs_less_near_the_end_but_never_less_than_a_lost_game(
    make_env: MakeEnv,
) -> None:
    env = make_env("Flip-v0")
    costs = [env.exit_reward({"turned": turned, "limit": 18}) for turned in range(18)]
    assert costs[:5] == pytest.approx([-1.8, -1.8, -1.6, -1.6, -1.4])
    assert costs == sorted(costs)
    assert costs[-1] == -1.0
    env = make_env("SpaceFighter-v0")
    assert [env.exit_reward({"lives": lives}) for lives in (3, 2, 1)] == [-3.0, -2.0, -1.0]


def test_gymnasium_makes_it_by_name_and_a_random_agent_plays_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame, "open_device", open_device)  # a phone of its own
    env = gymnasium.make("agentrl.envs:FlappyBird-v0", goal=1)
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(4):
        if env.step(env.action_space.sample())[2]:
            env.reset()
    env.close()
