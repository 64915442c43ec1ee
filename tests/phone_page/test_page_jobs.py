"""Whole jobs on a phone that lacks the app: real adb, `adb reverse`, real Chromium."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl import cli, replay
from agentrl.check.phones import examine
from agentrl.devices import Device, Key
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.pool.lease import LeasedDevice
from agentrl.envs.android.number_game.env import NumberGame
from agentrl.errors import ConfigError
from agentrl.phone_page import PageAssigner
from tests.phone_page.chromium_station import BAR, TOOLBAR, Chromium, Station
from tests.phone_page.conftest import start_chromium
from virtual_phone.phones_spec import AppSpec

pytestmark = pytest.mark.adb
GAME = "agentrl.envs.android.number_game.app:NumberGameApp"


@pytest.fixture(scope="module")
def stations(adb_server: AdbServer) -> Iterator[list[Station]]:
    """Two phones with nothing of ours installed."""
    stations = [Station(start_chromium, number, size=(360, 640)) for number in (1, 2)]
    yield stations
    for station in stations:
        adb_server.disconnect(station.serial)
        station.close()


@pytest.fixture
def station(stations: list[Station]) -> Station:
    return stations[0]


def play(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    *settings: str,
    episodes: int = 4,
    config: str = "number_game_phone",
) -> dict[str, Any]:
    """What `agentrl eval` says of games of the expert."""
    code = cli.run([
        "eval", config, "--policy=expert", f"--episodes={episodes}", "--json",
        "rollout.launcher=local", "logging=[file]", "devices.tempo=quick",
        f"run.dir={folder}", *settings,
    ])  # fmt: skip
    said = capsys.readouterr()
    assert code == 0, said.err[-3000:]
    return json.loads(said.out)


def facts_of(run: str) -> list[Any]:
    """What every game gave, turn by turn, but for where its parts lie on the screen."""
    recorded, games = replay.open(run), []
    for summary in sorted(recorded.episodes(), key=lambda game: game.seed):
        turns, facts = recorded.episode(summary.id).episode.turns, []
        for turn in turns:
            facts.append(
                {k: v for k, v in turn.info.items() if k not in ("touch_targets", "audit")}
            )
        games.append((summary.seed, [turn.env_reward for turn in turns], facts))
    return games


@pytest.mark.parametrize(
    "game",
    [
        pytest.param("{rounds: 2, truth: audit}", id="tap"),
        pytest.param(
            "{rounds: 2, truth: sight, mode: select, moved: true, timed: 4}",
            id="select",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_job_gives_the_same_result_with_a_page_as_with_the_installed_app(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, stations: list[Station], game: str
) -> None:
    opened = [len(station.phone.opened) for station in stations]
    game = f"env.kwargs={game}"
    serials = [station.serial for station in stations]
    paged = play(capsys, tmp_path, f"devices.source={serials}", game)
    virtual = play(capsys, tmp_path, "devices.source=virtual:1", game)
    assert (paged["episodes"], paged["void"]) == (4, 0)
    assert (paged["accuracy"], paged["score"]) == (1.0, 120.0)
    for read in paged.get("audit", {}).values():
        assert read["agreed"] == read["of"], paged["audit"]
    assert facts_of(paged["run"]) == facts_of(virtual["run"])
    # Each browser was opened for its first game, and left where it was for the next.
    assert [len(station.phone.opened) for station in stations] == [n + 1 for n in opened]
    assert len({station.phone.opened[-1] for station in stations}) == 2, "each has its own page"


@pytest.mark.slow
def test_time_passes_on_a_page_as_with_the_installed_app(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, station: Station
) -> None:
    game = "env.kwargs={chops: 2, chop_ms: 200}"
    played = [
        play(capsys, tmp_path, f"devices.source={source}", game, episodes=1, config="tree_game")
        for source in ([station.serial], "virtual:1")
    ]
    for one in played:
        assert (one["void"], one["regret"], one["accuracy"]) == (0, 0.0, 1.0)
    paged, virtual = (facts_of(one["run"]) for one in played)
    assert paged == virtual


@pytest.mark.slow
def test_actors_share_phones_without_the_app(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, stations: list[Station]
) -> None:
    serials = [station.serial for station in stations]
    game = "env.kwargs={rounds: 2}"
    shared = play(
        capsys, tmp_path, f"devices.source={serials}", game, "rollout.launcher=ray",
        "rollout.actors=2", "rollout.concurrency=4", episodes=8,
    )  # fmt: skip
    assert (shared["episodes"], shared["void"], shared["accuracy"]) == (8, 0, 1.0)
    recorded = replay.open(shared["run"])
    lent = {recorded.episode(one.id).episode.device for one in recorded.episodes()}
    assert len(lent) == 2, "both were lent"


@pytest.fixture
def short_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The virtual phone's own video does not know what Chromium shows: it is soon given up."""
    monkeypatch.setattr("agentrl.devices.capture.capture_trial._FRESH_S", 1.0)


