"""A folder with a web app in a phone's browser: the real adb and a real Chromium."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from agentrl import env_registry
from agentrl.actions.screen_actions import Done, Key, ScreenAction, Tap, Type
from agentrl.devices.adb import AdbServer
from agentrl.envs.web_app.env import APP, WebApp
from agentrl.errors import AppLeft, EnvError, InvalidArgument
from virtual_phone import spawn

pytestmark = [pytest.mark.adb, pytest.mark.timeout(240)]

PAGE = """<!doctype html><meta name=viewport content="width=device-width"><title>app</title>
<style>body {margin: 0} a, button, input {position: absolute; left: 20px; height: 40px}</style>
<button style="top:20px" onclick="app.score += 1">count</button>
<input style="top:80px">
<a style="top:140px" href="http://localhost:9/elsewhere">leave</a>
<button style="top:200px" onclick="while (true);">hang</button>
<button style="top:260px" onclick="location.href = 'second.html'">next</button>
<button style="top:320px" onclick="app.score = 'many'">break</button>
<script>
const app = {score: 0}
function newGame(seed) { document.body.style.background = `hsl(${seed} 80% 80%)`; app.seed = seed }
function state() {
    const text = document.querySelector('input').value
    return {...app, done: app.score === 2, instruction: 'Count to two.', text}
}
</script>"""
SECOND = "<!doctype html><title>second</title>second<script>state = () => ({score: 5})</script>"
LEAVES = """<!doctype html>
<script>state = () => ({}); setTimeout(() => location = 'http://localhost:9/', 500)</script>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("app")
    for name, page in (("index", PAGE), ("second", SECOND), ("leaves", LEAVES)):
        (folder / f"{name}.html").write_text(page)
    return folder


@pytest.fixture(scope="module")
def serial(adb_server: AdbServer) -> Iterator[str]:
    with spawn(1, [(APP, {"deadline_s": 2.0})], tempo="quick") as phones:
        yield phones.serials[0]


def made(folder: Path, serial: str, **kwargs: Any) -> WebApp:
    given = {"state": "state()", "begin": "newGame({seed})", **kwargs}
    env = env_registry.make("WebApp-v0", root=str(folder), device=serial, **given).unwrapped
    assert isinstance(env, WebApp)
    return env


@pytest.fixture(scope="module")
def env(folder: Path, serial: str) -> Iterator[WebApp]:
    env = made(folder, serial)
    yield env
    env.close()


def at(top: int) -> Tap:
    """Return a tap on an element of the page, given its style's `top` in CSS pixels."""
    return Tap(80 / 720, (48 + 2 * (top + 20)) / 1280)


def play(env: WebApp, *actions: ScreenAction) -> tuple[list[float], dict[str, Any], bool]:
    """Play from the start; return the rewards, the last info, and whether the episode is over."""
    env.reset(seed=7)
    rewards, over, info = list[float](), False, dict[str, Any]()
    for action in actions:
        _, reward, over, _, info = env.step(action)
        rewards.append(reward)
    return rewards, info, over


def test_the_score_is_the_reward_and_the_state_is_in_the_info(env: WebApp) -> None:
    _, info = env.reset(seed=7)
    assert (info["seed"], info["score"], info["instruction"]) == (7, 0, "Count to two.")
    rewards, info, over = play(env, at(20), at(80), Type("words"), at(20))
    assert (rewards, over) == ([1, 0, 0, 1], True)
    assert (info["text"], info["side_effects"]) == ("words", [])


def test_it_passes_gymnasiums_own_check(env: WebApp) -> None:
    check_env(env, skip_render_check=True)


def test_the_seed_decides_what_is_seen(env: WebApp) -> None:
    (first, _), (second, _), (again, _) = (env.reset(seed=seed) for seed in (7, 200, 7))
    assert not np.array_equal(first[100:], second[100:])
    np.testing.assert_array_equal(first[100:], again[100:])


def test_leaving_the_folder_or_the_browser_ends_the_episode(env: WebApp) -> None:
    rewards, info, over = play(env, at(20), at(140))
    assert (rewards, over, info["left"]) == ([1, -1], True, True)
    assert info["side_effects"] == ["chrome-error://chromewebdata/"]
    rewards, info, over = play(env, Key("BACK"))
    assert (rewards, over, info["guard"]["by"]) == ([-1], True, "agent")


def test_another_page_of_the_folder_belongs_to_the_app(env: WebApp) -> None:
    rewards, _, over = play(env, at(260))
    assert (rewards, over) == ([5], False)


def test_the_agent_may_declare_the_end(env: WebApp) -> None:
    rewards, info, over = play(env, Done("failure"))
    assert (rewards, over, info["declared"]) == ([0], True, "failure")


@pytest.mark.slow
def test_a_page_that_hangs_voids_the_episode_and_the_next_one_begins(env: WebApp) -> None:
    with pytest.raises(AppLeft, match="not-responding"):
        play(env, at(200))
    assert play(env, at(20))[0] == [1]


def test_an_invalid_score_voids_the_episode(env: WebApp) -> None:
    with pytest.raises(EnvError, match="score is many, not a finite number"):
        play(env, at(320))


@pytest.mark.parametrize(
    ("kwargs", "failure"),
    [
        ({"state": "nothing()"}, "ReferenceError: nothing is not defined"),
        ({"state": "[1]"}, r"is \[1\] in the page, not an object"),
        ({"state": "({guard: {}})"}, "reserved keys guard; rename them"),
        ({"begin": "throw new Error('no game')"}, "no game"),
        ({"start": "leaves.html", "begin": "new Promise(done => setTimeout(done, 1500))"}, "page"),
    ],
)
def test_a_page_that_cannot_begin_voids_the_episode(
    folder: Path, serial: str, kwargs: dict[str, str], failure: str
) -> None:
    env = made(folder, serial, **kwargs)
    try:
        with pytest.raises(EnvError, match=failure):
            env.reset(seed=1)
    finally:
        env.close()


@pytest.mark.parametrize(
    ("kwargs", "failure"),
    [
        ({"root": "/nowhere"}, r"root='/nowhere': must be a folder with the page index.html"),
        ({"start": "other.html?seed={seed}"}, "must be a folder with the page other.html"),
        ({"actions": ["tap", "fly"]}, r"actions=\['tap', 'fly'\]: must be a list of tap"),
        ({"exit_reward": float("nan")}, "exit_reward=nan: must be a finite number"),
    ],
)
def test_wrong_arguments_are_refused_before_a_phone_is_opened(
    folder: Path, kwargs: dict[str, Any], failure: str
) -> None:
    with pytest.raises(InvalidArgument, match=failure):
        WebApp(**{"root": str(folder), "device": "127.0.0.1:1", **kwargs})


def test_other_action_types_are_refused(folder: Path, serial: str) -> None:
    env = made(folder, serial, actions=["tap"])
    try:
        assert isinstance(env.action_space, gymnasium.Space)
        with pytest.raises(ValueError, match="is not an action of ScreenActionSpace"):
            env.step(Type("no"))
    finally:
        env.close()
