"""Playing in the browser."""

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from playwright.sync_api import Download, Locator, Page, expect

from agentrl import config as configuration
from agentrl import replay
from agentrl.actions.human_input_parser import available_gestures
from agentrl.cli import run
from agentrl.config import Config, EnvConfig, RolloutConfig, RunConfig
from agentrl.data.offline_rows import OfflineRows, read_chat
from agentrl.data.tables import read_file
from agentrl.errors import ConfigError
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.training.evaluation.human_policy import UndoRequested
from agentrl.training.evaluation.interactive_play import PlayInterface, play
from agentrl.training.inference.background_model import ModelThread
from agentrl.training.inference.chat_history import ChatHistory
from agentrl.training.inference.inference_model import open_chat_target
from agentrl.viewer.browser_play import BrowserPlay
from agentrl.viewer.chat_app import LiveChat, chat_application
from agentrl.viewer.viewer_server import WebServer, play_in_browser
from tests.data.rows import png
from tests.policies.completions_server import Server, ok, reply, serving
from tests.viewer.conftest import Open, wait_for
from tests.viewer.test_page_design import AXE

LAKE = EnvConfig(
    id="FrozenLake-v1",
    kwargs={"is_slippery": False},
    translator_kwargs={"names": ["left", "down", "right", "up"], "instructions": "Go to the goal."},
)


class Game:
    """An episode played in a thread while a page shows it."""

    def __init__(self, config: Config | str, **options: object) -> None:
        self.address, self.result, self.error = "", None, None
        self._up, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._play, args=(config, options), daemon=True)
        self._thread.start()
        assert self._up.wait(60)

    def _play(self, config: Config | str, options: dict[str, object]) -> None:
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
def played(folder: Path, env: EnvConfig | str, **options: object) -> Iterator[Game]:
    """Play an environment, or a packaged configuration."""
    rollout = RolloutConfig(engine="hf", launcher="local")
    known = env if isinstance(env, str) else None
    config = known or Config(env=env, rollout=rollout, run=RunConfig(dir=str(folder)))
    game = Game(config, **options)
    yield game
    game.end()


def turns(page: Page, count: int) -> None:
    expect(page.locator(".turns li")).to_have_count(count)


def current_screen(page: Page) -> Locator:
    """The picture of the state that awaits an action, once it has replaced the earlier one."""
    expect(page.get_by_text("Your turn")).to_be_visible()
    seen = page.evaluate("fetch('/api/play').then((answer) => answer.json())")["seen"]
    picture = page.locator(".stage.asked img")
    expect(picture).to_have_attribute("src", re.compile(f"v={seen}$"))
    return picture


