"""Playing in the browser."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agentrl import config as configuration
from agentrl import replay
from agentrl.config import Config, EnvConfig, RolloutConfig, RunConfig
from agentrl.errors import ConfigError
from agentrl.viewer.playing import play_in_browser
from agentrl.viewer.stage import Stage
from tests.viewer.conftest import Open

LAKE = EnvConfig(
    id="FrozenLake-v1",
    kwargs={"is_slippery": False},
    translator={"names": ["left", "down", "right", "up"], "instructions": "Go to the goal."},
)


class Game:
    """An episode that is played in a thread, while a page shows it."""

    def __init__(self, config: Config, **options: object) -> None:
        self.address, self.result, self.error = "", None, None
        self._up, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._play, args=(config, options), daemon=True)
        self._thread.start()
        assert self._up.wait(60)

    def _play(self, config: Config, options: dict[str, object]) -> None:
        def ready(url: str) -> None:
            self.address = url
            self._up.set()

        try:
            self.result = play_in_browser(config, port=0, ready=ready, stays=self._over, **options)
        except Exception as error:
            self.error = error
        self._up.set()

    def end(self) -> None:
        self._over.set()
        self._thread.join(30)


@contextmanager
def played(folder: Path, env: EnvConfig, **options: object) -> Iterator[Game]:
    rollout = RolloutConfig(engine="hf", launcher="local")
    game = Game(Config(env=env, rollout=rollout, run=RunConfig(dir=str(folder))), **options)
    yield game
    game.end()


def turns(page: Page, count: int) -> None:
    expect(page.locator(".turns li")).to_have_count(count)


def test_a_game_is_played_by_words_and_arrows_and_recorded(open_page: Open, tmp_path) -> None:
    with played(tmp_path, LAKE) as game:
        page = open_page(game.address, lost=True)
        expect(page.get_by_text("Go to the goal.")).to_be_visible()
        box = page.get_by_label("answer")
        box.fill("fly")
        box.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("'fly' is no action")
        box.fill("down")
        box.press("Enter")
        turns(page, 1)
        page.locator("h1").click()
        for count, key in enumerate(("Down", "Right", "Right", "Down", "Right"), 2):
            expect(page.get_by_text("Your turn")).to_be_visible()
            page.locator("h1").click()
            page.evaluate("() => document.activeElement.blur()")
            page.keyboard.press(f"Arrow{key}")
            turns(page, min(count, 6))
        expect(page.get_by_text("terminated")).to_be_visible()
        page.get_by_role("link", name="Look at it").click()
        expect(page.locator(".where")).to_have_text("before turn 1 of 6")
    scored, folder = game.result
    assert scored.total == 1.0
    (summary,) = replay.open(folder).episodes()
    assert (summary.label, summary.turns) == ("human", 6)


def test_the_actions_are_there_from_the_start(open_page: Open, tmp_path) -> None:
    silent = replace(LAKE, translator={**LAKE.translator, "instructions": ""})
    with played(tmp_path, silent) as game:
        page = open_page(game.address, lost=True)
        expect(page.get_by_text("Answer with one of left, down, right, up.")).to_be_visible()
        expect(page.get_by_text("Your turn: press an arrow, or type.")).to_be_visible()
        page.get_by_role("button", name="Stop").click()


@pytest.mark.adb
def test_taps_and_swipes_on_the_picture_reach_the_phone(adb_server, open_page, tmp_path) -> None:
    env = configuration.load("game_2048").env
    env.kwargs = {"goal": 64}
    with played(tmp_path, env) as game:
        page = open_page(game.address, lost=True)
        picture = page.locator(".stage img.free")
        for count, (dx, dy) in enumerate(((100, 0), (0, 100), (-100, 0)), 1):
            expect(page.get_by_text("Your turn")).to_be_visible()
            box = picture.bounding_box()
            x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            page.mouse.move(x, y)
            page.mouse.down()
            page.mouse.move(x + dx, y + dy)
            page.mouse.up()
            turns(page, count)
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("truncated")).to_be_visible()
    scored, _ = game.result
    assert all(re.search(r"swipe\(", turn.reply) for turn in scored.episode.turns)
    assert any(turn.info["changed"] for turn in scored.episode.turns)


def test_others_are_watched(open_page: Open, tmp_path) -> None:
    with played(tmp_path, LAKE, policy="random") as game:
        page = open_page(game.address, lost=True)
        expect(page.get_by_text("ended")).to_be_visible()
        expect(page.get_by_label("answer")).to_be_hidden()


def test_nothing_is_done_without_the_token(open_page: Open, tmp_path) -> None:
    with played(tmp_path, LAKE) as game:
        page = open_page(game.address.partition("#")[0], lost=True)
        page.get_by_label("answer").fill("down")
        page.get_by_label("answer").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("the token is missing")
        turns(page, 0)
        page = open_page(game.address, lost=True)
        page.get_by_role("button", name="Stop").click()
    assert "nothing was played" in str(game.error)


def test_what_is_no_answer_is_refused() -> None:
    stage = Stage(human=True)
    with pytest.raises(ConfigError, match="not your turn"):
        stage.answer("down")
    with pytest.raises(ConfigError, match="1 to 10000 characters"):
        stage.answer(" ")
    with pytest.raises(ConfigError, match="there are 0 pictures"):
        stage.picture(0)