def test_the_doctor_tests_a_phone_without_the_app_on_a_page(
    capsys: pytest.CaptureFixture[str], station: Station, short_stream: None
) -> None:
    opened = len(station.phone.opened)
    assert cli.run(["devices", "doctor", station.serial]) == 0
    said = capsys.readouterr().out
    assert len(station.phone.opened) == opened + 1
    for words in (
        r"ok +apps start  .* as a page in its browser", r"(ok|note) +touches .*",
        r"ok +capture raw +fresh", r"ok +capture png +fresh", "1 of 1 phones are ready",
    ):  # fmt: skip
        assert re.search(words, said), said
    assert station.phone.tasks.front is None, "it was left on its home screen"


def test_the_doctor_reports_a_tap_on_a_page_that_arrives_elsewhere(
    adb_server: AdbServer, station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    taps: list[float] = []

    def beside(chromium: Chromium, x: float, y: float) -> None:
        """The first one is the page's own, which finds out where it lies."""
        taps.append(x)
        true_tap(chromium, x + (90 if len(taps) > 1 else 0), y)

    true_tap = Chromium.tap
    monkeypatch.setattr(Chromium, "tap", beside)
    with (
        closing(PageAssigner([AppSpec(app="virtual_phone.apps.probe_app:ProbeApp")])) as pager,
        closing(examine(adb_server, station.serial, paged=pager.wrap)) as findings,  # type: ignore[type-var]
    ):
        touches = next(found for found in findings if found.what == "touches")
    assert touches.state == "wrong"
    assert re.search(r"a tap at .* arrived at \(0\.5\d, 0\.25\)", touches.detail), touches


def test_the_doctor_tests_captures_if_nothing_serves_pages(
    adb_server: AdbServer, station: Station, short_stream: None
) -> None:
    def lacks(device: Device) -> Device:
        raise ConfigError("uvicorn serves it, which is not installed")

    found = {one.what: one for one in examine(adb_server, station.serial, paged=lacks)}
    assert (found["touches"].state, found["capture raw"].state) == ("note", "ok")
    assert "not tested: uvicorn" in found["touches"].detail


@pytest.fixture
def game(adb_server: AdbServer, station: Station) -> Iterator[NumberGame]:
    """The number game on its page, with a clock that every touch moves."""
    phone = AdbPhone(adb_server, station.serial)
    phone.deadlines = replace(phone.deadlines, settle_s=20.0, launch_s=60.0)
    # For half a second a page keeps the last picture of a server that has ended. It may be equal to
    # the first one of this game, which then could not be recognized.
    phone.perform(Key("HOME"))
    with (
        closing(PageAssigner([AppSpec(app=GAME)])) as pager,
        closing(pager.wrap(phone)) as device,
    ):
        lease = LeasedDevice(device, f"{station.serial}#test")
        yield NumberGame(device=lease.token, rounds=2, timed=3)
        lease.end()


def test_a_call_over_the_page_is_declined_and_the_game_goes_on(
    station: Station, game: NumberGame
) -> None:
    _, info = game.reset(seed=5)
    x, y = info["touch_targets"]["cards"][info["answer"]]
    station.run(lambda: station.phone.show_dialog("call"))
    screen, reward, terminated, _, info = game.step(np.array([x, y], np.float32))
    assert (reward, terminated, info["right"], info["wrong"]) == (1, False, 1, 0)
    assert (info["guard"]["kind"], info["guard"]["by"]) == ("call", "world")
    assert screen.shape == (640, 360, 3)


def test_a_tap_on_the_browsers_own_bar_does_nothing(station: Station, game: NumberGame) -> None:
    _, before = game.reset(seed=5)
    screen, reward, terminated, _, info = game.step(np.array([0.5, 0.06], np.float32))
    assert (screen[25 : 25 + TOOLBAR] == BAR).all(), "the bar is there"
    assert (reward, terminated, info["changed"]) == (0, False, False)
    assert {**info, "changed": True} == before
    assert not station.phone.bar_touched
