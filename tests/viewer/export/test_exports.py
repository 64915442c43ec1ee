"""Export of episodes, groups and reports as files."""

import dataclasses
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.errors import ConfigError
from agentrl.files import lock_folder
from agentrl.replay.recorder import Recorder
from agentrl.replay.run_reader import Run
from agentrl.runs import run_paths
from agentrl.types import ScoredEpisode
from agentrl.viewer.export import episode_media, write
from agentrl.viewer.export.run_report import report
from tests.replay import packs
from tests.replay.episodes import episode, screen, turn
from tests.viewer import runs

EPISODE = "train-00001-g000-m00"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return runs.run(tmp_path / "run")


def exported(run: Path, suffix: str, episode: str = EPISODE) -> bytes:
    path = run.parent / "out" / f"e{suffix}"
    write(replay.open(run), episode, path)
    return path.read_bytes()


def test_an_animation_has_an_image_per_turn_and_one_for_the_end(run):
    shown = Image.open(io.BytesIO(exported(run, ".gif")))
    assert (shown.format, shown.n_frames, shown.info["loop"]) == ("GIF", 4, 0)
    assert shown.width == 360


def test_a_video_lasts_as_long_as_its_turns(run):
    import av

    with av.open(io.BytesIO(exported(run, ".mp4"))) as film:
        (stream,) = film.streams.video
        pictures = [frame.to_ndarray(format="rgb24") for frame in film.decode(stream)]
        assert stream.codec_context.name == "h264"
        assert float(stream.duration * stream.time_base) == pytest.approx(6 * 0.8)
    assert len(pictures) == 6
    assert np.abs(pictures[0].astype(int) - pictures[-1]).max() > 50


def test_a_contact_sheet_shows_touches(run):
    shown = np.asarray(Image.open(io.BytesIO(exported(run, ".png"))).convert("RGB")).astype(int)
    _, width, _ = shown.shape
    assert width == 4 * 244
    touch = shown[round(0.5 * 240 * 320 / 180), round(0.25 * 240)]
    assert np.abs(touch - (255, 77, 61)).max() < 10


def test_text_is_drawn_if_there_is_no_screen(tmp_path, capsys):
    settings = [f"run.dir={tmp_path}", "eval.rings=null"]
    assert agentrl(["eval", "sokoban", "--policy=random", "--episodes=1", *settings]) == 0
    (run,) = tmp_path.iterdir()
    (only,) = replay.open(run).episodes()
    picture = Image.open(io.BytesIO(exported(run, ".png", only.id))).convert("L")
    rows, columns = np.nonzero(np.asarray(picture)[:240, :240] < 60)  # the first screen
    assert rows.min() < 30  # 5 x 5 characters, as high as the screen, in its middle
    assert rows.max() > 190
    assert abs(columns.min() + columns.max() - 240) < 12


@pytest.mark.parametrize("suffix", [".gif", ".mp4", ".png"])
@pytest.mark.parametrize(("width", "height"), [(20, 700), (1, 3000), (3000, 1)])
def test_screens_of_any_shape_are_exported(tmp_path, suffix, width, height):
    with Recorder(tmp_path) as recorder:
        shown = (recorder.frame(screen(1, width, height)),)
        made = episode("a", (turn(frames=shown),))
        recorder.episode(
            ScoredEpisode(episode=made, components={}, rewards=(0.0,)), split="train", step=1
        )
    assert exported(tmp_path, suffix, "a")


