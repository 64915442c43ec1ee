"""MiniWoB++ on a phone, compared with its pages in another Chromium."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import miniwob
import numpy as np
import pytest
from playwright.sync_api import Page, sync_playwright

from agentrl import env_registry
from agentrl.actions.screen_action_space import ScreenActionSpace
from agentrl.actions.screen_actions import Drag, Tap, Type
from agentrl.actions.space_formats import action_format_for
from agentrl.devices.adb import AdbServer
from agentrl.envs.web_app.env import APP
from agentrl.envs.web_app.folder_server import FolderServer
from agentrl.envs.web_app.miniwob import EASY, USUAL, MiniWoB, task_names
from agentrl.envs.web_app.miniwob_expert.expert import PLAYERS, MiniWoBExpert
from agentrl.envs.web_app.miniwob_expert.message_tasks import people
from agentrl.errors import ConfigError, InvalidArgument
from agentrl.training.evaluation.suite import tasks_of
from tests.virtual_phone.third_party.clients import NotInstalled, python_packages
from virtual_phone import spawn
from virtual_phone.browser import chromium

pytestmark = [pytest.mark.adb, pytest.mark.timeout(300)]

PAGES = Path(miniwob.__file__).parent / "html"
MIDDLES = """() => [...document.querySelectorAll('#area *, .ui-dialog *')]
    .filter(one => !one.children.length)
    .map(one => one.getBoundingClientRect()).filter(box => box.width && box.height && box.y < 208)
    .map(box => [box.x + box.width / 2, box.y + Math.min(box.height, 8) / 2])"""
"""Where the elements of a page can be touched, in CSS pixels."""


@pytest.fixture(scope="module")
def serial(adb_server: AdbServer) -> Iterator[str]:
    with spawn(1, [(APP, {})], tempo="quick") as phones:
        yield phones.serials[0]


@pytest.fixture(scope="module")
def reference() -> Iterator[Page]:
    """A page of another Chromium with a mouse, where MiniWoB++ is as its authors serve it."""
    with (
        sync_playwright() as playwright,
        closing(FolderServer(PAGES)) as server,
        playwright.chromium.launch(
            executable_path=chromium.executable(), args=["--no-sandbox"]
        ) as browser,
    ):
        address = f"http://127.0.0.1:{server.server_port}/miniwob/"
        yield browser.new_page(viewport={"width": 332, "height": 214}, base_url=address)


def made(serial: str, **kwargs: Any) -> MiniWoB:
    env = env_registry.make("MiniWoB-v0", device=serial, **kwargs).unwrapped
    assert isinstance(env, MiniWoB)
    return env


def at(x: float, y: float) -> Tap:
    """Return a tap on a position of the page, in CSS pixels."""
    return Tap(x / 160, (48 + y * 4.5) / 1280)


def reference_state(page: Page) -> tuple[str, float, bool]:
    """Return the instruction, the reward without decay, and whether the episode is over."""
    instruction, reward, over = page.evaluate(
        "[core.getUtterance(), WOB_RAW_REWARD_GLOBAL, WOB_DONE_GLOBAL]"
    )
    said = instruction if isinstance(instruction, str) else instruction["utterance"]
    return said, reward, over


def compare(env: MiniWoB, reference: Page, task: str, seed: int) -> float:
    """Touch random elements of a task on the phone and in the reference page.

    Returns:
        The reward.
    """
    rng = np.random.default_rng(seed)
    reference.goto(f"{task}.html", wait_until="load")
    reference.evaluate(
        f"core.EPISODE_MAX_TIME = 1e9; Math.seedrandom('{seed}'); core.startEpisodeReal()"
    )
    _, info = env.reset(seed=seed)
    total, over = 0.0, False
    for _ in range(4):
        said, reward, ends = reference_state(reference)
        assert (info["instruction"], total, over) == (said, reward, ends), (task, seed)
        if over:
            break
        places = reference.evaluate(MIDDLES)
        x, y = places[int(rng.integers(len(places)))]
        reference.mouse.click(x, y)
        _, change, over, _, info = env.step(at(x, y))
        total += change
    return total


def test_the_same_touches_have_the_same_rewards_as_clicks_in_another_browser(
    serial: str, reference: Page
) -> None:
    rewards = set()
    for task in ("click-test-2", "click-dialog"):
        with closing(made(serial, tasks=[task])) as env:
            rewards |= {compare(env, reference, task, seed) for seed in (0, 1)}
    assert {-1.0, 1.0} <= rewards


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_tasks_have_the_same_episodes_as_in_another_browser(
    serial: str, reference: Page
) -> None:
    tasks = (*EASY, "choose-list", "click-checkboxes", "login-user", "tic-tac-toe", "click-shades")
    rewards = [0.0]
    for task in tasks:
        with closing(made(serial, tasks=[task])) as env:
            rewards += [compare(env, reference, task, seed) for seed in range(4)]
    assert max(rewards) > 0 > min(rewards)


@pytest.fixture
def browsergym_tasks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """BrowserGym's classes of the tasks, by name."""
    listed = Path(__file__).parents[2] / "rollout" / "environments" / "foreign_envs.txt"
    try:
        monkeypatch.syspath_prepend(str(python_packages(listed)))
    except NotInstalled as error:
        pytest.skip(str(error))
    tasks = pytest.importorskip("browsergym.miniwob.all")
    kinds = (kind for kind in vars(tasks).values() if hasattr(kind, "subdomain"))
    return {kind.subdomain: kind for kind in kinds}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
