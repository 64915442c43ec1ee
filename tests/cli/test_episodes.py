"""Listing, exporting and viewing recorded episodes from the command line."""

import json
import re
from pathlib import Path

import pytest

from agentrl import cli, replay
from agentrl.replay.recorder import Recorder
from agentrl.types import Outcome
from tests.replay.episodes import scored
from tests.viewer import runs


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("good", turns=3), split="train", step=1)
        void = scored("void", turns=0, outcome=Outcome.DEVICE_ERROR, error="[bold]gone")
        recorder.episode(void, split="train", step=2)
    return tmp_path


def test_episodes_lists_and_filters(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["episodes", str(run_folder)]) == 0
    output = capsys.readouterr().out
    assert "[bold]gone" in output
    assert [line.split()[0] for line in output.splitlines()[:3]] == ["episode", "good", "void"]
    assert "2 of 2 episodes" in output
    assert "1 void of 2 (50.0%): 1 x [bold]gone" in output
    assert cli.run(["episodes", str(run_folder), "--label", "unknown"]) == 0
    output = capsys.readouterr().out
    assert "No episodes match" in output
    assert "label='unknown': no episode has this label. Labels: " in output
    assert cli.run(["episodes", str(run_folder), "--outcome", "terminated"]) == 0
    output = capsys.readouterr().out
    assert "void" not in output
    assert "1 of 1 episodes" in output
    assert cli.run(["episodes", str(run_folder), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["id"], row["turns"], row["error"]) for row in rows] == [
        ("good", 3, None), ("void", 0, "[bold]gone"),
    ]  # fmt: skip
    assert cli.run(["episodes", str(run_folder), "--json", "--label", "unknown"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "no episode has this label" in said.err
    group = replay.open(run_folder).episode("good").summary.group
    assert cli.run(["episodes", str(run_folder), "--group", group]) == 0
    assert "good" in capsys.readouterr().out
    assert cli.run(["episodes", str(run_folder), "--group", "another"]) == 0
    assert "good" not in capsys.readouterr().out


def test_episodes_filters_by_result_and_label(tmp_path, capsys) -> None:
    run = runs.run(tmp_path / "run")

    def count(*filters: str) -> int:
        assert cli.run(["episodes", str(run), *filters]) == 0
        total = re.search(r"of (\d+) episodes", capsys.readouterr().out)
        return int(total[1]) if total else 0

    won, lost = count("--success"), count("--no-success")
    assert won > 0 < lost
    assert won + lost == count() - count("--outcome", "void")
    assert won <= count("--min-reward", "1") < won + lost
    assert 0 < count("--label", "train", "--success") < won


@pytest.mark.parametrize("label", ["after sampled", "after-sampled"])
def test_labels_can_be_spelled_as_on_the_pages_or_as_in_ids(tmp_path, capsys, label) -> None:
    run = runs.run(tmp_path / "run")
    assert cli.run(["episodes", str(run), "--label", label]) == 0
    assert "4 of 4 episodes" in capsys.readouterr().out
    out = tmp_path / "out.jsonl"
    arguments = ["--as", "turns", "--split", "eval", "--label", label]
    assert cli.run(["export", str(run), str(out), *arguments]) == 0
    assert "12 rows (12 after-sampled)" in capsys.readouterr().out
    reward = ["--reward", "agentrl.rewards.form:action", "--label", label]
    assert cli.run(["rescore", str(run), *reward]) == 0
    assert capsys.readouterr().out.startswith("4 episodes: mean")


def test_an_unknown_label_is_answered_with_the_known_ones(tmp_path, capsys) -> None:
    run = runs.run(tmp_path / "run")
    message = (
        "label='aftr sampled': no episode has this label (did you mean 'after-sampled'?). "
        "Labels: before-sampled, after-sampled, train"
    )
    label = ["--label", "aftr sampled"]
    assert cli.run(["episodes", str(run), *label]) == 0
    assert message in capsys.readouterr().out
    assert cli.run(["export", str(run), str(tmp_path / "out.jsonl"), *label]) == 2
    assert message in capsys.readouterr().err
    assert cli.run(["rescore", str(run), "--reward", "agentrl.rewards.form:effect", *label]) == 2
    assert message in capsys.readouterr().err


def test_one_row_is_singular_and_a_long_error_takes_one_line(tmp_path, capsys) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.episode(scored("a"), split="train", step=1)
        error = "ValueError: " + "9 \n" * 30_000
        lost = scored("b", outcome=Outcome.ENV_ERROR, error=error, turns=0, device=None)
        recorder.episode(lost, split="train", step=1)
    assert cli.run(["episodes", str(tmp_path), "--outcome", "void"]) == 0
    assert "device" not in capsys.readouterr().out
    assert cli.run(["export", str(tmp_path), str(tmp_path / "a.jsonl")]) == 0
    output = capsys.readouterr().out
    assert "wrote" in output
    assert ": 1 row (1 " in output
    assert cli.run(["episodes", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "device" in output
    assert "ValueError" in output
    assert len(output) < 10_000


def test_export_writes_a_page(run_folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "game.html"
    assert cli.run(["export", str(run_folder), str(page), "--episode", "good"]) == 0
    assert "<h1><bdi>good</bdi></h1>" in page.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["x.gif"], ["x.avi"], ["x.avi", "--episode", "good"], ["x.html", "--episode", "../good"],
        ["x.html", "--group", "unknown"], ["x.html", "--episode", "good", "--group", "x"],
        ["x.html", "--success"], ["x.html", "--as", "turns"], ["x.jsonl", "--width", "100"],
    ],
)  # fmt: skip
def test_export_refuses_options_that_do_not_fit_the_file(
    run_folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["export", str(run_folder), *arguments]) == 2
    assert capsys.readouterr().err.startswith("ConfigError: ")


@pytest.mark.parametrize(
    "arguments",
    [["--episode", "unknown"], ["--group", "unknown"], ["--episode", "good", "--group", "x"]],
)
def test_view_refuses_pages_that_do_not_exist(
    run_folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["view", str(run_folder), *arguments]) == 2
    assert capsys.readouterr().err.startswith("ConfigError: ")
