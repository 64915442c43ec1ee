"""Facts read from the number game's screen equal the facts that the game publishes."""

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentrl
from agentrl import cli
from agentrl.devices.vision import UNREAD, VisionAudit
from agentrl.envs.android.number_game import truth_source
from agentrl.envs.android.number_game.app import NumberGameApp
from agentrl.envs.android.number_game.env import NumberGame
from agentrl.envs.android.number_game.levels import NumberGameLevel
from agentrl.envs.android.number_game.players import NumberGameExpert
from agentrl.envs.android.number_game.screen_reader import read_screen
from agentrl.envs.android.number_game.translator import NumberGameTranslator
from agentrl.envs.android.number_game.truth_source import FactSource
from agentrl.envs.picture_colors import COLORS
from agentrl.errors import ConfigError, EnvError
from agentrl.types import Image
from tests.envs.android.number_game.level_apps import LEVELS, SEEDS, launched, tap
from virtual_phone.system.screen_frame import ScreenFrame, bar_height, compose

SIZES = st.sampled_from([(360, 640), (720, 1280), (1080, 2400)])


def shown(app: NumberGameApp, size: tuple[int, int] = (360, 640)) -> ScreenFrame:
    width, height = size
    return compose(app.render(width, height - bar_height(height)), width, height, "12:34")


def raw(frame: ScreenFrame) -> Image:
    return np.ascontiguousarray(frame.rgba[..., :3])


def png(frame: ScreenFrame) -> Image:
    data = cv2.imdecode(np.frombuffer(frame.png, np.uint8), cv2.IMREAD_COLOR)
    return np.ascontiguousarray(data[..., ::-1])


def h264(frame: ScreenFrame) -> Image:
    """Encode a frame with the phone's encoder, and decode it with the framework's decoder."""
    pytest.importorskip("av")
    from agentrl.devices.capture.h264_stream import H264Decoder, rgb
    from virtual_phone.system.screen_recorder import ScreenRecorder

    recorder = ScreenRecorder(frame.size, 4_000_000, container=False)
    try:
        decoded = H264Decoder().feed(recorder._encode(frame, 0.0))
    finally:
        recorder.close()
    assert decoded is not None
    return rgb(decoded)


def wrong(read: dict[str, Any], app: NumberGameApp) -> dict[str, Any]:
    """Return the facts that were misread."""
    return dict(VisionAudit().compare(read, app.state())["differs"])


@given(
    seed=SEEDS,
    level=LEVELS,
    size=SIZES,
    touches=st.lists(st.integers(0, 5), max_size=8),
    capture=st.sampled_from([raw, png, h264]),
    colors=st.sampled_from(COLORS),
)
@settings(max_examples=20, deadline=None)
def test_every_screen_is_read_as_it_is(seed, level, size, touches, capture, colors) -> None:
    level = {**level, "colors": colors}
    app = launched(seed, 4, **level)
    for touch in touches:  # a card, the button, or neither
        places = app.state()["touch_targets"]
        where = [*places["cards"], places["button"], places["button"]]
        tap(app, where[touch] if touch < len(where) else [0.5, 0.01])
    read = read_screen(capture(shown(app, size)), NumberGameLevel(**level))
    assert wrong(read, app) == {}
    truth = app.state()
    dark = level["memory"] and truth["phase"] != "lamp"
    assert ("lamp" in read) == (not dark)
    assert ("numbers" in read) == (truth["phase"] != "lamp")
    assert ("time_left" in read) == bool(level["timed"])


def test_a_card_of_the_buttons_color_beside_it_is_no_button() -> None:
    level = {"digits": 2, "cards": 4, "moved": True, "memory": True}
    app = launched(1000001, 10, **level)
    while not app.state()["done"]:
        truth = app.state()
        places = truth["touch_targets"]
        picks = truth["phase"] == "pick"
        tap(app, places["cards"][truth["answer"]] if picks else places["button"])
    read = read_screen(raw(shown(app)), NumberGameLevel(**level))
    assert wrong(read, app) == {}
    assert (read["phase"], read["right"]) == ("final", 10)