def test_twenty_tasks_have_the_same_rewards_as_in_browsergym(
    serial: str, reference: Page, browsergym_tasks: dict[str, Any]
) -> None:
    """BrowserGym draws the page's seed from the episode's, and seeds with a number."""
    reference.goto("click-test.html")
    base = reference.url.removesuffix("click-test.html")
    rewards = []
    for task in (*EASY, "choose-list", "click-checkboxes", "tic-tac-toe", "click-shades"):
        for seed in (0, 1):
            judge = browsergym_tasks[task](seed=seed, base_url=base)
            number = np.random.RandomState(seed).randint(0, 1000000)
            with closing(made(serial, tasks=[task])) as env:
                assert env._begin is not None
                env._begin = env._begin.replace("'{seed}'", str(number))
                goal, _ = judge.setup(reference)
                _, info = env.reset(seed=seed)
                assert info["instruction"] == goal, (task, seed)
                rewards.append(judged(env, reference, judge, seed))
    assert {0.0, 1.0} == set(rewards)


def judged(env: MiniWoB, page: Page, judge: Any, seed: int) -> float:
    """Touch random elements on the phone and in BrowserGym's page; return its reward.

    A line of text has some fractions of a pixel more on the phone, so each has its own positions.
    """
    rng = np.random.default_rng(seed)
    total = reward = 0.0
    for _ in range(4):
        page.wait_for_function("!window.jQuery || !jQuery(':animated').length")
        theirs, ours = page.evaluate(MIDDLES), env.evaluate(f"({MIDDLES})()")
        assert len(theirs) == len(ours)
        chosen = int(rng.integers(len(theirs)))
        page.mouse.click(*theirs[chosen])
        _, change, over, _, _ = env.step(at(*ours[chosen]))
        total += change
        reward, done, *_ = judge.validate(page, [])
        assert (float(total > 0), over) == (reward, done), (env.task_of(seed), seed)
        if over:
            break
    return reward


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_expert_solves_the_usual_tasks(serial: str) -> None:
    player, form = MiniWoBExpert(), action_format_for(ScreenActionSpace())
    rng = np.random.default_rng(0)
    failed = []
    for task in USUAL:
        with closing(made(serial, tasks=[task])) as env:
            (_, info), over, turns = env.reset(seed=1), False, 0
            while not over and turns < 40:
                *_, over, _, info = env.step(form.parse(player.reply(info, rng)))
                turns += 1
            if not info["metrics"]["success"]:
                failed.append(task)
    # The opponent's luck, and positions in hundredths of the screen.
    assert set(failed) <= {"tic-tac-toe", "use-slider"}


def test_the_expert_finds_the_people_in_instructions() -> None:
    source = (PAGES / "common" / "special" / "email-inbox-nl" / "templates.js").read_text()
    templates = json.loads(source[source.index("{") : source.rindex("}") + 1])
    texts = [one for kind in templates.values() for part in kind.values() for one in part]
    missed = []
    for text in texts:
        said = text.replace("NAME", "Cora", 1).replace("DEST", "Bo", 1).replace("MSG", "A b")
        sender, other = people(said)
        if sender != "Cora" or ("DEST" in text and other != "Bo"):
            missed.append(text)
    # Some instructions name the two people the wrong way round, or have a typing error.
    assert len(missed) < 0.02 * len(texts), missed


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_task_begins_and_shows_the_same_screen_again(serial: str) -> None:
    with closing(made(serial, tasks="all")) as env:
        by_task = {}
        seed = 0
        while len(by_task) < 125:
            by_task.setdefault(env.task_of(seed), seed)
            seed += 1
        changed = []
        for task, seed in by_task.items():
            (first, info), (again, _) = env.reset(seed=seed), env.reset(seed=seed)
            assert info["task"] == task
            assert info["instruction"], task
            if not np.array_equal(first[100:], again[100:]):
                changed.append(task)
    assert set(changed) <= {"stock-market"}  # whose prices change with time