def test_missing_frames_keep_their_place(run):
    episode = replay.open(run).episode(EPISODE).episode
    packs.lose(run, episode.turns[1].frames[0])
    assert Image.open(io.BytesIO(exported(run, ".gif"))).n_frames == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["e.avi", "--episode", EPISODE], ".html, .gif, .mp4, .png"),
        (["e.png"], "add --episode ID"),
        (["e.png", "--group", "g"], "use FILE.html"),
        (["e.html", "--group", "unknown"], "no group 'unknown'"),
        (["e.html", "--group", "g", "--episode", "e"], "not both"),
        (["e.png", "--episode", "unknown"], "no episode 'unknown'"),
        (["config.yaml/e.png", "--episode", EPISODE], "cannot be written"),
    ],
)
def test_invalid_exports_are_reported(run, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(run)
    assert agentrl(["export", str(run), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_group_and_report_pages_are_self_contained(run, tmp_path):
    for arguments, words in (
        (["--group", "train-00001-g000"], ["m03", "+0.5", "met"]),
        ([], ["Best of", "DeviceOffline", "Entropy", "1 to 2", "seed: 0"]),
    ):
        path = tmp_path / "page.html"
        assert agentrl(["export", str(run), str(path), *arguments]) == 0
        page = path.read_text()
        assert all(word in page for word in words)
        assert page.count("data:image/webp;base64,") > 3
        assert "default-src &#39;none&#39;" in page
        assert not re.search(r"<script|https?://|@import|url\(| style=", page)


def test_a_group_page_names_the_unreadable_member(run, tmp_path):
    file = run_paths.episode_file(run, "train-00001-g000-m03")
    file.write_bytes(file.read_bytes()[:100])
    page = tmp_path / "group.html"
    assert agentrl(["export", str(run), str(page), "--group", "train-00001-g000"]) == 0
    text = page.read_text()
    assert text.count("cannot be read: EOFError") == 1
    assert text.index("m02<br>") < text.index("m03<br>") < text.index("cannot be read")
    assert str(tmp_path) not in text


def test_pages_of_the_current_folder_have_the_runs_name(run, tmp_path, monkeypatch):
    monkeypatch.chdir(run)
    for arguments in (["--group", "train-00001-g000"], ["--episode", EPISODE], []):
        path = tmp_path / "page.html"
        assert agentrl(["export", ".", str(path), *arguments]) == 0
        assert f"<bdi>{run.name}</bdi>" in path.read_text()


def test_a_report_has_examples_from_the_last_evaluation_only(tmp_path):
    with Recorder(tmp_path) as recorder:
        for step, won in ((2, True), (4, False)):  # a resumed job is evaluated again
            runs.played(recorder, "after-sampled", 0, step=step, split="eval", won=won)
    (tmp_path / "metrics.jsonl").write_text(
        '{"stage": "reinforcement", "step": 1, "learner/entropy": NaN, "train/reward": 1.5}\n'
        f'{{"stage": "reinforcement", "step": {10**400}, "learner/entropy": 0.5}}\n'
    )
    page = report(Run(tmp_path)).decode()
    assert "after-sampled-00004-g000-m00" in page
    assert "after-sampled-00002-g000-m00" not in page
    assert "Entropy" not in page


def test_a_report_shows_the_next_best_episode_if_the_best_is_damaged(tmp_path):
    with Recorder(tmp_path) as recorder:
        for number in range(3):
            runs.played(recorder, "after-sampled", number, step=2, split="eval", won=number != 1)
    best = max(Run(tmp_path).episodes(), key=lambda s: (s.reward, s.id))
    run_paths.episode_file(tmp_path, best.id).write_bytes(b"no longer what it was")
    page = report(Run(tmp_path)).decode()
    assert page.count("Skipped 1 unreadable episode;") == 1
    assert best.id not in page
    assert all(f"<h2>{name} of" in page for name in ("Best", "Median", "Worst"))


def test_a_report_shows_training_progress(run):
    (run / "state.json").write_text('{"step": 2}')
    with lock_folder(run):
        assert "running, at 2 of 40 steps" in report(Run(run)).decode()
    assert "stopped after 2 of 40 steps" in report(Run(run)).decode()
    (run / "summary.json").write_text('{"steps": 2}')
    lines = [
        {"stage": "evaluation", "step": step, "greedy/reward": step, "greedy/episodes": 4}
        for step in (0, 2)
    ]
    lines.append({"stage": "reinforcement", "step": 1, "learner/mismatch_k1": 0.00019})
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    page = report(Run(run)).decode()
    assert "finished after 2 of 40 steps" in page
    assert ">1.9e-4<" in page  # the margin has no place for 0.00019
    assert page.count('<circle class="d') >= 2  # points before and after training, without a line


@pytest.mark.parametrize(
    ("said", "first", "last"),
    [
        ("tap the blue one", "tap the blue one", "tap the blue one"),
        (
            "I think " + "and think " * 500 + "<answer>tap 3</answer>",
            "I think and",
            "tap 3</answer>",
        ),
        ("x" * 9_000, "xxx", "xxx"),
    ],
)
def test_a_long_reply_keeps_its_first_and_last_line(run, said, first, last):
    recorded = Run(run).episode(Run(run).episodes()[0].id)
    turns = (dataclasses.replace(recorded.episode.turns[0], reply=said),)
    artist = episode_media.TurnPainter(
        Run(run),
        dataclasses.replace(recorded, episode=dataclasses.replace(recorded.episode, turns=turns)),
        300,
    )
    lines = artist._fitted(ImageDraw.Draw(Image.new("RGB", (300, 300))), said).splitlines()
    assert len(lines) <= 3
    assert lines[0].startswith(first)
    assert lines[-1].endswith(last)
    assert ("…" in lines[0]) == (len(said) > 100)


def test_a_report_of_a_run_without_an_episode_is_written(tmp_path):
    (tmp_path / "run" / "episodes").mkdir(parents=True)
    path = tmp_path / "report.html"
    assert agentrl(["export", str(tmp_path / "run"), str(path)]) == 0
    assert "unknown" in path.read_text()


@pytest.mark.parametrize("value", ["NaN", "Infinity", f"1{'0' * 400}", "-1e308", "-5"])
def test_numbers_that_charts_cannot_show_are_dropped(run, tmp_path, value):
    logged = '{"stage": "reinforcement", "step": %s, "train/reward": %s}\n'
    (run / "metrics.jsonl").write_text(logged % (1, value) + logged % (value, 1))
    path = tmp_path / "report.html"
    assert agentrl(["export", str(run), str(path)]) == 0
    assert "nan," not in path.read_text()


def test_without_pyav_a_video_is_refused_with_advice(run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(ConfigError, match=r"agentrl-screens\[stream\]"):
        exported(run, ".mp4")
