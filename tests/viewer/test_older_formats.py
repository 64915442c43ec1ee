"""Runs in older formats of the episode file still open."""

import json
import shutil
from pathlib import Path

import numpy as np

from agentrl import replay
from tests.replay.episodes import screen
from tests.viewer.test_server_app import ask

FORMAT_3 = Path(__file__).parents[1] / "replay" / "format_3"
"""A small run in format 3, recorded by the version before format 4."""
EPISODE = "train-00001-g000-m00"


def test_a_run_in_format_3_is_read(tmp_path: Path) -> None:
    run = replay.open(shutil.copytree(FORMAT_3, tmp_path / "run"))
    valid, void = run.episodes()
    assert (valid.id, valid.reward, valid.advantages, valid.used_by) == (
        EPISODE,
        1.0,
        (0.5, -0.25),
        1,
    )
    assert void.cause == "DeviceOffline"
    episode = run.episode(EPISODE).episode
    assert [turn.prompt_ids for turn in episode.turns] == [(1, 2), (1, 2, 3, 4)]
    assert episode.turns[1].shown == "<image>Go on."
    assert run.token_advantages(episode) == [[0.5], [0.25, -0.75]]
    image = run.frame(episode.final_frames[0])
    assert image is not None
    np.testing.assert_array_equal(image, screen(2))


def test_a_run_in_format_3_opens_in_the_viewer(serve, tmp_path: Path) -> None:
    served = serve(shutil.copytree(FORMAT_3, tmp_path / "run"))
    status, _, body = ask(served.url, f"/api/episodes/{EPISODE}")
    assert status == 200
    page = json.loads(body)
    assert [turn["advantage"] for turn in page["played"]] == [0.5, -0.25]
    tokens = json.loads(ask(served.url, f"/api/episodes/{EPISODE}/turns/2")[2])["reply"]
    assert [token["advantage"] for token in tokens] == [0.25, -0.75]
    assert ask(served.url, f"/frames/{page['final']['frames'][0]}")[0] == 200


def test_token_advantages_of_format_3_are_read_from_their_old_file(tmp_path: Path) -> None:
    run = shutil.copytree(FORMAT_3, tmp_path / "run")
    row = '{"id": "train-00001-g000-m00", "advantages": [[1.5], [2.5, 3.5]]}\n'
    (run / "episodes" / "credits-main.jsonl").write_text(row)
    opened = replay.open(run)
    advantages = opened.token_advantages(opened.episode(EPISODE).episode)
    assert advantages == [[1.5], [2.5, 3.5]]


def test_a_recorded_metric_won_counts_as_success(tmp_path: Path) -> None:
    run = shutil.copytree(FORMAT_3, tmp_path / "run")
    index = run / "episodes" / "index-main.jsonl"
    index.write_text(index.read_text().replace('"metrics": {}', '"metrics": {"won": 1.0}'))
    valid, void = replay.open(run).episodes()
    assert (valid.success, void.success) == (True, None)
    assert replay.open(run).episodes(replay.Filter(success=True)) == [valid]
