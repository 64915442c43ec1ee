"""Levels of the number game played over adb on a virtual phone."""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from agentrl.config import EnvConfig
from agentrl.devices import Deadlines, open_device
from agentrl.devices.adb import AdbServer
from agentrl.envs.android.number_game.app import NumberGameApp
from agentrl.envs.android.number_game.env import NumberGame
from agentrl.envs.android.number_game.players import NumberGameExpert, NumberGameRandom
from agentrl.errors import ConfigError
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env

APP = f"{NumberGameApp.__module__}:{NumberGameApp.__name__}"
EVERYTHING = {
    "memory": True,
    "digits": 2,
    "cards": 4,
    "moved": True,
    "distractor": True,
    "timed": 2,
}


@pytest.fixture(scope="module")
def phone(adb_server: AdbServer) -> Iterator[str]:
    """Return the serial of a phone with the game installed."""
    deadlines = Deadlines(start_s=120.0)
    device = open_device("virtual", apps=[APP], deadlines=deadlines, tempo="quick")
    yield device.serial
    device.close()


@pytest.fixture
def make(phone: str) -> Iterator[Callable[..., NumberGame]]:
    """Make environments on the phone, and close them when the test is over."""
    made: list[NumberGame] = []

    def make_one(**settings: Any) -> NumberGame:
        made.append(NumberGame(device=phone, **settings))
        return made[-1]

    yield make_one
    for one in made:
        one.close()


def play(
    env: NumberGame, player: NumberGameExpert, seed: int, **settings: Any
) -> list[tuple[Any, ...]]:
    """Return screen, reward and state of each step of one game, at most 60."""
    translator = open_translator(resolve_env(EnvConfig(id="NumberGame-v0", kwargs=settings)))
    rng = np.random.default_rng(seed)
    screen, info = env.reset(seed=seed)
    seen: list[tuple[Any, ...]] = [(screen, 0.0, info)]
    for _ in range(60):
        assert translator.to_observation(screen, info).images[0] is screen
        action = translator.to_action(player.reply(info, rng))
        screen, reward, terminated, truncated, info = env.step(action)
        assert not truncated
        seen.append((screen, reward, info))
        if terminated:
            break
    return seen


@pytest.mark.quick("digits+cards-tap", "memory+digits+cards+moved+distractor+timed-select")
@pytest.mark.parametrize("mode", ["tap", "select"])
@pytest.mark.parametrize(
    "level",
    [
        {"digits": 2, "cards": 4},
        {"moved": True, "distractor": True},
        {"timed": 3},
        {"memory": True, "moved": True},
        EVERYTHING,
    ],
    ids=lambda level: "+".join(level),
)
def test_the_expert_wins_and_the_game_repeats(
    make: Callable[..., NumberGame], level: dict[str, Any], mode: str
) -> None:
    env = make(rounds=2, mode=mode, **level)
    first = play(env, NumberGameExpert(mode), 5, mode=mode, **level)
    again = play(env, NumberGameExpert(mode), 5, mode=mode, **level)
    assert sum(reward for _, reward, _ in first) == 2
    assert (first[-1][2]["score"], first[-1][2]["done"]) == (120, True)
    for (one, _, truth), (other, _, repeated) in zip(first, again, strict=True):
        assert np.array_equal(one, other)
        assert truth == repeated
    stray = play(env, NumberGameRandom(mode=mode), 6, mode=mode, **level)
    last = stray[-1][2]
    assert sum(reward for _, reward, _ in stray) == last["right"] - last["wrong"]


@pytest.mark.parametrize("mode", ["tap", "select"])
def test_the_hardest_level_keeps_gymnasiums_contract(
    make: Callable[..., NumberGame], mode: str
) -> None:
    check_env(make(rounds=2, mode=mode, **EVERYTHING), skip_render_check=True)


def test_time_is_lost_by_touches_and_a_wasted_one_changes_nothing_else(
    make: Callable[..., NumberGame],
) -> None:
    env, nowhere = make(rounds=1, timed=2), np.array([0.5, 0.1], dtype=np.float32)
    _, info = env.reset(seed=5)
    keys = [info["state_key"]]
    _, reward, terminated, _, info = env.step(nowhere)
    keys.append(info["state_key"])
    assert (reward, terminated, info["changed"], info["score"]) == (0, False, False, 100)
    _, reward, terminated, _, info = env.step(nowhere)
    keys.append(info["state_key"])
    assert (reward, terminated, info["changed"], info["score"]) == (-1, True, True, 90)
    assert keys == ["5/1/pick/2", "5/1/pick/1", "5/1/final"]
    assert (info["picked"], info["wrong"], info["metrics"]["accuracy"]) == (None, 1, 0)


def test_four_cards_can_be_selected(make: Callable[..., NumberGame]) -> None:
    env = make(rounds=1, mode="select", cards=4)
    assert env.action_space == gymnasium.spaces.Discrete(4)
    env.reset(seed=1)
    assert env.step(3)[4]["picked"] == 3


def test_launch_extras_of_the_default_level_are_unchanged(
    make: Callable[..., NumberGame],
) -> None:
    """The phone's clock, visible on every screen, is seeded by the launch extras."""
    extras = {"seed": "5", "rounds": "10", "memory": "false"}
    env = make()
    plain, _ = env.reset(seed=5)
    env.device.launch("org.agentrl.numbergame", ".Main", extras)
    assert np.array_equal(plain, env._session.look().frame)


@pytest.mark.parametrize(
    "wrong", [{"cards": 5}, {"digits": 0}, {"moved": "yes"}, {"distractor": 2}, {"timed": -3}]
)
def test_an_invalid_level_is_rejected_before_a_phone_is_opened(
    wrong: dict[str, Any],
) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigError, match=f"^{name}={value!r}: must be"):
        NumberGame(device="no such phone", **wrong)
    with pytest.raises(ConfigError, match=rf"^env\.kwargs\.{name}={value!r}: must be"):
        open_translator(resolve_env(EnvConfig(id="NumberGame-v0", kwargs=wrong)))
