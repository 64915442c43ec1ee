import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from agentrl.devices import open_device
from agentrl.env import apps, make, make_translator
from agentrl.envs.frame import env as frame
from tests.envs.minigames import SHORT, player

IDS = list(SHORT)
REAL_TIME = ["Timberman-v0", "Snake-v0", "FlappyBird-v0", "SpaceFighter-v0"]

MakeEnv = Callable[..., Any]


@pytest.fixture(scope="module")
def make_env() -> Iterator[MakeEnv]:
    """Environments that all play on one quick phone."""
    games = [app for app in apps() if ".minigames." in app]
    phone = open_device("virtual", apps=games, effect_delay_ms=(0, 0))
    close = phone.close

    def make_env(id: str, **settings: Any) -> Any:
        return make(id, **{**SHORT[id], **settings}).unwrapped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame, "open_device", lambda *_, **__: phone)
        patch.setattr(phone, "close", lambda: None)
        yield make_env
    close()


def play(env: Any, id: str, seed: int, mode: str) -> tuple[list[Any], list[float], Any]:
    """The screens and rewards of a game of the expert, and its last info."""
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
    assert info["metrics"]["won"] == 1.0
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
    assert env.facts(env._stage.look()) == env.known

    env = make_env(id, mode="calls", clock="running")
    env.reset(seed=3)
    known = env.step(0)[4]
    end = time.monotonic() + 20
    while env.facts(env._stage.look()) == {name: known[name] for name in env.known}:
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
    assert info["won"], info


def test_a_mistake_costs_its_reward_and_ends_the_game(make_env: MakeEnv) -> None:
    env = make_env("Timberman-v0", mode="calls", goal=30)
    _, info = env.reset(seed=3)
    done = False
    while not done:
        before, above = info["pieces"][:2]
        fatal = next((side for side in ("left", "right") if side in (before, above)), "left")
        _, reward, done, _, info = env.step(("left", "right").index(fatal))
    assert (reward, info["lost"]) == (-1.0, True)


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
