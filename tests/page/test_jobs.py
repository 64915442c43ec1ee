"""Whole jobs on a phone that lacks the app: real adb, `adb reverse`, real Chromium."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrl import cli, replay
from agentrl.devices.adb import AdbServer
from tests.page.browsing import Station
from tests.page.conftest import start_chromium

pytestmark = pytest.mark.adb


@pytest.fixture(scope="module")
def station(adb_server: AdbServer) -> Iterator[Station]:
    """A phone with nothing of ours installed."""
    station = Station(start_chromium, size=(360, 640))
    yield station
    adb_server.disconnect(station.serial)
    station.close()


def play(capsys: pytest.CaptureFixture[str], folder: Path, *settings: str) -> dict[str, Any]:
    """What `agentrl eval` says of two games of the expert."""
    code = cli.run([
        "eval", "number_game_phone", "--policy=expert", "--episodes=2", "--json",
        "rollout.launcher=local", "logging=[file]", f"run.dir={folder}", *settings,
    ])  # fmt: skip
    said = capsys.readouterr()
    assert code == 0, said.err[-3000:]
    return json.loads(said.out)


def told(run: str) -> list[Any]:
    """What every game gave, turn by turn, but for where its parts lie on the screen."""
    recorded, games = replay.open(run), []
    for summary in sorted(recorded.episodes(), key=lambda game: game.seed):
        turns, facts = recorded.episode(summary.id).episode.turns, []
        for turn in turns:
            facts.append({k: v for k, v in turn.info.items() if k not in ("places", "audit")})
        games.append((summary.seed, [turn.env_reward for turn in turns], facts))
    return games


@pytest.mark.parametrize(
    "game",
    ["{rounds: 2, truth: audit}", "{rounds: 2, truth: sight, mode: select, moved: true, timed: 4}"],
    ids=["tap", "select"],
)
def test_a_job_on_a_phone_that_lacks_the_app_is_as_one_on_a_phone_that_has_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, station: Station, game: str
) -> None:
    opened = len(station.phone.opened)
    game = f"env.kwargs={game}"
    paged = play(capsys, tmp_path, f"devices.source=['{station.serial}']", game)
    virtual = play(capsys, tmp_path, "devices.source=virtual:1", game)
    assert (paged["episodes"], paged["void"]) == (2, 0)
    assert (paged["accuracy"], paged["score"]) == (1.0, 120.0)
    for read in paged.get("audit", {}).values():
        assert read["agreed"] == read["of"], paged["audit"]
    assert told(paged["run"]) == told(virtual["run"])
    # The browser was opened for the first game and left where it was for the second.
    assert len(station.phone.opened) == opened + 1
    assert station.phone.opened[-1].startswith("http://localhost:")