@pytest.mark.parametrize("sides", [(1, 1), (7, 3), (640, 360), (40, 900)])
@pytest.mark.parametrize("gray", [0, 255])
def test_frames_without_a_game_give_no_facts(sides, gray) -> None:
    for level in (NumberGameLevel(), NumberGameLevel(moved=True, cards=4, digits=2, timed=3)):
        read = read_screen(np.full((*sides, 3), gray, np.uint8), level)
        assert set(map(str, read.values())) == {UNREAD}


def test_covered_facts_are_unread_and_the_others_are_read() -> None:
    app = launched(5)
    frame = raw(shown(app))
    frame[140:250] = 30  # a dialog over the lamps
    read = read_screen(frame, NumberGameLevel())
    assert wrong(read, app).keys() == {"lamp", "answer"}


def test_an_unknown_truth_and_a_clock_too_fine_are_rejected() -> None:
    with pytest.raises(ConfigError, match="truth='seen': must be one of state, sight, audit"):
        FactSource("seen", NumberGameLevel())
    with pytest.raises(ConfigError, match="timed=41: must be at most 40 with truth=sight"):
        FactSource("sight", NumberGameLevel(timed=41))


@pytest.fixture(scope="module")
def env(adb_server: object) -> Iterator[NumberGame]:
    env = NumberGame(rounds=2, memory=True)
    yield env
    env.close()


def played(env: NumberGame, truth: str, seed: int = 5) -> tuple[list[float], list[dict[str, Any]]]:
    """Return the expert's rewards and infos with a different `truth`."""
    env._fact_source = FactSource(truth, env.level)
    rng, translator, player = np.random.default_rng(0), NumberGameTranslator(), NumberGameExpert()
    rewards, infos, over = [], [env.reset(seed=seed)[1]], False
    while not over:
        action = translator.to_action(player.reply(infos[-1], rng))
        _, reward, over, _, info = env.step(action)
        rewards.append(reward)
        infos.append(info)
    return rewards, infos


def test_by_sight_alone_the_expert_plays_as_by_the_state(env: NumberGame) -> None:
    rewards, infos = played(env, "state")
    by_sight, seen = played(env, "sight")
    assert by_sight == rewards == [0, 1, 0, 0, 1]
    for published, read in zip(infos, seen, strict=True):
        hidden = {"tip"} | ({"numbers", "answer"} if published["phase"] == "lamp" else set())
        kept = [name for name in published if name not in hidden]
        assert {name: read[name] for name in kept} == {name: published[name] for name in kept}


def test_an_audit_reports_misread_facts_and_the_state_decides(
    env: NumberGame, monkeypatch: pytest.MonkeyPatch
) -> None:

    def read_badly(frame: Image, level: NumberGameLevel) -> dict[str, Any]:
        return read_screen(frame, level) | {"score": 7}

    monkeypatch.setattr(truth_source, "read_screen", read_badly)
    rewards, infos = played(env, "audit")
    assert rewards == [0, 1, 0, 0, 1]
    assert infos[-1]["score"] == 120
    assert infos[-1]["audit"]["differs"] == {"score": {"read": 7, "true": 120}}
    assert "phase" in infos[-1]["audit"]["agreed"]
    assert infos[-1]["metrics"]["misread"] == len(infos)


def test_an_unreadable_screen_raises_env_error(
    env: NumberGame, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(
        truth_source, "read_screen", lambda frame, level: {"round": 1, "score": UNREAD}
    )
    with pytest.raises(EnvError, match="cannot be read: score"):
        played(env, "sight")


@pytest.mark.slow
@pytest.mark.adb
def test_eval_tells_the_agreement_of_each_fact(tmp_path, capsys, adb_server) -> None:
    settings = ["env.kwargs={truth: audit, rounds: 1}", "rollout.launcher=local"]
    settings += ["devices.source=virtual:1", f"run.dir={tmp_path}", "logging=[file]"]
    found = agentrl.evaluate("number_game", policy="expert", episodes=1, overrides=settings)
    assert found.audit["score"] == {"agreed": 2, "of": 2, "low": 0.3424, "high": 1.0}
    assert cli.run(["eval", "number_game", "--policy=expert", "--episodes=1", *settings]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["lamp", "2", "2", "100.0%", "34.2", "to", "100.0%"] in lines