def test_a_seed_chooses_among_the_tasks(serial: str) -> None:
    with closing(made(serial, tasks=["click-test", "click-button"])) as env:
        found = [env.reset(seed=seed)[1]["task"] for seed in range(6)]
        assert set(found) == {"click-test", "click-button"}
        assert found == [env.reset(seed=seed)[1]["task"] for seed in range(6)]


def test_clocks(serial: str) -> None:
    short = "core.EPISODE_MAX_TIME = 3000;"
    for clock, waits_s, ends in (("running", 3.2, True), ("paused", 3.2, False)):
        with closing(made(serial, tasks=["click-test-2"], clock=clock, decay=True)) as env:
            env._begin = f"{short} {env._begin}"
            env.reset(seed=1)
            time.sleep(waits_s)
            _, reward, over, _, info = env.step(at(150, 205))  # nothing is there
            assert (reward, over) == ((-1, True) if ends else (0, False)), clock
            assert info["reason"] == ("timed out" if ends else None)
            if not ends:
                middle = env.evaluate(
                    "(() => {const box = document.querySelector('#subbtn').getBoundingClientRect();"
                    "return [box.x + box.width / 2, box.y + box.height / 2]})()"
                )
                _, reward, over, _, _ = env.step(at(*middle))
                assert over
                assert 0 < reward < 1


def test_text_and_drags_reach_the_page(serial: str) -> None:
    with closing(made(serial, tasks=["enter-text"])) as env:
        _, info = env.reset(seed=3)
        word = info["instruction"].split('"')[1]
        env.step(at(40, 80))
        env.step(Type(word))
        _, reward, over, _, _ = env.step(at(50, 116))
        assert (reward, over) == (1, True)
    with closing(made(serial, tasks=["use-slider"])) as env:
        _, info = env.reset(seed=1)
        handle = next(one for one in info["elements"] if "ui-slider-handle" in one["classes"])
        before = next(one["text"] for one in info["elements"] if one["id"] == "val")
        way = Drag(handle["x"], handle["y"], handle["x"], handle["y"] - 0.2)
        *_, info = env.step(way)
        assert next(one["text"] for one in info["elements"] if one["id"] == "val") != before


@pytest.mark.parametrize(
    ("kwargs", "failure"),
    [
        ({"tasks": ["click-buton"]}, "click-button"),
        ({"tasks": []}, "at least one task"),
        ({"clock": "slow"}, "clock='slow': must be one of none, paused, running"),
        ({"decay": True}, "decay=True: must be false without a clock"),
    ],
)
def test_wrong_arguments_are_refused_before_a_phone_is_opened(
    kwargs: dict[str, Any], failure: str
) -> None:
    with pytest.raises(InvalidArgument, match=failure):
        MiniWoB(device="127.0.0.1:1", **kwargs)


@pytest.mark.parametrize("name", ["easy", "usual", "all"])
def test_a_suite_has_a_row_for_each_task(name: str) -> None:
    expected = {"easy": EASY, "usual": USUAL, "all": task_names()}[name]
    tasks = tasks_of(f"miniwob_{name}")
    assert [task.name for task in tasks] == [*expected]
    assert [task.kwargs for task in tasks] == [{"tasks": [task]} for task in expected]


def test_a_file_that_hides_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "miniwob.py"
    own.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "miniwob", raising=False)
    with pytest.raises(ConfigError, match=f"Python finds {own} first"):
        task_names()


def test_the_tasks_are_those_that_the_package_lists() -> None:
    from miniwob.envs import miniwob_envs

    listed = {
        kind.subdomain for kind in vars(miniwob_envs).values() if getattr(kind, "subdomain", None)
    }
    assert set(task_names()) == listed
    assert set(EASY) < set(USUAL) == set(PLAYERS)
    assert set(USUAL) < listed