def test_a_game_is_played_with_text_and_arrows_and_recorded(open_page: Open, tmp_path) -> None:
    with played(tmp_path, LAKE) as game:
        page = open_page(game.address, lost=True)
        expect(page.get_by_text("Go to the goal.")).to_be_visible()
        page.set_viewport_size({"width": 1280, "height": 1200})
        expect(page.locator(".shown.alone")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        box = page.get_by_label("answer")
        box.fill("fly")
        box.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("'fly' is not an action")
        box.fill("down")
        box.press("Enter")
        turns(page, 1)
        page.locator("h1").click()
        page.keyboard.press("ArrowLeft")
        turns(page, 2)
        expect(page.get_by_text("Your turn")).to_be_visible()
        page.keyboard.press("u")
        turns(page, 1)
        for count, key in enumerate(("Down", "Right", "Right", "Down", "Right"), 2):
            expect(page.get_by_text("Your turn")).to_be_visible()
            page.locator("h1").click()
            page.evaluate("() => document.activeElement.blur()")
            page.keyboard.press(f"Arrow{key}")
            turns(page, min(count, 6))
        expect(page.get_by_text("Game over")).to_be_visible()
        accessible(page)
        page.get_by_role("button", name="Undo").click()
        turns(page, 5)
        page.keyboard.press("ArrowLeft")
        turns(page, 6)
        expect(page.get_by_text("Your turn")).to_be_visible()
        page.get_by_label("seed").fill("7")
        page.get_by_role("button", name="New game").click()
        turns(page, 0)
        expect(page.get_by_role("button", name="Undo")).to_be_disabled()
        accessible(page)
        page.get_by_role("button", name="End game").click()
        expect(page.get_by_text("nothing was recorded")).to_be_visible()
        page.get_by_role("link", name="Episodes").click()
        page.get_by_role("link", name="human-00000-g000-m00").click()
        expect(page.locator(".where")).to_have_text("before turn 1 of 6")
    scored, folder = game.result
    won, undone = replay.open(folder).episodes()
    assert (won.label, won.turns, won.reward, won.seed) == ("human", 6, 1.0, 0)
    assert (undone.turns, undone.reward, undone.id) == (6, 0.0, scored.episode.id)


def accessible(page: Page) -> None:
    """In light and dark, and as wide as the window."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(AXE)
        found = page.evaluate("axe.run()")["violations"]
        worst = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not [(one["id"], one["nodes"][0]["html"]) for one in worst], scheme
    before = page.viewport_size
    for width in (390, 1920):
        page.set_viewport_size({"width": width, "height": 860})
        page.wait_for_timeout(50)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
    page.set_viewport_size(before)


def test_the_actions_are_shown_from_the_start(open_page: Open, tmp_path) -> None:
    silent = replace(LAKE, translator_kwargs={**LAKE.translator_kwargs, "instructions": ""})
    with played(tmp_path, silent) as game:
        page = open_page(game.address, lost=True)
        expect(page.get_by_text("Answer with one of left, down, right, up.")).to_be_visible()
        expect(page.get_by_text("Your turn: press an arrow, or type.")).to_be_visible()
        page.get_by_role("button", name="End game").click()


@pytest.mark.adb
def test_taps_land_correctly_in_a_narrow_window_and_the_last_screen_is_shown(
    adb_server, open_page, tmp_path
) -> None:
    env = configuration.load("number_game").env
    env.max_turns = 4
    with played(tmp_path, env) as game:
        page = open_page(game.address, 390, 844, lost=True, has_touch=True)
        tab = page.get_by_role("link", name="Play", exact=True).bounding_box()
        assert tab["x"] + tab["width"] <= 390
        picture, box = page.locator(".stage img"), None
        where = "document.querySelector('.stage img').getBoundingClientRect().toJSON()"
        for count, x in enumerate((0.25, 0.5, 0.75, 0.25), 1):
            expect(page.get_by_text("Your turn: tap the screen, or type.")).to_be_visible()
            expect(picture).to_be_visible()
            box = box or page.evaluate(where)
            page.touchscreen.tap(box["x"] + x * box["width"], box["y"] + 0.6 * box["height"])
            turns(page, count)
            assert page.evaluate("[scrollY, document.activeElement.tagName]") == [0, "BODY"]
            assert page.evaluate(where) == box
        expect(page.get_by_text("Game over")).to_be_visible()
        with urllib.request.urlopen(f"{game.address.partition('/play')[0]}/api/play") as answer:
            seen = json.loads(answer.read())["seen"]
        assert seen == 5
        expect(picture).to_have_attribute("src", f"/api/play/pictures/0?v={seen}")
        with urllib.request.urlopen(page.evaluate("document.images[0].src")) as answer:
            shown = cv2.imdecode(np.frombuffer(answer.read(), np.uint8), cv2.IMREAD_COLOR_RGB)
    scored, folder = game.result
    assert [turn.reply[12:16] for turn in scored.episode.turns] == ["0.25", "0.50", "0.75", "0.25"]
    assert (shown == replay.open(folder).frame(scored.episode.final_frames[0])).all()


def test_the_text_field_keeps_the_focus_only_while_typing(open_page: Open, tmp_path) -> None:
    with played(tmp_path, LAKE) as game:
        page = open_page(game.address, lost=True)
        box = page.get_by_label("answer")
        expect(page.get_by_text("Your turn")).to_be_visible()
        expect(box).not_to_be_focused()
        page.get_by_role("button", name="down").click()
        turns(page, 1)
        expect(box).not_to_be_focused()
        box.fill("down")
        page.get_by_role("button", name="Answer").click()
        turns(page, 2)
        expect(box).to_be_focused()
        page.keyboard.press("ArrowUp")  # moves the cursor in the text, not in the game
        page.keyboard.type("right")
        page.keyboard.press("Enter")
        turns(page, 3)
        page.get_by_role("button", name="End game").click()
        expect(page.get_by_text("Game over")).to_be_visible()
    assert [turn.action for turn in game.result[0].episode.turns] == [1, 1, 2]


POLE = EnvConfig(id="CartPole-v1", translator_kwargs={"names": ["left", "right"], "show": "render"})


def test_the_hint_names_the_accepted_inputs(open_page: Open, tmp_path) -> None:
    with played(tmp_path, POLE) as game:
        page = open_page(game.address, lost=True)
        expect(page.get_by_text("Your turn: press ← or →, or type.")).to_be_visible()
        expect(page.get_by_label("answer")).to_have_attribute(
            "placeholder", "an action, such as left"
        )
        page.locator(".stage img").click()  # not an action in this game
        page.keyboard.press("ArrowUp")
        address = f"{game.address.partition('/play')[0]}/api/play/pictures/0"
        shown = {0: urllib.request.urlopen(address).read()}
        for count in (1, 2, 3, 2, 1, 0):
            expect(page.get_by_text("Your turn")).to_be_visible()
            page.keyboard.press("u" if count in shown else "ArrowRight")
            turns(page, count)
            expect(page.get_by_text("Your turn")).to_be_visible()
            picture = urllib.request.urlopen(address).read()
            assert shown.setdefault(count, picture) == picture  # each pixel, after an undo
        assert shown[3] != shown[0]
        expect(page.get_by_text("Your turn")).to_be_visible()
        page.keyboard.press("ArrowRight")
        turns(page, 1)
        page.get_by_role("button", name="End game").click()
        expect(page.get_by_text("Game over")).to_be_visible()
    assert len(game.result[0].episode.turns) == 1


@pytest.mark.parametrize(
    ("config", "kwargs", "known"),
    [
        ("number_game", {}, ["tap"]),
        ("game_2048", {"mode": "touch"}, ["tap", "swipe"]),
        ("game_2048", {"mode": "calls"}, ["up", "down", "left", "right"]),
        ("sokoban", {}, ["up", "down", "left", "right"]),
        ("counting", {}, []),
    ],
)
@pytest.mark.parametrize("style", ["tag", "tool"])
def test_accepted_inputs_are_known_in_every_action_style(config, kwargs, known, style) -> None:
    env = configuration.load(config).env
    env.kwargs = {**env.kwargs, **kwargs}
    if config != "counting":
        env.translator_kwargs = {**env.translator_kwargs, "style": style}
    assert available_gestures(open_translator(resolve_env(env))) == known


def test_a_server_without_a_game_says_so_and_stops_polling(small, open_page) -> None:
    page = open_page(f"{small.url}/episodes")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{small.url}/play")
    expect(page.get_by_text("No episode is being played")).to_be_visible()
    page.wait_for_timeout(600)
    assert not [url for url in asked if "/api/play" in url]


@pytest.mark.adb
def test_taps_and_swipes_reach_the_phone(adb_server, open_page, tmp_path) -> None:
    env = configuration.load("game_2048").env
    env.kwargs = {"goal": 16}
    with played(tmp_path, env) as game:
        page = open_page(game.address, lost=True)
        for count, (dx, dy) in enumerate(((100, 0), (0, 100), (-100, 0)), 1):
            # Not by its box: the image is replaced with every screen. The stage covers it.
            current_screen(page).drag_to(
                page.locator(".stage.asked img"),
                force=True,
                source_position={"x": 130, "y": 150},
                target_position={"x": 130 + dx, "y": 150 + dy},
            )
            turns(page, count)
        expect(page.get_by_text("Your turn")).to_be_visible()
        page.keyboard.press("ArrowUp")
        turns(page, 4)
        expect(page.get_by_text("Your turn")).to_be_visible()
        page.keyboard.press("u")
        turns(page, 3)
        expect(page.get_by_text("Your turn")).to_be_visible()
        page.get_by_role("button", name="End game").click()
        expect(page.get_by_role("columnheader", name="expert")).to_be_visible()
    scored, folder = game.result
    human, expert = replay.open(folder).episodes()
    assert (human.label, expert.label, human.seed) == ("human", "expert", expert.seed)
    assert all(re.search(r"swipe\(", turn.reply) for turn in scored.episode.turns)
    assert any(turn.info["changed"] for turn in scored.episode.turns)


@pytest.mark.parametrize(
    ("said", "sights"), [(("down",), 2), (("down", "down", "right", "right", "down", "right"), 7)]
)
def test_every_observation_is_shown_once_including_the_last(tmp_path, said, sights) -> None:
    left, seen = iter(said), []
    audience = PlayInterface(
        show_instructions=lambda words: None, show_error=lambda words: None,
        show_message=seen.append,
        show_turn=lambda turn: None, read_input=lambda: next(left, None),
    )  # fmt: skip
    rollout = RolloutConfig(engine="hf", launcher="local")
    config = Config(env=LAKE, rollout=rollout, run=RunConfig(dir=str(tmp_path)))
    with ThreadPoolExecutor(1) as thread:  # the browser's event loop runs in this thread
        thread.submit(play, config, audience).result()
    assert len(seen) == sights
    assert len({message.text for message in seen}) == sights


DICE = """
import gymnasium, numpy as np

class Dice(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)
    rng = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return self.rng.random(1, np.float32), 1.0, False, False, {}
"""


def test_an_undo_that_fails_loses_no_turn_and_is_the_last(tmp_path) -> None:
    (tmp_path / "dice.py").write_text(DICE)
    said = iter(("0", "1", "0", UndoRequested, "1", None))
    reasons, errors = [], []

    def read_input() -> str | None:
        if (answer := next(said)) is UndoRequested:
            raise UndoRequested
        return answer

    audience = PlayInterface(
        show_instructions=lambda words: None, show_error=errors.append,
        show_message=lambda message: None, show_turn=lambda turn: None,
        read_input=read_input, disable_undo=reasons.append,
    )  # fmt: skip
    config = Config(
        env=EnvConfig(id=f"{tmp_path / 'dice.py'}:Dice"),
        rollout=RolloutConfig(engine="hf", launcher="local"),
        run=RunConfig(dir=str(tmp_path / "runs")),
    )
    with ThreadPoolExecutor(1) as thread:
        _, folder = thread.submit(play, config, audience).result()
    assert [row.turns for row in replay.open(folder).episodes()] == [3, 2]
    assert reasons == [
        "the same actions led to a different screen in turn 2, so the game is not deterministic"
    ]
    assert reasons[0] in errors[0]


PRESSES = """
import gymnasium
import numpy as np

import agentrl
from agentrl.actions.screen_action_syntax import ActionSyntax
from agentrl.actions.screen_actions import Tap


class Presses(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (200, 100, 3), np.uint8)
    action_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full((200, 100, 3), 90, np.uint8), {}

    def step(self, action):
        if isinstance(action, Tap):
            raise RuntimeError("the panel is <b>broken</b>")
        return np.full((200, 100, 3), 180, np.uint8), 1.0, False, False, {}


class Words:
    def instructions(self):
        return "Hold the panel."

    def to_observation(self, observation, info):
        return agentrl.Observation(images=(observation,), text="")

    def to_message(self, observation):
        return agentrl.Message(role="user", text="<image>", images=observation.images)

    def to_action(self, reply):
        return ActionSyntax(actions=("tap", "long_press")).parse(reply)

    def no_action(self):
        return None


agentrl.register("Presses-v0", "presses:Presses", translator="presses:Words")
"""


def test_a_game_that_fails_is_shown_and_recorded_and_another_one_is_played(
    open_page: Open, tmp_path
) -> None:
    (tmp_path / "presses.py").write_text(PRESSES)
    env = EnvConfig(id=f"{tmp_path / 'presses.py'}:Presses-v0", max_turns=2)
    with played(tmp_path / "runs", env) as game:
        page = open_page(game.address, lost=True)
        expect(page.get_by_text("Your turn: tap or hold the screen, or type.")).to_be_visible()
        expect(page.get_by_text("long press there")).to_be_visible()
        current_screen(page).click(delay=700)
        turns(page, 1)
        expect(page.locator(".turns")).to_contain_text("long_press(0.50, 0.50)")
        current_screen(page).click()
        expect(page.get_by_role("heading", name="The game failed", exact=True)).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("the panel is <b>broken</b>")
        accessible(page)
        page.get_by_role("button", name="New game").click()
        turns(page, 0)
        for count in (1, 2):
            current_screen(page).click(delay=700)
            turns(page, count)
        expect(page.get_by_text("Game over")).to_be_visible()
    failed, whole = replay.open(game.result[1]).episodes()
    assert (failed.outcome.value, failed.turns, failed.seed) == ("env_error", 1, 0)
    assert (whole.outcome.value, whole.turns, whole.seed) == ("truncated", 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("key", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_game_and_loses_no_turn(tmp_path, key: signal.Signals) -> None:
    names = "env.translator_kwargs.names=[left, down, right, up]"
    command = [sys.executable, "-m", "agentrl", "play", "FrozenLake-v1", names, "--browser"]
    game = subprocess.Popen(
        [*command, "--port=0", f"run.dir={tmp_path}"], stdout=subprocess.PIPE, text=True
    )
    try:
        page, _, token = game.stdout.readline().split()[0].partition("#token=")
        for turn in range(2):
            wait_for(lambda: json.load(urllib.request.urlopen(api(page)))["awaits_input"])
            asked = urllib.request.Request(
                api(page) + "/answer?text=down", headers={"x-agentrl-token": token}, method="POST"
            )
            urllib.request.urlopen(asked).close()
            wait_for(lambda n=turn: len(json.load(urllib.request.urlopen(api(page)))["turns"]) > n)
        game.send_signal(key)
        said, _ = game.communicate(timeout=60)
    finally:
        game.kill()
    assert game.returncode == 0
    assert "truncated after 2 turns" in said
    (folder,) = tmp_path.iterdir()
    assert [row.turns for row in replay.open(folder).episodes()] == [2]


def api(page: str) -> str:
    return page.replace("/play", "/api/play")


@pytest.mark.adb
@pytest.mark.slow
@pytest.mark.parametrize("by", ["keys", "touches"])
def test_a_model_is_fine_tuned_on_a_game_by_the_command_at_its_end(
    adb_server, open_page: Open, tmp_path, by: str
) -> None:
    """The page's command, with settings that make the job small."""
    target = {"keys": "frozen_lake", "touches": "number_game"}[by]
    where = [f"run.dir={tmp_path / 'games'}", "env.max_turns=3"]
    with played(tmp_path, target, overrides=where) as game:
        page = open_page(game.address, 390, 844, lost=True, has_touch=True)
        for count in range(1, 4):
            expect(page.get_by_text("Your turn")).to_be_visible()
            if by == "keys":
                page.keyboard.press("ArrowRight" if count % 2 else "ArrowLeft")
            else:
                page.locator(".stage.asked img").tap()
            turns(page, count)
        expect(page.get_by_text("Game over")).to_be_visible()
        command = shlex.split(page.locator(".command pre").inner_text())
    small = [
        "train.steps=0", "warm_start.steps=3", "warm_start.batch=2", "warm_start.cache=null",
        "eval.episodes=1", "eval.baselines=[]", "rollout.engine=hf", "rollout.launcher=local",
        "logging=[file]", f"run.dir={tmp_path / 'jobs'}", "run.name=trained",
    ]  # fmt: skip
    assert command[0] == "agentrl"
    assert run([*command[1:], *small]) == 0
    job = tmp_path / "jobs" / "trained"
    assert configuration.load(job / "config.yaml").warm_start.recorded == [str(game.result[1])]
    rows = list(map(json.loads, (job / "metrics.jsonl").read_text().splitlines()))
    losses = [row["loss"] for row in rows if row["stage"] == "warm start"]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3


def test_a_scripted_player_can_be_watched(open_page: Open, tmp_path) -> None:
    with played(tmp_path, LAKE, policy="random") as game:
        page = open_page(game.address, lost=True)
        expect(page.get_by_text("Game over")).to_be_visible()
        expect(page.get_by_label("answer")).to_be_hidden()


def test_actions_require_the_token(open_page: Open, tmp_path) -> None:
    with played(tmp_path, LAKE) as game:
        page = open_page(game.address.partition("#")[0], lost=True)
        page.get_by_label("answer").fill("down")
        page.get_by_label("answer").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("the token is missing")
        turns(page, 0)
        page = open_page(game.address, lost=True)
        page.get_by_role("button", name="End game").click()
    assert "ended before its first turn" in str(game.error)


def test_invalid_answers_are_refused() -> None:
    stage = BrowserPlay(human=True)
    with pytest.raises(ConfigError, match="not your turn"):
        stage.answer("down")
    with pytest.raises(ConfigError, match="1 to 10000 characters"):
        stage.answer(" ")
    with pytest.raises(ConfigError, match="the page shows 0"):
        stage.picture(0)


@contextmanager
def chatting(server: Server) -> Iterator[str]:
    """The address of a page to chat with the model of a server."""
    target = open_chat_target(server.url)
    with ModelThread(target) as model:
        chat = LiveChat(model, ChatHistory("Be brief."), "toy")
        pages = WebServer(lambda guard: chat_application(chat, guard))
        try:
            yield pages.address()
        finally:
            chat.stop()
            pages.close()


def test_a_person_chats_with_images_on_a_page_that_shows_markup_as_text(
    open_page: Open, tmp_path
) -> None:
    evil = "<img src=x onerror=alert(1)><b>bold</b>\n\x1b[31m"
    waits = threading.Event()
    (tmp_path / "box.png").write_bytes(png())

    def answer(body: dict[str, Any]) -> Any:
        if body["messages"][-1]["content"] == "Wait":
            waits.wait(20)
        return ok(reply("Hello" if body["max_tokens"] == 1 else evil))

    with serving() as server:
        server.usual = answer
        with chatting(server) as address:
            page = open_page(address, lost=True)
            expect(page.locator("#title")).to_have_text("toy")
            page.get_by_label("Add images").set_input_files(tmp_path / "box.png")
            expect(page.locator(".thumb")).to_have_count(1)
            page.get_by_label("message").fill("What is this?")
            page.get_by_label("message").press("Enter")
            expect(page.locator(".said.model .words")).to_have_text(evil.replace("\x1b", r"\x1b"))
            assert page.locator(".chat b, .chat [onerror]").count() == 0
            shown = page.locator(".said img")
            expect(shown).to_have_js_property("naturalWidth", 8)
            system, asked = server.asked[-1]["messages"]
            assert system == {"role": "system", "content": "Be brief."}
            assert [part["type"] for part in asked["content"]] == ["image_url", "text"]
            with page.expect_download() as saved:
                page.get_by_role("link", name="Save").click()
            (row,) = OfflineRows(read_file(_moved(saved.value, tmp_path)), "chat", read_chat)
            assert [message.role for message in row.messages] == ["system", "user", "assistant"]
            assert row.messages[-1].text == evil
            assert row.images[0].shape == (6, 8, 3)
            page.get_by_label("message").fill("Wait")
            page.get_by_role("button", name="Send").click()
            page.get_by_role("button", name="Stop").click()
            expect(page.get_by_role("alert")).to_have_text("stopped; your message was dropped")
            waits.set()
            expect(page.locator(".said")).to_have_count(2)
            page.get_by_label("message").fill("<image>")
            page.get_by_label("message").press("Enter")
            expect(page.get_by_role("alert")).to_contain_text("1 <image> for 0 images")
            page.get_by_role("button", name="New chat").click()
            expect(page.locator(".said")).to_have_count(0)


def test_thoughts_are_folded_and_the_message_stays_in_view(open_page: Open) -> None:
    long = "\n".join(map(str, range(80)))
    replies = iter([f"<think>{long}</think>The answer is 7.", "secret</think>Eight."])
    with serving() as server:
        server.usual = lambda body: ok(reply("Hello" if body["max_tokens"] == 1 else next(replies)))
        with chatting(server) as address:
            page = open_page(address)
            expect(page.locator("#title")).to_have_text("toy")
            for answer in ("The answer is 7.", "Eight."):
                page.get_by_label("message").fill("How many?")
                page.get_by_label("message").press("Enter")
                expect(page.get_by_text(answer, exact=True)).to_be_visible()
            expect(page.get_by_text("secret")).to_be_hidden()
            page.locator(".thought summary").first.click()
            expect(page.get_by_text("79")).to_be_visible()
            page.evaluate("scrollTo(0, 0)")
            expect(page.get_by_label("message")).to_be_in_viewport(ratio=1)
            page.evaluate("scrollTo(0, 500)")
            expect(page.get_by_label("message")).to_be_in_viewport(ratio=1)


def _moved(download: Download, folder: Path) -> Path:
    download.save_as(folder / "chat.jsonl")
    return folder / "chat.jsonl"


def test_a_chat_page_sends_no_paths_and_needs_the_token() -> None:
    wrong = {
        b'{"text": "hi", "images": ["/etc/hostname"]}': "must be a data URL",
        b'{"text": "hi", "images": ["data:image/png;base64,AAAA"]}': "not recognized",
        b'{"text": 3, "images": []}': "a message must be a string",
        b"[" * 5000: "must be a JSON object",
        b" " * ((64 << 20) + 1): "send smaller images",
    }
    with serving() as server, chatting(server) as address:
        base, _, token = address.partition("#token=")

        def refused(body: bytes, **headers: str) -> tuple[int, str]:
            url = f"{base}api/chat/message"
            asked = urllib.request.Request(url, body, headers, method="POST")
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(asked, timeout=20)
            return error.value.code, json.loads(error.value.read())["error"]

        status, why = refused(b'{"text": "hi", "images": []}')
        assert (status, "the token is missing" in why) == (403, True)
        for body, says in wrong.items():
            status, why = refused(body, **{"x-agentrl-token": token})
            assert (status, says in why) == (404, True), why
        assert all(request["max_tokens"] == 1 for request in server.asked)
